"""A job that captions any number of images, or extracts their features, in shards: its folder, settings, progress.

The folder holds `manifest.json` (the images and the settings), the listing and its index, and for every shard one file
`captions-00000123.jsonl` with a line for each image: {"image", "captions": [{"caption", "score"}]}, or
{"image", "error"} for one that cannot be captioned. Of features, `features-00000123.jsonl` has {"image", "regions"},
their number, or {"image", "error"}, and `features-00000123.safetensors` is the store of its images. A shard is complete
when its .jsonl file, which is written last, exists, so a stopped job resumes when it is called again.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

from legenda.data.features.packed import MANIFEST
from legenda.errors import ConfigError, LegendaError
from legenda.extractors.sources import Medium, is_url, list_images, reject_url
from legenda.io import atomic_write, get_field, read_json, verified, write_json
from legenda.jobs.listing import index_listing, names_of_shard, write_names, write_sorted

Kind = Literal["captions", "features"]
"""What a job makes of images."""
LISTING = "names.txt"
INDEX = "index.bin"


@dataclass(frozen=True)
class Job:
    """A folder of shards of captions or features; relative names in its listing are relative to `base`."""

    folder: Path
    listing: Path
    base: Path
    images: int
    shards: int
    kind: Kind = "captions"

    def shard(self, number: int) -> Path:
        """Return the file with the lines of a shard."""
        return self.folder / f"{self.kind}-{number:08d}.jsonl"

    def names(self, number: int) -> list[str]:
        """Return the names of the images of a shard."""
        index = self.folder / INDEX
        return verified(lambda: names_of_shard(self.listing, index, number), index, f"remove {self.folder}")

    def lines(self, number: int) -> list[dict[str, Any]]:
        """Return the lines of a complete shard; raise DataError for a damaged one."""

        def read() -> list[dict[str, Any]]:
            with path.open(encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            for line in lines:
                if not isinstance(line["image"], str) or not isinstance(line.get("error", ""), str):
                    raise ValueError("a line has no name of an image, or an error that is no text")
            return lines

        path = self.shard(number)
        return verified(read, path, "delete it and call the same command again")

    def clean(self) -> None:
        """Delete temporary files of killed workers."""
        for path in self.folder.glob(f".{self.kind}-*"):
            path.unlink(missing_ok=True)
        for path in self.folder.glob(".sorting-*"):
            rmtree(path, ignore_errors=True)


def open_job(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    kind: Kind,
    shard_size: int,
    sources: Sequence[str] = (),
    names: Sequence[str] | None = None,
    medium: Medium = "image",
    allow_urls: bool = False,
) -> Job:
    """Start a job in a folder, or resume it.

    settings: what the output depends on, JSON values by name. sources: files, folders, patterns, URLs and "-", whose
    images, or videos by the `medium`, are listed, sorted, once, when the job starts; or one "@names.txt", a listing
    with one image a line, which is not copied or sorted. names: the images themselves, in place of sources.
    Raise ConfigError when the folder holds complete shards of other images, settings or shards.
    """
    folder, cwd = folder.resolve(), Path.cwd()
    user_listing = _user_listing(sources)
    for source in () if allow_urls else (*sources, *(names or ())):
        reject_url(source)
    resolved = [source if source == "-" or is_url(source) else _absolute(source, cwd) for source in sources]
    expected = {"kind": kind, "sources": resolved, "shard_size": shard_size, **settings}
    manifest: dict[str, Any] | None = None
    if (folder / MANIFEST).exists():
        manifest = read_json(folder / MANIFEST, f"remove {folder}")
        get_field(manifest, "kind", str, str(folder / MANIFEST), f"remove {folder}")
    has_shards = next(folder.glob(f"{kind}-*.jsonl"), None) is not None
    if manifest is None and has_shards:
        raise ConfigError(f"{folder} holds shards without their {MANIFEST}; restore it or name another output")
    if manifest is not None and not has_shards and manifest.get("kind") == kind:
        manifest = None  # it has not written anything that another job could mistake for its own
    if manifest is not None:
        _check_manifest(folder, manifest, expected)
    listing = folder / LISTING if user_listing is None else cwd / user_listing
    # A folder is listed once; what is read in every call must not have changed.
    if manifest is None or user_listing is not None or names is not None or "-" in sources:
        with _remove_if_empty(folder), ExitStack() as files:
            index = files.enter_context(atomic_write(folder / INDEX))
            listed = listing
            if user_listing is None:
                listed = files.enter_context(atomic_write(listing))
                if names is None:
                    write_sorted(list_images(sources, medium, allow_urls=allow_urls), listed, folder)
                else:
                    write_names(names, listed)
            counts = asdict(index_listing(listed, index, shard_size, allow_urls=allow_urls))
            if manifest is not None:
                _check_manifest(folder, manifest, counts)
        if manifest is None:
            manifest = {**expected, "base": str(cwd), **counts}
            write_json(folder / MANIFEST, manifest)
    where, hint = str(folder / MANIFEST), f"remove {folder}"
    images, base = get_field(manifest, "images", int, where, hint), get_field(manifest, "base", str, where, hint)
    return Job(folder, listing, Path(base), images, -(-images // shard_size), kind)


@contextmanager
def _remove_if_empty(folder: Path) -> Iterator[None]:
    """Where the block fails, remove a folder that it has made."""
    try:
        yield
    except LegendaError:
        with suppress(OSError):
            folder.rmdir()
        raise


def digest_files(paths: Sequence[Path]) -> str:
    """Return a digest of the sizes and modification times of files, so that changed ones are noticed."""
    digest = hashlib.sha256()
    for path in paths:
        stat = path.stat() if path.exists() else None
        digest.update(f"{stat and (stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


def _user_listing(sources: Sequence[str]) -> Path | None:
    listings = [source for source in sources if source.startswith("@")]
    if not listings:
        return None
    if len(sources) > 1:
        raise ConfigError(f"{listings[0]} is a listing and must be the only source; write all names into one file")
    return Path(listings[0][1:])


def _absolute(source: str, cwd: Path) -> str:
    prefix = "@" if source.startswith("@") else ""
    return prefix + os.path.normpath(cwd / source.removeprefix("@"))


def _check_manifest(folder: Path, manifest: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    for name, value in expected.items():
        if manifest.get(name) != value:
            raise ConfigError(
                f"{folder} holds {manifest.get('kind')} made with {name} {manifest.get(name)}, not {value}; remove it "
                "or name another output"
            )
