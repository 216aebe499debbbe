"""Captions of any number of pictures in shards: each is written whole, once, by whoever captions it, in any order.

A folder of such a job holds `manifest.json` (what is captioned, and how), the listing and its index, and for every
shard one file `captions-00000123.jsonl` with a line for each picture: {"file", "captions": [{"caption", "score"}]}, or
{"file", "error"} for one that cannot be captioned. Nothing but these files says what is done, so a job that was stopped
anywhere is called again and goes on.
"""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from legenda.errors import UserError
from legenda.io import atomic_write, read_json, write_json
from legenda.scale.listing import (
    index_listing,
    is_url,
    list_images,
    names_of_shard,
    refuse_url,
    write_sorted,
)

MANIFEST = "manifest.json"
LISTING = "names.txt"
INDEX = "index.bin"

Tell = Callable[[Sequence[Path], list[str]], Iterable[tuple[Path, tuple[tuple[str, float], ...]]]]
"""Captions, each with its score, of the pictures that can be read; why others cannot is added to the list."""

_LARGEST = 64 << 20
"""Bytes of a picture that is fetched."""
_FETCHES = 3
"""How often a picture is asked for before it counts as broken."""
_CARELESS = 2
"""Attempts at a shard that caption whole batches; later ones look for the picture that stops the worker."""


@dataclass(frozen=True)
class Job:
    """A folder of shards to caption; relative names in its listing are relative to `base`."""

    folder: Path
    listing: Path
    base: Path
    pictures: int
    shards: int

    def shard(self, number: int) -> Path:
        """The file of a shard's captions."""
        return self.folder / f"captions-{number:08d}.jsonl"


@dataclass(frozen=True)
class Done:
    """A shard that is there: its pictures, those of them that are broken, and whether it was there before."""

    shard: int
    pictures: int
    broken: int
    earlier: bool


@dataclass(frozen=True)
class Totals:
    """What the shards that are there hold together, and how many pictures were there before."""

    shards: int = 0
    pictures: int = 0
    broken: int = 0
    earlier: int = 0


def fingerprint(run: Path) -> str:
    """The SHA-256 of a run's model: its weights, vocabulary and configuration."""
    digest = hashlib.sha256()
    for path in sorted(run / name for name in ("config.json", "model.safetensors", "vocabulary.txt")):
        if path.is_file():
            with path.open("rb") as file:
                digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def open_job(
    folder: Path, given: Sequence[str], settings: Mapping[str, Any], *, shard_size: int, allow_urls: bool
) -> Job:
    """Starts a job in a folder, or takes it up again.

    given: files, folders, patterns, URLs, "-", which are listed, sorted, in the folder when the job starts and not
    again; or one "@names.txt", a listing that is used where it lies, in its own order, every line a picture.
    settings: what the captions depend on, plain values by name.
    Raises UserError when the folder holds a job of other pictures, settings or shards.
    """
    folder, here = folder.resolve(), Path.cwd()
    own = _listing_of(given)
    if not allow_urls:
        for entry in given:
            refuse_url(entry)
    places = [entry if entry == "-" or is_url(entry) else _absolute(entry, here) for entry in given]
    wanted = {"given": places, "shard_size": shard_size, **settings}
    held: dict[str, Any] | None = read_json(folder / MANIFEST) if (folder / MANIFEST).exists() else None
    if held is not None:
        _refuse_others(folder, held, wanted)
    listing = folder / LISTING if own is None else here / own
    # What may say something else on another day is read again; a folder's pictures are those of the first day.
    if held is None or own is not None or "-" in given:
        with ExitStack() as files:
            index = files.enter_context(atomic_write(folder / INDEX))
            read = listing
            if own is None:
                read = files.enter_context(atomic_write(listing))
                write_sorted(list_images(given, allow_urls=allow_urls), read, folder)
            counted = asdict(index_listing(read, index, shard_size, allow_urls=allow_urls))
            if held is not None:
                _refuse_others(folder, held, counted)
        if held is None:
            held = {**wanted, "base": str(here), **counted}
            write_json(folder / MANIFEST, held)
    pictures = int(held["pictures"])
    return Job(folder, listing, Path(held["base"]), pictures, -(-pictures // shard_size))


def _listing_of(given: Sequence[str]) -> Path | None:
    listings = [entry for entry in given if entry.startswith("@")]
    if not listings:
        return None
    if len(given) > 1:
        raise UserError(f"{listings[0]} is a listing and must stand alone; write all names into one file")
    return Path(listings[0][1:])


def _absolute(entry: str, here: Path) -> str:
    mark = "@" if entry.startswith("@") else ""
    return mark + os.path.normpath(here / entry.removeprefix("@"))


def _refuse_others(folder: Path, held: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        if held.get(name) != value:
            raise UserError(
                f"{folder} holds captions made with {name} {held.get(name)}, not {value}; name another folder for --out"
            )


def caption_shard(job: Job, shard: int, tell: Tell, batch_size: int) -> Done:
    """Captions a shard's pictures and writes its file, unless it is there.

    A shard that has stopped its worker is begun again from its first picture; when it goes on stopping workers, its
    pictures are captioned one by one, and one that has stopped two workers so is given as broken.
    """
    out = job.shard(shard)
    if out.exists():
        return _count(out, shard, earlier=True)
    names = names_of_shard(job.listing, job.folder / INDEX, shard)
    attempts = _Attempts(job.folder / f".{out.stem}.attempts")
    with atomic_write(out) as partial, partial.open("w", encoding="utf-8") as lines:
        if attempts.earlier < _CARELESS:
            batches = (names[first : first + batch_size] for first in range(0, len(names), batch_size))
            entries = (entry for batch in batches for entry in _caption_batch(job, batch, tell))
        else:
            entries = _caption_carefully(job, names, tell, attempts)
        for entry in entries:
            lines.write(json.dumps(entry) + "\n")
        lines.flush()
        os.fsync(lines.fileno())  # a file that has its name is whole even when the machine fails
    attempts.forget()
    return _count(out, shard, earlier=False)


def _count(out: Path, shard: int, *, earlier: bool) -> Done:
    with out.open(encoding="utf-8") as lines:
        broken = Counter("error" in json.loads(line) for line in lines)
    return Done(shard, broken.total(), broken[True], earlier)


class _Attempts:
    """How often a shard was begun, and which pictures had stopped a worker that captioned one by one.

    The file has a line "begun" for each attempt and, for each picture that is captioned alone, its number before that.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        tried = path.read_text(encoding="utf-8").split("begun\n")[1:] if path.exists() else []
        self.earlier = len(tried)
        ends = Counter(int(attempt.split()[-1]) for attempt in tried if attempt)
        self.culprits = {number for number, times in ends.items() if times > 1}
        self.note("begun")

    def note(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)


def _caption_carefully(job: Job, names: Sequence[str], tell: Tell, attempts: _Attempts) -> Iterator[dict[str, Any]]:
    for number, name in enumerate(names):
        if number in attempts.culprits:
            yield {"file": name, "error": f"{name} has stopped its worker more than once; look at it or leave it out"}
            continue
        attempts.note(str(number))
        yield from _caption_batch(job, [name], tell)


def _caption_batch(job: Job, names: Sequence[str], tell: Tell) -> Iterator[dict[str, Any]]:
    """One entry for each name, in order."""
    errors: dict[str, str] = {}
    with TemporaryDirectory(prefix="legenda-") as fetched:
        places: dict[str, Path] = {}
        for number, name in enumerate(names):
            try:
                places[name] = _fetch(name, Path(fetched, str(number))) if is_url(name) else job.base / name
            except UserError as error:
                errors[name] = str(error)
        told = dict(tell(list(places.values()), []))
        for name, path in places.items():
            if path not in told:  # alone, it says why
                reasons: list[str] = []
                told.update(tell([path], reasons))
                errors[name] = "".join(reasons[:1]).replace(str(path), name)
    for name in names:
        if name in places and places[name] in told:
            captions = [{"caption": said, "score": round(score, 6)} for said, score in told[places[name]]]
            yield {"file": name, "captions": captions}
        else:
            yield {"file": name, "error": errors[name]}


def _fetch(url: str, path: Path) -> Path:
    """Writes what a URL names to `path`; a store that does not answer is asked again after a while."""
    import fsspec

    content = b""
    for attempt in range(1, _FETCHES + 1):
        try:
            system, place = fsspec.core.url_to_fs(url)
            with system.open(place, "rb") as file:
                content = file.read(_LARGEST + 1)
            break
        except FileNotFoundError as error:
            raise UserError(f"{url} does not exist; leave it out") from error
        except Exception as error:  # every store fails in its own way
            if attempt == _FETCHES:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise UserError(
                    f"{url} cannot be fetched ({reason}); check the address and your credentials"
                ) from error
            sleep(2.0**attempt)
    if len(content) > _LARGEST:
        raise UserError(f"{url} is larger than {_LARGEST >> 20} MiB; scale it down or leave it out")
    path.write_bytes(content)
    return path


def watch(job: Job, shards: Iterable[Done], progress: Callable[[int, int], None]) -> Totals:
    """Adds up shards as they come, telling how many pictures are done.

    At the end, leftovers of workers that were stopped are removed. Raises UserError when shards are missing.
    """
    sum_ = Totals()
    for done in shards:
        sum_ = Totals(
            sum_.shards + 1,
            sum_.pictures + done.pictures,
            sum_.broken + done.broken,
            sum_.earlier + done.earlier * done.pictures,
        )
        progress(sum_.pictures, job.pictures)
    if (sum_.shards, sum_.pictures) != (job.shards, job.pictures):
        raise UserError(
            f"{job.folder} holds {sum_.pictures} of {job.pictures} pictures in {sum_.shards} of {job.shards} shards; "
            "call the same command again, or take another folder if its files were changed"
        )
    for left in job.folder.glob(".captions-*"):
        left.unlink(missing_ok=True)
    for left in job.folder.glob(".sorting-*"):
        rmtree(left, ignore_errors=True)
    return sum_
