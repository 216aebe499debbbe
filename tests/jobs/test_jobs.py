"""Laws of jobs in this process: resumed = uninterrupted, one file = its shards; images that fail; refused folders."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file

from command_results import everything_in
from legenda.cli.caption import fingerprint
from legenda.data.captions import ScenesData
from legenda.errors import ConfigError, DataError, LegendaError
from legenda.extractors import Extractor, extract_store
from legenda.features import open_features
from legenda.features.extraction import FeatureTask, extract_shards
from legenda.images import shards
from legenda.images.extractor import ExtractorIdentity
from legenda.jobs import Job, open_job, run_job
from legenda.models.weights import save_weights
from legenda.run_folder import WEIGHTS

SHARD_SIZE, BATCH_SIZE = 4, 3
COLORS = ExtractorIdentity(name="colors")


class Killed(KeyboardInterrupt):
    """Ends a worker without cleanup, as far as one process can simulate it."""


FORGET = shards._AttemptLog.forget


@pytest.fixture(autouse=True)
def no_cleanup(monkeypatch):
    """A worker that is killed does not forget its attempt, as one that is interrupted does."""
    monkeypatch.setattr(shards._AttemptLog, "forget", lambda _: None)


class Colors:
    """Mean colors of an image and of its left half.

    kills: numbers of calls that end the worker; deadly: whether black images end it.
    """

    def __init__(self, kills: tuple[int, ...] = (), *, deadly: bool = False) -> None:
        self.kills, self.deadly = kills, deadly
        self.calls: list[int] = []

    def __call__(self, images: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
        self.calls.append(len(images))
        if len(self.calls) in self.kills or (self.deadly and any(not image.getbbox() for image in images)):
            raise Killed
        regions = []
        for image in images:
            pixels = np.asarray(image, np.float32)
            means = np.stack([pixels.mean((0, 1)), pixels[:, : pixels.shape[1] // 2].sum((0, 1))])
            # the size of the batch shows, as it does in the last digits of a network's features
            means = means[: 1 + image.height % 2] * (1e4 if image.width == 1 else 1) + len(images)
            regions.append((means, np.array([[0, 0, 1, 1], [0, 0, 0.5, 1]], np.float32)[: len(means)]))
        return regions


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """Ten images of three sizes, one of them black, one damaged and one whose features are too large."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(10):
        pixels = np.random.default_rng(number).integers(1, 256, (4 + number % 3, 6, 3), np.uint8)
        Image.fromarray(pixels * (number != 5)).save(folder / f"{number}.png")
    (folder / "7.png").write_text("no image")
    Image.new("RGB", (1, 1), "white").save(folder / "8.png")
    return folder


def start(out: Path, *sources: Path | str, allow_urls: bool = False, **options: Any) -> Job:
    names = [str(source) for source in sources]
    return open_job(out, options, kind="features", shard_size=SHARD_SIZE, sources=names, allow_urls=allow_urls)


def run(job: Job, colors: Callable[..., Any] | None = None) -> Any:
    return run_job(job, lambda _: FeatureTask(Extractor("colors", colors or Colors()), COLORS, None, BATCH_SIZE))


def all_lines(job: Job) -> list[dict[str, Any]]:
    return [line for number in range(job.shards) for line in job.lines(number)]


@pytest.fixture(scope="module")
def expected(images, tmp_path_factory) -> dict[str, bytes]:
    """The files of an uninterrupted job."""
    out = tmp_path_factory.mktemp("uninterrupted")
    run(start(out, images))
    return everything_in(out)


def test_each_image_is_in_one_shard_with_its_features_or_its_error(images, tmp_path):
    stats = run(start(tmp_path / "out", images))
    assert (stats.shards, stats.images, stats.failed, stats.cached) == (3, 10, 2, 0)
    lines = all_lines(start(tmp_path / "out", images))
    assert [line["image"] for line in lines] == [str(images / f"{number}.png") for number in range(10)]
    errors = {Path(line["image"]).name: line["error"] for line in lines if "error" in line}
    assert "7.png is not an image of a known type" in errors.pop("7.png")
    assert "the limit is 65504" in errors.pop("8.png")
    assert errors == {}
    store = open_features(tmp_path / "out")
    assert store.ids == tuple("01234569")
    alone = Colors()([Image.open(images / "9.png")])[0]
    np.testing.assert_allclose(store.read(["9"]).features[0], alone[0], rtol=0.05)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 12), max_size=5))
def test_a_job_that_is_killed_at_any_call_equals_an_uninterrupted_one(images, expected, tmp_path_factory, kills):
    """Six kills at one image, two in each of the ways to process it, would count it as deadly."""
    out = tmp_path_factory.mktemp("out")
    for kill in kills:
        try:
            run(start(out, images), Colors((kill,)))
        except Killed:
            continue
    run(start(out, images))
    assert everything_in(out) == expected


def test_complete_shards_are_not_repeated(images, tmp_path):
    with pytest.raises(Killed):
        run(start(tmp_path, images), Colors((4,)))
    with pytest.raises(DataError, match="1 of 3 shards"):
        open_features(tmp_path)
    first = (tmp_path / "features-00000000.jsonl").stat().st_mtime_ns
    colors = Colors()
    assert run(start(tmp_path, images), colors).cached == SHARD_SIZE
    assert sum(colors.calls) == 5  # the damaged one is not read
    assert (tmp_path / "features-00000000.jsonl").stat().st_mtime_ns == first
    assert run(start(tmp_path, images), Colors((1,))).cached == 10


def test_an_image_that_kills_its_workers_becomes_an_error(images, expected, tmp_path):
    for _ in range(6):  # two of the shard, two of the batch, two of the image
        with pytest.raises(Killed):
            run(start(tmp_path, images), Colors(deadly=True))
    assert run(start(tmp_path, images), Colors(deadly=True)).failed == 3
    (line,) = [line for line in all_lines(start(tmp_path, images)) if "killed" in line.get("error", "")]
    name = str(images / "5.png")
    assert line == {"image": name, "error": f"{name} has killed its worker more than once; leave it out"}
    assert everything_in(tmp_path)["features-00000000.safetensors"] == expected["features-00000000.safetensors"]
    assert not list(tmp_path.glob(".*"))


def test_interrupts_are_blamed_on_no_image(images, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(shards._AttemptLog, "forget", FORGET)
    for _ in range(7):
        with pytest.raises(Killed):
            run(start(tmp_path, images), Colors(deadly=True))
    run(start(tmp_path, images))
    assert everything_in(tmp_path) == expected


def test_a_file_is_the_merge_of_its_shards_and_resumed(images, tmp_path):
    out, paths = tmp_path / "f.safetensors", sorted(images.iterdir())
    options = {"batch_size": BATCH_SIZE, "shard_size": SHARD_SIZE}
    with pytest.raises(Killed):
        extract_store(paths, Extractor("colors", Colors((4,))), out, **options)
    assert not out.exists()
    steps: list[tuple[int, int]] = []
    colors = Colors()
    report = extract_store(paths, Extractor("colors", colors), out, progress=lambda *s: steps.append(s), **options)
    assert (report.images, report.cached, sum(colors.calls)) == (8, 4, 5)
    assert [(Path(name).name, reason.count("\n")) for name, reason in report.skipped] == [("7.png", 0), ("8.png", 0)]
    assert (steps[0], steps[-1]) == ((4, 10), (10, 10))
    extract_store(paths, Extractor("colors", Colors()), tmp_path / "g.safetensors", **options)
    assert out.read_bytes() == (tmp_path / "g.safetensors").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.safetensors", "g.safetensors"]
    run(start(tmp_path / "shards", images))
    single, sharded = open_features(out), open_features(tmp_path / "shards")
    assert (single.ids, single.extractor) == (sharded.ids, sharded.extractor)
    for attribute in ("features", "boxes", "mask"):
        first, second = (getattr(store.read(store.ids), attribute) for store in (single, sharded))
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("name", ["f.hdf5", "f.npz", "f.tsv"])
def test_a_name_that_is_read_as_another_format_is_refused(images, tmp_path, name):
    """Features of hours are not written to a file that cannot be opened again."""
    with pytest.raises(ConfigError):
        extract_store(sorted(images.iterdir()), Extractor("colors", Colors()), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_file_of_changed_images_or_another_extractor_is_not_resumed(images, tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for path in paths:
        path.write_bytes((images / path.name).read_bytes())
    out = tmp_path / "f.safetensors"
    with pytest.raises(Killed):
        extract_store(paths, Extractor("colors", Colors((2,))), out, batch_size=1, shard_size=1)
    with pytest.raises(ConfigError, match=r"\.parts.*colors.*others"):
        extract_store(paths, Extractor("others", Colors()), out, batch_size=1, shard_size=1)
    Image.new("RGB", (9, 9), "red").save(paths[0])
    with pytest.raises(ConfigError, match=r"\.parts.*files"):
        extract_store(paths, Extractor("colors", Colors()), out, batch_size=1, shard_size=1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", "[]", r"manifest\.json .*; remove"),
        (
            "manifest.json",
            '{"kind": "features", "base": "", "images": true, "shard_size": 4}',
            r"manifest\.json\.images",
        ),
        ("features-00000000.jsonl", '{"image": "9.png", "regions": 1}\n' * 4, "holds other images than .*00000000"),
        ("features-00000000.safetensors", "x", r"00000000\.safetensors"),
    ],
)
def test_damaged_files_of_a_stopped_job_are_named(images, tmp_path, name, content, message):
    out, paths = tmp_path / "f.safetensors", sorted(images.iterdir())
    with pytest.raises(Killed):
        extract_store(paths, Extractor("colors", Colors((4,))), out, batch_size=BATCH_SIZE, shard_size=SHARD_SIZE)
    (tmp_path / ".f.safetensors.parts" / name).write_text(content)
    with pytest.raises(LegendaError, match=message):
        extract_store(paths, Extractor("colors", Colors()), out, batch_size=BATCH_SIZE, shard_size=SHARD_SIZE)
    assert not out.exists()


def test_images_of_one_id_and_other_settings_are_refused(images, tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "1.png").write_bytes((images / "0.png").read_bytes())
    both = [str(images), str(tmp_path / "below")]
    with pytest.raises(DataError, match=r"1\.png.*1\.png.*'1'"):
        extract_shards(both, COLORS, tmp_path / "out", run, shard_size=SHARD_SIZE)
    run(start(tmp_path / "out", images, extractor="a"))
    with pytest.raises(LegendaError, match="extractor"):
        start(tmp_path / "out", images, extractor="b")
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(ConfigError, match=r"manifest\.json"):
        start(tmp_path / "out", images, extractor="b")
    with pytest.raises(ConfigError, match=r"\d\.png"):
        start(images, images)


def test_a_listing_is_read_where_it_is_and_must_not_change(images, tmp_path, monkeypatch):
    monkeypatch.chdir(images)
    (tmp_path / "names.txt").write_text("9.png\n\n0.png\r\n9.png\n")
    job = start(tmp_path / "out", f"@{tmp_path / 'names.txt'}")
    assert (job.images, job.names(0)) == (3, ["9.png", "0.png", "9.png"])
    with pytest.raises(DataError, match="image"):
        run(job)
    (tmp_path / "out" / "features-00000000.jsonl").touch()
    (tmp_path / "names.txt").write_text("9.png\n")
    with pytest.raises(ConfigError, match="images 3"):
        start(tmp_path / "out", f"@{tmp_path / 'names.txt'}")


def test_the_weights_of_a_job_are_known_without_reading_their_tensors(make_run, tmp_path, monkeypatch):
    run = make_run("transformer", ScenesData(train=6, validation=3))
    for reader in ("legenda.models.weights._read", "hashlib.file_digest"):
        monkeypatch.setattr(reader, lambda *_: pytest.fail("the tensors were read"))
    first = fingerprint(run)
    shutil.copytree(run, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") == first
    weights = load_file(run / WEIGHTS)
    save_weights({name: value + 1 for name, value in weights.items()}, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") != first
