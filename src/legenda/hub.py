"""Models on Hugging Face's hub: download the files of a model, upload them with a model card."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from legenda.errors import CheckpointError, ConfigError, import_extra
from legenda.run_folder import ANSWERS, CONFIG, SUBWORDS, VOCABULARY, WEIGHTS

CARD = "README.md"
_FILES = (CONFIG, WEIGHTS, VOCABULARY, ANSWERS, SUBWORDS)
"""All that is downloaded: JSON, text, safetensors and a model of SentencePiece; no pickle and no code."""


def download_model(name: str) -> Path:
    """Return the local copy of the model USER/MODEL in the hub's cache, downloaded where it is not there.

    Without a network the cached copy is used. Raise ConfigError where there is neither, and CheckpointError where the
    repository holds no model of this library.
    """
    hub = _import_hub()
    try:
        folder = hub.snapshot_download(name, allow_patterns=[*_FILES], **_client())
    except Exception as error:  # of the HTTP client, the hub and the file system
        raise ConfigError(
            f"{name} is no folder with a model and could not be downloaded from Hugging Face's hub ({_reason(error)}); "
            "check the name and the network, and log in with `hf auth login` where it is private"
        ) from error
    for file in (CONFIG, WEIGHTS):
        if not Path(folder, file).is_file():
            raise CheckpointError(f"{name} on Hugging Face's hub has no {file}; name a model that `legenda push` wrote")
    return Path(folder)


def upload_model(
    folder: Path,
    name: str,
    *,
    commit_message: str = "Upload model",
    private: bool | None = None,
    token: str | bool | None = None,
    branch: str | None = None,
    create_pr: bool | None = None,
) -> str:
    """Upload the files of a model and its card to the repository USER/MODEL, which is created; return its address.

    The options are those of `huggingface_hub`. Raise ConfigError where that fails.
    """
    hub = _import_hub()
    api = hub.HfApi(token=token, **_client())
    try:
        repository = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository.repo_id,
            folder_path=folder,
            allow_patterns=[*_FILES, CARD],
            commit_message=commit_message,
            revision=branch,
            create_pr=create_pr,
        )
    except Exception as error:
        raise ConfigError(
            f"{name} could not be uploaded to Hugging Face's hub ({_reason(error)}); check the name and the network, "
            "and log in with `hf auth login`"
        ) from error
    return str(repository)


def _client() -> dict[str, Any]:
    from legenda import __version__

    return {"library_name": "legenda", "library_version": __version__}


def _reason(error: Exception) -> str:
    """Return one line about an error of the hub's client."""
    errors = _import_hub().errors
    if isinstance(error, errors.RepositoryNotFoundError):
        return "there is no such model, or it is private"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].removeprefix("Got: ").partition(". ")[0].rstrip(".") if lines else type(error).__name__


def _import_hub() -> ModuleType:
    return import_extra("huggingface_hub", "hub")
