"""Data sets of strangers: what they name is not opened, ids stay whole, and each fault is one sentence."""

import io
import os
import socket
import zipfile
from collections.abc import Iterator
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from PIL import Image

from legenda.data.hub import HubData
from legenda.errors import DataError, LegendaError

datasets = pytest.importorskip("datasets", reason="needs the extra hub")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
ROWS = 8


def picture(number: int) -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (4, 4), (20 * number, 0, 0)).save(content, "PNG")
    return content.getvalue()


def parquet(path: Path, **columns) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = {"image": [picture(n) for n in range(ROWS)], "caption": [f"a dog number {n}" for n in range(ROWS)]}
    pq.write_table(pa.table({**rows, "split": ["train"] * 6 + ["val"] * 2, **columns}), path)
    return path


def paths(*values: str | None):
    """Return a column of images: eight encoded ones, the first of them replaced by paths."""
    rows: list[dict] = [{"bytes": None, "path": value} for value in values]
    rows += [{"bytes": picture(n), "path": None} for n in range(len(values), ROWS)]
    return pa.array(rows, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def data(files: Path, **changes) -> HubData:
    values = {"files": files, "split_column": "split", "backbone": "pixels:4", "min_count": 1, "window": 3}
    return HubData(**{**values, **changes})


def reds(data: HubData) -> dict[str, int]:
    """Return the red of the image of each id, as features have it."""
    module, values = data.open(lambda _: None), dict[str, int]()
    for split in (module.train, module.validation):
        features = split.read(np.arange(len(split))).features
        values |= {name: round(red * 255) for name, red in zip(split.ids, features[:, 0, 0].tolist(), strict=True)}
    return values


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """Serve one image under every address, and count the requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(picture(7))

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *_) -> None:
            pass

    requests: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.requests = requests
        Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield http
        http.shutdown()


IDS = {
    "versions": [f"v1.{n}" for n in range(ROWS)],
    "floats": [n / 8 for n in range(ROWS)],
    "addresses": [f"http://x/img?id={n}" for n in range(ROWS)],
    "suffixes": [f"{n // 2}.{'png' if n % 2 else 'jpg'}" for n in range(ROWS)],
    "some suffixes": [f"{n // 2}{'.png' if n % 2 else ''}" for n in range(ROWS)],
    "folders": [f"{'ab'[n % 2]}/{n // 2}.png" for n in range(ROWS)],
    "fragments": [f"a#{n}" for n in range(ROWS)],
    "dates": [date(2020, 1, 1 + n) for n in range(ROWS)],
    "other rows": [f"train-{n:09d}.png" for n in reversed(range(ROWS))],
    "spaces": ["a" + " " * n for n in range(ROWS)],
    "dots": ["." * (n + 1) for n in range(ROWS)],
    "case": ["aA"[n % 2] * (n // 2 + 1) for n in range(ROWS)],
}


@pytest.mark.parametrize("kind", IDS)
def test_ids_are_whole(kind, own_folder):
    files = parquet(own_folder / "a.parquet", id=IDS[kind])
    assert reds(data(files, id_column="id")) == {str(name): 20 * n for n, name in enumerate(IDS[kind])}


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (["v1"] * 2 + list("abcdef"), "train-000000000' .* 'train/train-000000001' .* share the id 'v1'"),
        (["a", None, *"bcdefg"], "row 1 of train .* has no id in id"),
        (["a", "", *"bcdefg"], "row 1 of train .* has no id in id"),
        ([1.0, float("nan"), *range(2, ROWS)], "row 1 of train .* has no id in id"),
        ([[n] for n in range(ROWS)], "has a list in id"),
        ([{"a": n} for n in range(ROWS)], "has a dict in id"),
        ([f"train-{n:09d}" for n in reversed(range(ROWS))], "the name of another row"),
    ],
)
def test_ids_that_cannot_be_told_apart_are_refused(ids, message, own_folder):
    files = parquet(own_folder / "a.parquet", id=pa.array(ids))
    with pytest.raises(DataError, match=message):
        data(files, id_column="id").read_images()


def test_a_store_belongs_to_its_data(own_folder):
    one, two = (parquet(own_folder / name / "a.parquet") for name in ("one", "two"))
    parquet(two, image=[picture(n) for n in reversed(range(ROWS))])
    first = reds(data(one))
    assert list(first.values()) == [20 * n for n in range(ROWS)]
    assert list(reds(data(two)).values()) == [20 * n for n in reversed(range(ROWS))]
    assert list(reds(data(two.parent / "*.parquet")).values()) == [20 * n for n in reversed(range(ROWS))]
    parquet(one, image=[picture(n // 2) for n in range(ROWS)])  # rewritten under its name
    assert list(reds(data(one)).values()) == [20 * (n // 2) for n in range(ROWS)]
    named = own_folder / "mine.safetensors"
    reds(data(one, features=named))
    with pytest.raises(DataError, match=r"mine\.safetensors"):
        reds(data(two, features=named))


def outside(folder: Path) -> dict[str, str]:
    """Return paths and addresses that are not of the data set, by kind."""
    (folder / "outside.png").write_bytes(picture(7))
    os.mkfifo(folder / "data/fifo")
    (folder / "data/link.png").symlink_to(folder / "outside.png")
    (folder / "data/zero.png").symlink_to("/dev/zero")
    (folder / "data/up").symlink_to(folder)
    with zipfile.ZipFile(folder / "outside.zip", "w") as archive:
        archive.writestr("a.png", picture(7))
    return {
        "absolute": f"{folder}/outside.png",
        "file": f"file://{folder}/outside.png",
        "file inside": f"file://{folder}/data/inside.png",
        "up": "../outside.png",
        "up inside": f"{folder}/data/../outside.png",
        "device": "/dev/zero",
        "pipe": f"{folder}/data/fifo",
        "own pipe": "fifo",
        "link": "link.png",
        "linked device": "zero.png",
        "linked folder": "up/outside.png",
        "archive": f"zip://a.png::{folder}/outside.zip",
        "cached file": f"simplecache::file://{folder}/outside.png",
        "local": f"local://{folder}/outside.png",
        "memory": "memory://a.png",
        "data": "data:image/png;base64,iVBORw0KGgo=",
        "folder": ".",
        "nothing": "",
        "absent": "nowhere.png",
        "zero byte": "a\0b.png",
        "home": "~/outside.png",
        "process": "/proc/self/environ",
    }


def test_paths_of_a_data_set_stay_in_it(own_folder, caplog):
    (own_folder / "data").mkdir()
    (own_folder / "data/inside.png").write_bytes(picture(3))
    with zipfile.ZipFile(own_folder / "data/inside.zip", "w") as archive:
        archive.writestr("a.png", picture(4))
    inside = ["inside.png", f"{own_folder}/data/inside.png", f"zip://a.png::{own_folder}/data/inside.zip"]
    files = parquet(own_folder / "data/a.parquet", image=paths(*inside))
    assert list(reds(data(files)).values())[:3] == [60, 60, 80]
    named = outside(own_folder)
    images, count = paths(*named.values(), None), len(named) + 1
    rows = {"image": images, "caption": ["a dog"] * count, "split": ["train"] * count}
    pq.write_table(pa.table(rows), own_folder / "data/a.parquet")
    with pytest.raises(DataError, match="23"):
        reds(data(files))
    rows["image"] = pa.concat_arrays([images[:-1], paths("inside.png")[:1]])
    pq.write_table(pa.table(rows), own_folder / "data/a.parquet")
    assert [image.id for image in data(files).read_images()] == [f"train-{len(named):09d}"]
    assert all(f"-{n:09d} of" in caplog.text for n in range(len(named)))


@pytest.mark.parametrize("scheme", ["http://", "HTTP://", "simplecache::http://", "zip://a.png::http://", "//"])
def test_addresses_are_fetched_with_permission_only(own_folder, server, scheme):
    address = f"{scheme}127.0.0.1:{server.server_port}/a.png"
    files = parquet(own_folder / "data/a.parquet", image=paths(address))
    assert "train-000000000" not in reds(data(files))
    assert not server.requests
    allowed = reds(data(files, features=Path("b.safetensors")).with_urls())
    if "::" in scheme or scheme == "//":
        assert not server.requests
    else:
        assert allowed["train-000000000"] == 140


CARD = "---\nconfigs:\n- config_name: default\n  data_files: {}\n---\n# Mine\n"


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "value",
    [
        "http://127.0.0.1:{}/data.parquet",
        "simplecache::http://127.0.0.1:{}/data.parquet",
        "[{{split: train, path: ['a.parquet', 'http://127.0.0.1:{}/data.parquet']}}]",
        "../a.parquet",
        "/etc/*",
        "~/a.parquet",
        "zip://*::http://127.0.0.1:{}/data.zip",
    ],
)
def test_a_card_names_files_of_its_data_set_only(own_folder, server, card, value):
    parquet(own_folder / "stranger/a.parquet")
    text = CARD.format(value.format(server.server_port))
    (own_folder / "stranger" / card).write_text(text if card == "README.md" else text.split("---\n")[1])
    for source in ({"name": "stranger", "files": None}, {"files": own_folder / "stranger"}):
        with pytest.raises(DataError, match="stranger"):
            data(**{"files": None, **source}).read_images()
    assert not server.requests


def test_a_card_may_name_its_own_files(own_folder):
    parquet(own_folder / "mine/parts/a.parquet")
    (own_folder / "mine/parts/b.txt").write_text("x")
    (own_folder / "mine/README.md").write_text(CARD.format("parts/*.parquet"))
    assert len(data(own_folder / "mine", train_backbone=True).read_images()) == ROWS


@pytest.mark.parametrize("entry", ["link", "folder link", "pipe", "device", "card pipe", "card device", "hops"])
def test_a_folder_holds_files_of_its_own_only(own_folder, entry):
    folder = parquet(own_folder / "stranger/a.parquet").parent
    (own_folder / "b.parquet").write_bytes((folder / "a.parquet").read_bytes())
    if entry == "link":
        (folder / "b.parquet").symlink_to(own_folder / "b.parquet")
    elif entry == "folder link":
        (folder / "root").symlink_to("/")
    elif entry == "pipe":
        os.mkfifo(folder / "b.parquet")
    elif entry == "device":
        (folder / "b.parquet").symlink_to("/dev/zero")
    elif entry == "card pipe":
        os.mkfifo(folder / ".huggingface.yaml")
    elif entry == "card device":
        (folder / "README.md").symlink_to("/dev/zero")
    else:
        (folder / "a::http:b.parquet").write_bytes(b"x")
    with pytest.raises(DataError):
        data(folder).read_images()


def damaged(file: Path, at: slice, content: bytes) -> None:
    old = bytearray(file.read_bytes())
    old[at] = content
    file.write_bytes(old)


def twice(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(pa.Table.from_arrays([*table.columns, table["split"]], [*table.column_names, "split"]), file)


def test_faults_of_tables_are_one_sentence_with_the_file(own_folder):
    faults = {
        "zero rows": lambda file: pq.write_table(pq.read_table(file).slice(0, 0), file),
        "truncated": lambda file: file.write_bytes(file.read_bytes()[:-200]),
        "zeros": lambda file: damaged(file, slice(4, 300), bytes(296)),
        "footer": lambda file: damaged(file, slice(-60, -20), b"\xff" * 40),
        "text": lambda file: file.write_text("no parquet"),
        "empty": lambda file: file.write_bytes(b""),
        "twice": twice,
        "other columns": lambda file: pq.write_table(pa.table({"x": [1]}), file),
        "other types": lambda file: parquet(file, caption=list(range(ROWS)), image=list(range(ROWS))),
    }
    for kind, damage in faults.items():
        parquet(own_folder / "data/a.parquet")
        damage(parquet(own_folder / "data/b.parquet"))
        for files, known in (("data/b.parquet", "b.parquet"), ("data/*.parquet", "parquet")):
            with pytest.raises(LegendaError, match=known) as error:
                reds(data(Path(files)))
            assert "\n" not in str(error.value), kind


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("said.raw.more", [[{"raw": "a dog"}, None]] * ROWS, "row 0 of train .* has no field 'raw'"),
        ("said.raw.more", [[{"raw": "a dog"}]] * ROWS, "has no field 'more'"),
        ("said.rwa", [[{"raw": "a dog"}]] * ROWS, "did you mean raw?"),
        ("said.raw", [{"raw": n} for n in range(ROWS)], "has no text in said.raw"),
        ("said", [["a dog", None]] * ROWS, "has no text in said"),
        ("siad", ["a dog"] * ROWS, "no column 'siad'; did you mean said?"),
    ],
)
def test_fields_of_captions_are_named(column, values, message, own_folder):
    files = parquet(own_folder / "a.parquet", said=pa.array(values))
    with pytest.raises(DataError, match=message):
        data(files, caption_column=column).read_images()


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        (["train"] * 7 + [None], "row 7 of train .* has the split None"),
        (["train"] * 7 + ["dve"], "has the split 'dve'"),
    ],
)
def test_a_row_without_a_known_split_is_named(splits, message, own_folder):
    with pytest.raises(DataError, match=message):
        data(parquet(own_folder / "a.parquet", split=splits)).read_images()


def typed(file: Path, rows: dict, **features) -> Path:
    """Write a table as the library does, with its own types of columns."""
    features = {"image": datasets.Image(), "caption": datasets.Value("string"), **features}
    count = len(rows["caption"])
    rows = {"image": [{"bytes": picture(n), "path": None} for n in range(count)], **rows}
    datasets.Dataset.from_dict(rows, features=datasets.Features(**features)).to_parquet(file)
    return file


def test_splits_may_be_classes_or_of_other_names(own_folder):
    rows = {"caption": ["a dog"] * 4, "split": [1, 1, 0, 1]}
    file = typed(own_folder / "a.parquet", rows, split=datasets.ClassLabel(names=["validation", "train"]))
    images = data(file, train_backbone=True).read_images()
    assert [image.split for image in images] == ["train", "train", "val", "train"]


def test_a_row_without_a_class_is_in_no_split(own_folder):
    """The library writes -1 for a class that is not known, which is no index from the end."""
    rows = {"caption": ["a dog"] * 3, "split": [1, 0, -1]}
    file = typed(own_folder / "a.parquet", rows, split=datasets.ClassLabel(names=["validation", "train"]))
    with pytest.raises(DataError, match=r"row 2 .* -1 in split"):
        data(file, train_backbone=True).read_images()


def test_columns_of_text_are_never_opened(own_folder):
    """A column of captions may say that it holds images, which the library would open."""
    rows = {"caption": [{"bytes": None, "path": "/dev/zero"}], "split": ["train"]}
    file = typed(own_folder / "a.parquet", rows, caption=datasets.Image(), split=datasets.Value("string"))
    with pytest.raises(DataError, match="caption"):
        data(file).read_images()


@pytest.mark.parametrize(
    "table",
    [
        "file_name,caption\n0.png,a dog\nnowhere.png,a cat\n",
        "file_name,caption\n0.png,a dog\n../../outside.png,a cat\n",
        "file_name,caption\n0.png,a dog\n/etc/passwd,a cat\n",
        "file,caption\n0.png,a dog\n",
        "",
        '{"file_name": "0.png"',
    ],
)
def test_a_folder_of_images_with_metadata(own_folder, table):
    folder = own_folder / "stranger"
    folder.mkdir()
    (own_folder / "outside.png").write_bytes(picture(7))
    for n in range(2):
        (folder / f"{n}.png").write_bytes(picture(n))
    (folder / "metadata.csv").write_text(table)
    try:
        values = reds(data(folder, split_column=None))
    except DataError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either end is right
    else:
        assert 140 not in values.values()


@pytest.mark.usefixtures("own_folder")
def test_a_socket_is_no_file():
    with socket.socket(socket.AF_UNIX) as own:
        own.bind("a.parquet")
        with pytest.raises(DataError, match=r"a\.parquet"):
            data(Path("a.parquet")).read_images()
