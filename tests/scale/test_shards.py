"""A listing of any length, shards that are written once, and what is refused, with a captioner that needs no model."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import UserError
from legenda.scale.listing import index_listing, names_of_shard, write_sorted
from legenda.scale.shards import Done, Job, caption_shard, fingerprint, open_job, watch

SETTINGS = {"model": "abc", "beam_size": 3}


class Killed(BaseException):
    """What ends a worker with nothing tidied up after it, as far as one process can show it."""


@dataclass
class Stub:
    """Says a file's name as its caption; files whose name begins with "bad" cannot be read."""

    heard: list[str] = field(default_factory=list)
    deadly: str = ""

    def __call__(
        self, pictures: Sequence[Path], broken: list[str]
    ) -> Iterator[tuple[Path, tuple[tuple[str, float], ...]]]:
        for path in pictures:
            if path.name == self.deadly:
                raise Killed
            self.heard.append(path.name)
            if path.name.startswith("bad"):
                broken.append(f"{path} is not a picture")
            else:
                yield path, ((f"a {path.stem}", -1.5),)


@pytest.fixture
def start(tmp_path) -> Callable[..., Job]:
    def open_(*given: str, shard_size: int = 4, allow_urls: bool = False, **settings: Any) -> Job:
        return open_job(tmp_path / "out", given, SETTINGS | settings, shard_size=shard_size, allow_urls=allow_urls)

    return open_


@pytest.fixture
def pictures(tmp_path) -> Path:
    """Ten files in two folders, two of them broken, beside files that are no pictures."""
    folder = tmp_path / "pictures"
    (folder / "below").mkdir(parents=True)
    for number in range(8):
        (folder / ("below" if number % 2 else ".") / f"{number}.png").touch()
    for name in ("bad1.jpg", "below/bad2.jpg", "notes.txt", ".hidden.png"):
        (folder / name).touch()
    return folder


def do_all(job: Job, tell: Stub, batch_size: int = 3) -> None:
    watch(job, (caption_shard(job, shard, tell, batch_size) for shard in range(job.shards)), lambda *_: None)


def entries(job: Job) -> list[dict[str, Any]]:
    lines = (line for shard in range(job.shards) for line in job.shard(shard).read_text().splitlines())
    return [json.loads(line) for line in lines]


def test_each_picture_of_a_folder_stands_in_one_shard(start, pictures):
    job = start(str(pictures))
    assert (job.pictures, job.shards) == (10, 3)
    totals = watch(job, (caption_shard(job, shard, Stub(), 3) for shard in (2, 0, 1)), lambda *_: None)
    assert (totals.shards, totals.pictures, totals.broken, totals.earlier) == (3, 10, 2, 0)
    found = entries(job)
    names = [entry["file"] for entry in found]
    wanted = [str(path) for path in pictures.rglob("[!.]*") if path.suffix in (".png", ".jpg")]
    assert names == sorted(wanted)
    for entry in found:
        path = Path(entry["file"])
        if path.name.startswith("bad"):
            assert entry == {"file": str(path), "error": f"{path} is not a picture"}
        else:
            assert entry["captions"] == [{"caption": f"a {path.stem}", "score": -1.5}]


def test_a_job_that_was_stopped_goes_on_and_does_nothing_twice(start, pictures):
    tell = Stub(deadly="5.png")
    with pytest.raises(Killed):
        do_all(start(str(pictures)), tell)
    job = start(str(pictures))
    there = {path.name: path.stat().st_mtime_ns for path in job.folder.glob("captions-*")}
    assert there  # the first shard was finished
    assert len(there) < job.shards
    again = Stub()
    shards = [caption_shard(job, shard, again, 3) for shard in range(job.shards)]
    totals = watch(job, shards, lambda *_: None)
    assert totals.earlier == 4 * len(there)
    assert {name: (job.folder / name).stat().st_mtime_ns for name in there} == there
    assert len({entry["file"] for entry in entries(job)}) == len(entries(job)) == 10
    assert [name for name in again.heard if not name.startswith("bad")] == ["1.png", "3.png", "5.png", "7.png"]
    assert not list(job.folder.glob(".*"))


def test_a_picture_that_goes_on_stopping_its_worker_is_given_as_broken(start, pictures):
    job, tell = start(str(pictures), shard_size=10), Stub(deadly="5.png")
    for _ in range(4):
        with pytest.raises(Killed):
            caption_shard(job, 0, tell, 3)
    assert caption_shard(job, 0, tell, 3) == Done(0, 10, 3, earlier=False)
    (guilty,) = [entry for entry in entries(job) if entry["file"].endswith("5.png")]
    assert "has stopped its worker" in guilty["error"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"beam_size": 5}, "beam_size 3, not 5"), ({"model": "x"}, "model abc"), ({"shard_size": 5}, "shard_size 4")],
)
def test_other_settings_are_refused(start, pictures, changes, said):
    start(str(pictures))
    with pytest.raises(UserError, match=said):
        start(str(pictures), **changes)


def test_other_pictures_are_refused_and_those_of_the_first_day_stay(start, pictures):
    start(str(pictures))
    (pictures / "new.png").touch()
    assert start(str(pictures)).pictures == 10
    with pytest.raises(UserError, match="name another folder"):
        start(str(pictures / "below"))


def test_a_listing_is_used_where_it_lies_in_its_own_order(start, tmp_path):
    listing = tmp_path / "names.txt"
    listing.write_text("b.png\r\na.png\n\nb.png\nc d.png")
    job = start(f"@{listing}", shard_size=3)
    do_all(job, Stub())
    assert [entry["file"] for entry in entries(job)] == ["b.png", "a.png", "b.png", "c d.png"]
    assert not (job.folder / "names.txt").exists()
    listing.write_text("b.png\na.png\nb.png\nother.png")
    before = (job.folder / "index.bin").read_bytes()
    with pytest.raises(UserError, match="holds captions made with sha256"):
        start(f"@{listing}", shard_size=3)
    assert (job.folder / "index.bin").read_bytes() == before
    with pytest.raises(UserError, match="must stand alone"):
        start(f"@{listing}", "a.png")


def test_the_standard_input_must_name_the_same_again(start, pictures, monkeypatch):
    for text in (f"{pictures}/0.png\n{pictures}/below\n", f"{pictures}/below\n\n{pictures}/0.png\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert start("-").pictures == 6
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{pictures}/2.png\n"))
    with pytest.raises(UserError, match="pictures 6, not 1"):
        start("-")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    with pytest.raises(UserError, match="the standard input names no picture"):
        start("-")


@pytest.mark.parametrize(("name", "said"), [("none.png", "does not exist"), ("empty", "holds no picture")])
def test_what_is_not_there_is_named_and_nothing_is_left(start, tmp_path, name, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=said):
        start(str(tmp_path / name))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("pattern", ["{}", "{}*"])
def test_what_the_system_lets_nobody_look_at_is_no_fault_of_the_output(start, pictures, monkeypatch, pattern):
    real = Path.is_file

    def refuse(path: Path) -> bool:
        if path.suffix == ".png":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "is_file", refuse)
    named = pattern.format(pictures / "0.png")
    with pytest.raises(UserError, match="Permission denied") as told:
        start(named)
    assert str(told.value).startswith(f"{named} cannot be listed (")


def test_stores_are_read_where_urls_are_allowed(start, pictures, tmp_path):
    url = pictures.as_uri()
    with pytest.raises(UserError, match="--allow-urls"):
        start(url)
    listing = tmp_path / "urls.txt"
    listing.write_text(f"{url}/0.png\n")
    with pytest.raises(UserError, match="--allow-urls"):
        start(f"@{listing}")
    (pictures / "0.png").write_bytes(b"seen")
    job = start(url, allow_urls=True, shard_size=100)
    assert job.pictures == 10
    (pictures / "2.png").unlink()
    fetched: dict[str, bytes] = {}

    def tell(paths: Sequence[Path], broken: list[str]) -> Iterable[tuple[Path, tuple[tuple[str, float], ...]]]:
        assert not broken
        for path in paths:
            fetched[path.name] = path.read_bytes()
            yield path, (("seen", 0.0),)

    done = caption_shard(job, 0, tell, 100)
    assert (done.pictures, done.broken) == (job.pictures, 1)
    assert b"seen" in fetched.values()
    (missing,) = [entry for entry in entries(job) if "error" in entry]
    assert missing == {"file": f"{url}/2.png", "error": f"{url}/2.png does not exist; leave it out"}


def test_shards_that_are_missing_or_cut_are_told(start, pictures):
    job = start(str(pictures))
    with pytest.raises(UserError, match="4 of 10 pictures in 1 of 3 shards"):
        watch(job, [caption_shard(job, 0, Stub(), 3)], lambda *_: None)


def test_a_model_is_told_by_what_its_files_hold(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("weights")
    before = fingerprint(tmp_path)
    (tmp_path / "history.jsonl").write_text("{}")
    assert fingerprint(tmp_path) == before
    (tmp_path / "model.safetensors").write_text("others")
    assert fingerprint(tmp_path) != before


@given(
    st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"), min_size=1)),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(2, 3),
)
def test_a_listing_holds_each_name_once_and_shards_share_it_out(tmp_path_factory, names, size, held, merged):
    folder = tmp_path_factory.mktemp("listing")
    listing, index = folder / "names.txt", folder / "index.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legenda.scale.listing._HELD", held)
        patch.setattr("legenda.scale.listing._MERGED", merged)
        write_sorted(names, listing, folder)
    if not names:
        with pytest.raises(UserError, match="names no picture"):
            index_listing(listing, index, size, allow_urls=True)
        return
    counted = index_listing(listing, index, size, allow_urls=True)
    shards = [names_of_shard(listing, index, shard) for shard in range(-(-counted.pictures // size))]
    assert all(len(shard) == size for shard in shards[:-1])
    assert sorted(name for shard in shards for name in shard) == sorted(set(names))
    assert sorted(path.name for path in folder.iterdir()) == ["index.bin", "names.txt"]


def test_a_name_with_a_line_break_cannot_be_listed(tmp_path):
    with pytest.raises(UserError, match="line break"):
        write_sorted(["a\nb.png"], tmp_path / "names.txt", tmp_path)


MILLION = """
import resource, sys
from pathlib import Path
from legenda.scale.listing import index_listing, names_of_shard, write_sorted
from legenda.scale.shards import Done, Job, watch

folder, count, size = Path(sys.argv[1]), 1_000_000, 1_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
names = (f"photographs/of/the/great/archive/{number * 7 % count:09d}.jpg" for number in range(count))
listing, index = folder / "names.txt", folder / "index.bin"
write_sorted(names, listing, folder)
counted = index_listing(listing, index, size, allow_urls=False)
job = Job(folder, listing, folder, counted.pictures, counted.pictures // size)
done = (Done(shard, len(names_of_shard(listing, index, shard)), 0, earlier=False) for shard in range(job.shards))
print(watch(job, done, lambda *_: None).pictures, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_million_names_take_no_memory(tmp_path):
    """Listed in disorder, sorted, indexed, shared out and added up; as one list of texts they would take 95 MB."""
    called = [sys.executable, "-c", MILLION, str(tmp_path)]
    pictures, kibibytes = map(int, subprocess.run(called, check=True, capture_output=True, text=True).stdout.split())
    assert pictures == 1_000_000
    assert (tmp_path / "names.txt").stat().st_size == 47_000_000
    assert kibibytes < 40_000
