"""Models by name: the folders of runs, the packaged model, those of Hugging Face's hub and of transformers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from legenda.errors import CheckpointError, ConfigError, first_line, import_extra
from legenda.run_folder import (
    ANSWERS,
    ASSETS,
    CONFIG,
    PACKAGED,
    SUBWORDS,
    VOCABULARY,
    WEIGHTS,
    find_seeds,
    shortest_names,
)
from legenda.terminal import counted

CARD = "README.md"
_FILES = (CONFIG, WEIGHTS, VOCABULARY, ANSWERS, SUBWORDS)
"""All that is downloaded: JSON, text, safetensors and a model of SentencePiece; no pickle and no code."""


def download_model(name: str) -> Path:
    """Return the local copy of the model USER/MODEL in the hub's cache, downloaded where it is not there.

    Without a network the cached copy is used. Raise ConfigError where there is neither, and CheckpointError where the
    repository holds no model of this library.
    """
    hub = import_extra("huggingface_hub", "hub")
    try:
        folder = hub.snapshot_download(name, allow_patterns=[*_FILES])
    except Exception as error:  # of the HTTP client, the hub and the file system
        raise ConfigError(
            f"{name} is no folder with a model and could not be downloaded from Hugging Face's hub "
            f"({first_line(error)}); check the name and the network, and `hf auth login` where it is private"
        ) from error
    for file in (CONFIG, WEIGHTS):
        if not Path(folder, file).is_file():
            raise CheckpointError(f"{name} on Hugging Face's hub has no {file}; name a model that `legenda push` wrote")
    return Path(folder)


def upload_folder(
    folder: Path,
    name: str,
    *,
    commit_message: str = "Upload model",
    private: bool | None = None,
    token: str | bool | None = None,
    branch: str | None = None,
    create_pr: bool | None = None,
) -> str:
    """Upload the model in a folder and its card to the repository USER/MODEL, which is created; return its address.

    The options are those of `huggingface_hub`. Raise ConfigError on a failure.
    """
    api = import_extra("huggingface_hub", "hub").HfApi(token=token)
    how = {"commit_message": commit_message, "revision": branch, "create_pr": create_pr}
    try:
        repository = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=repository.repo_id, folder_path=str(folder), allow_patterns=[*_FILES, CARD], **how)
    except Exception as error:  # of the HTTP client, the hub and the file system
        raise ConfigError(
            f"{name} could not be uploaded to Hugging Face's hub ({first_line(error)}); check the name and the "
            "network, and log in with `hf auth login`"
        ) from error
    return str(repository)


HUB_PREFIX = "hf:"
"""The prefix of the name of a model of transformers, on the hub or in a folder, in place of a run."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SNAPSHOT = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/[^/]+$")
"""The end of the path of a model that huggingface_hub has downloaded."""


def is_run_folder(name: str | Path) -> bool:
    """Return whether a name is the path of a folder with a config.json, and not a packaged model or one of the hub."""
    return (Path(name) / CONFIG).is_file()


def is_of_transformers(name: str | Path) -> bool:
    """Return whether a name is hf:NAME, of a model of transformers in place of a run."""
    return str(name).startswith(HUB_PREFIX)


def portable_name(folder: Path) -> str | Path:
    """Return the name by which `find_model` finds a folder everywhere, of the packaged model or of the hub; else it."""
    if folder.resolve() == (ASSETS / PACKAGED).resolve():
        return PACKAGED
    snapshot = _SNAPSHOT.search(folder.as_posix())
    return folder if snapshot is None else "/".join(snapshot.groups())


def find_model(name: str | Path) -> Path:
    """Return the folder of a model: a path, "photo" for the packaged model, or USER/MODEL of Hugging Face's hub.

    A path that exists is never looked up in the hub. Raise CheckpointError or ConfigError where there is no model.
    """
    path = Path(name)
    if is_run_folder(path) or is_of_transformers(path):
        return path
    if str(name) == PACKAGED:
        if not (ASSETS / PACKAGED).is_dir():
            raise ConfigError("this installation lacks the packaged model photo; name a run folder instead")
        return ASSETS / PACKAGED
    if not path.parent.exists() and _HUB_ID.fullmatch(str(name)):
        return download_model(str(name))
    if seeds := find_seeds(path):
        raise CheckpointError(
            f"{path} holds runs of {counted(len(seeds), 'seeds')}; name one of them, such as {seeds[0]}"
        )
    if not path.is_dir():
        hint = f"did you mean {PACKAGED}?" if get_close_matches(str(name), [PACKAGED]) else "check the path"
        raise CheckpointError(f"{path} is not a folder with a model; train one with `legenda train`, or {hint}")
    runs = sorted(path.glob(f"*/{CONFIG}"))
    if runs and not (path / WEIGHTS).exists():
        raise CheckpointError(
            f"{path} holds no model but folders of models; name one of them, such as {runs[0].parent}"
        )
    return path


def unique_run_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the folders by the shortest ends of their paths that differ.

    Raise ConfigError for a repeated folder, and where there is none.
    """
    models = [find_model(folder) for folder in folders]
    # models of the hub keep their names: their folders in its cache are named by commits
    named = [
        path.resolve() if path == folder and not is_of_transformers(path) else folder
        for path, folder in zip(models, folders, strict=True)
    ]
    return dict(zip(shortest_names(named), models, strict=True))
