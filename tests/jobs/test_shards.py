"""Listings of any length, shards that are written once, and rejected input, with a captioner without a model."""

import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import ConfigError, DataError
from legenda.evaluation.caption_formats import ImageCaptions
from legenda.jobs.captions import CaptionTask
from legenda.jobs.job import Job, JobStats, ShardResult, collect_stats, fingerprint, open_job
from legenda.jobs.listing import index_listing, names_of_shard, write_sorted
from legenda.jobs.shards import process_shard

SETTINGS = {"model": "abc", "beam_size": 3}


class Killed(BaseException):
    """Ends a worker without cleanup, as far as one process can simulate it."""


@dataclass
class StubCaptioner:
    """Captions a file with its name; fails for names that start with "bad", and is killed at `deadly`."""

    captioned: list[str] = field(default_factory=list)
    deadly: str = ""

    def __call__(self, files: Sequence[tuple[str, Path]]) -> Iterator[ImageCaptions]:
        for name, path in files:
            if path.name == self.deadly:
                raise Killed
            if path.name.startswith("bad"):
                yield ImageCaptions(name, error=f"{name} is not an image")
            else:
                self.captioned.append(path.name)
                yield ImageCaptions(name, ((f"a {path.stem}", -1.5),))


@pytest.fixture
def start(tmp_path) -> Callable[..., Job]:
    def open_(*sources: str, shard_size: int = 4, allow_urls: bool = False, **settings: Any) -> Job:
        return open_job(tmp_path / "out", sources, SETTINGS | settings, shard_size=shard_size, allow_urls=allow_urls)

    return open_


@pytest.fixture
def images(tmp_path) -> Path:
    """Ten files in two folders, two of them damaged, and files that are not images."""
    folder = tmp_path / "images"
    (folder / "below").mkdir(parents=True)
    for number in range(8):
        (folder / ("below" if number % 2 else ".") / f"{number}.png").touch()
    for name in ("bad1.jpg", "below/bad2.jpg", "notes.txt", ".hidden.png"):
        (folder / name).touch()
    return folder


def caption_all(job: Job, captioner: StubCaptioner, shards: Sequence[int] | None = None) -> JobStats:
    order = range(job.shards) if shards is None else shards
    return collect_stats(
        job, (process_shard(job, shard, CaptionTask(captioner), 3) for shard in order), lambda *_: None
    )


def entries(job: Job) -> list[dict[str, Any]]:
    lines = (line for shard in range(job.shards) for line in job.shard(shard).read_text().splitlines())
    return [json.loads(line) for line in lines]


def test_each_image_of_a_folder_is_in_one_shard(start, images):
    job = start(str(images))
    assert (job.images, job.shards) == (10, 3)
    assert caption_all(job, StubCaptioner(), (2, 0, 1)) == JobStats(shards=3, images=10, failed=2, cached=0)
    expected = [str(path) for path in images.rglob("[!.]*") if path.suffix in (".png", ".jpg")]
    assert [entry["image"] for entry in entries(job)] == sorted(expected)
    for entry in entries(job):
        path = Path(entry["image"])
        if path.name.startswith("bad"):
            assert entry == {"image": str(path), "error": f"{path} is not an image"}
        else:
            assert entry["captions"] == [{"caption": f"a {path.stem}", "score": -1.5}]


def test_a_stopped_job_resumes_and_repeats_nothing(start, images):
    with pytest.raises(Killed):
        caption_all(start(str(images)), StubCaptioner(deadly="5.png"))
    job = start(str(images))
    complete = {path.name: path.stat().st_mtime_ns for path in job.folder.glob("captions-*")}
    assert 0 < len(complete) < job.shards
    captioner = StubCaptioner()
    assert caption_all(job, captioner).cached == 4 * len(complete)
    assert {name: (job.folder / name).stat().st_mtime_ns for name in complete} == complete
    assert len({entry["image"] for entry in entries(job)}) == len(entries(job)) == 10
    assert captioner.captioned == ["1.png", "3.png", "5.png", "7.png"]
    assert not list(job.folder.glob(".*"))


def test_an_image_that_kills_its_worker_repeatedly_gets_an_error(start, images):
    job, captioner = start(str(images), shard_size=10), StubCaptioner(deadly="5.png")
    for _ in range(4):
        with pytest.raises(Killed):
            process_shard(job, 0, CaptionTask(captioner), 3)
    assert process_shard(job, 0, CaptionTask(captioner), 3) == ShardResult(0, 10, 3, cached=False)
    (deadly,) = [entry for entry in entries(job) if entry["image"].endswith("5.png")]
    assert "has killed its worker" in deadly["error"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"beam_size": 5}, "beam_size 3, not 5"), ({"model": "x"}, "model abc"), ({"shard_size": 5}, "shard_size 4")],
)
def test_other_settings_are_rejected(start, images, changes, message):
    start(str(images))
    with pytest.raises(ConfigError, match=message):
        start(str(images), **changes)


def test_other_sources_are_rejected_and_new_images_ignored(start, images):
    start(str(images))
    (images / "new.png").touch()
    assert start(str(images)).images == 10
    with pytest.raises(ConfigError, match="name another folder"):
        start(str(images / "below"))


def test_a_user_listing_keeps_its_order_and_must_not_change(start, tmp_path):
    listing = tmp_path / "names.txt"
    listing.write_text("b.png\r\na.png\n\nb.png\nc d.png")
    job = start(f"@{listing}", shard_size=3)
    caption_all(job, StubCaptioner())
    assert [entry["image"] for entry in entries(job)] == ["b.png", "a.png", "b.png", "c d.png"]
    assert not (job.folder / "names.txt").exists()
    listing.write_text("b.png\na.png\nb.png\nother.png")
    before = (job.folder / "index.bin").read_bytes()
    with pytest.raises(ConfigError, match="holds captions made with sha256"):
        start(f"@{listing}", shard_size=3)
    assert (job.folder / "index.bin").read_bytes() == before
    with pytest.raises(ConfigError, match="must be the only source"):
        start(f"@{listing}", "a.png")


def test_the_standard_input_must_name_the_same_images(start, images, monkeypatch):
    for text in (f"{images}/0.png\n{images}/below\n", f"{images}/below\n\n{images}/0.png\n"):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        assert start("-").images == 6
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{images}/2.png\n"))
    with pytest.raises(ConfigError, match="images 6, not 1"):
        start("-")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    with pytest.raises(DataError, match="the standard input names no image"):
        start("-")


@pytest.mark.parametrize(("name", "message"), [("none.png", "does not exist"), ("empty", "holds no image")])
def test_a_source_without_images_is_named_and_nothing_is_written(start, tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=message):
        start(str(tmp_path / name))
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("pattern", ["{}", "{}*"])
def test_denied_access_is_reported_for_the_source(start, images, monkeypatch, pattern):
    is_file = Path.is_file

    def deny(path: Path) -> bool:
        if path.suffix == ".png":
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", deny)
    source = pattern.format(images / "0.png")
    with pytest.raises(DataError, match="Permission denied") as caught:
        start(source)
    assert str(caught.value).startswith(f"{source} cannot be listed (")


def test_stores_are_read_where_urls_are_allowed(start, images, tmp_path):
    url = images.as_uri()
    with pytest.raises(ConfigError, match="--allow-urls"):
        start(url)
    listing = tmp_path / "urls.txt"
    listing.write_text(f"{url}/0.png\n")
    with pytest.raises(ConfigError, match="--allow-urls"):
        start(f"@{listing}")
    (images / "0.png").write_bytes(b"content")
    job = start(url, allow_urls=True, shard_size=100)
    assert job.images == 10
    (images / "2.png").unlink()
    contents: list[bytes] = []

    def caption_files(files: Sequence[tuple[str, Path]]) -> Iterator[ImageCaptions]:
        for name, path in files:
            contents.append(path.read_bytes())
            yield ImageCaptions(name, (("a caption", 0.0),))

    result = process_shard(job, 0, CaptionTask(caption_files), 100)
    assert (result.images, result.failed) == (job.images, 1)
    assert b"content" in contents
    (missing,) = [entry for entry in entries(job) if "error" in entry]
    assert missing == {"image": f"{url}/2.png", "error": f"{url}/2.png does not exist; leave it out"}


def test_missing_shards_are_reported(start, images):
    with pytest.raises(DataError, match="4 of 10 images in 1 of 3 shards"):
        caption_all(start(str(images)), StubCaptioner(), [0])


def test_the_fingerprint_depends_on_the_files_of_the_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_text("weights")
    before = fingerprint(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("{}")
    assert fingerprint(tmp_path) == before
    (tmp_path / "model.safetensors").write_text("other")
    assert fingerprint(tmp_path) != before


@given(
    st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"), min_size=1)),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(2, 3),
)
def test_a_listing_holds_each_name_once_and_shards_partition_it(tmp_path_factory, names, size, sort_size, merge_size):
    folder = tmp_path_factory.mktemp("listing")
    listing, index = folder / "names.txt", folder / "index.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legenda.jobs.listing._SORT_SIZE", sort_size)
        patch.setattr("legenda.jobs.listing._MERGE_SIZE", merge_size)
        write_sorted(names, listing, folder)
    if not names:
        with pytest.raises(DataError, match="names no image"):
            index_listing(listing, index, size, allow_urls=True)
        return
    counts = index_listing(listing, index, size, allow_urls=True)
    shards = [names_of_shard(listing, index, shard) for shard in range(-(-counts.images // size))]
    assert all(len(shard) == size for shard in shards[:-1])
    assert sorted(name for shard in shards for name in shard) == sorted(set(names))
    assert sorted(path.name for path in folder.iterdir()) == ["index.bin", "names.txt"]


def test_a_name_with_a_line_break_cannot_be_listed(tmp_path):
    with pytest.raises(DataError, match="line break"):
        write_sorted(["a\nb.png"], tmp_path / "names.txt", tmp_path)


MILLION = """
import resource, sys
from pathlib import Path
from legenda.jobs.listing import index_listing, names_of_shard, write_sorted
from legenda.jobs.job import Job, ShardResult, collect_stats

folder, count, size = Path(sys.argv[1]), 1_000_000, 1_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
names = (f"photographs/of/the/great/archive/{number * 7 % count:09d}.jpg" for number in range(count))
listing, index = folder / "names.txt", folder / "index.bin"
write_sorted(names, listing, folder)
counts = index_listing(listing, index, size, allow_urls=False)
job = Job(folder, listing, folder, counts.images, counts.images // size)
sizes = (len(names_of_shard(listing, index, shard)) for shard in range(job.shards))
results = (ShardResult(shard, images, 0, cached=False) for shard, images in enumerate(sizes))
print(collect_stats(job, results, lambda *_: None).images, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_a_million_names(tmp_path):
    """Sorted, indexed, read by shard and counted; as one list of strings they would take 95 MB."""
    command = [sys.executable, "-c", MILLION, str(tmp_path)]
    images, kibibytes = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert images == 1_000_000
    assert (tmp_path / "names.txt").stat().st_size == 47_000_000
    assert kibibytes < 40_000
