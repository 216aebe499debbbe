"""Data sets of strangers, tables with slips, and images of many pixels: what people download and type."""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from mutations import VALUES, mutate_bytes, mutate_value
from subjects import SHORT, TINY, Subject, call, sentence, write_files

ROWS = 8
_HUB = "data.kind=hf data.backbone=pixels:4 data.features={0}/f.safetensors data.min_count=1"
_TRAIN = f"train flickr8k.transformer --stages first {SHORT} {TINY} {_HUB} --out {{0}}/run"
_CARD = {"configs": [{"config_name": "default", "data_files": [{"split": "train", "path": "*.parquet"}]}]}


def picture(number: int) -> bytes:
    """Return a small image as PNG."""
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (4, 4), (20 * number, 0, 0)).save(data, "PNG")
    return data.getvalue()


def columns() -> dict[str, Any]:
    """Return the columns of a data set."""
    return {
        "image": [{"bytes": picture(n), "path": None} for n in range(ROWS)],
        "caption": [sentence(n) for n in range(ROWS)],
        "id": [f"v{n}.0" for n in range(ROWS)],
        "split": ["train"] * 6 + ["val"] * 2,
    }


def write_parquet(path: Path, values: dict[str, Any]) -> None:
    """Write columns by name; several of one name are those of a list."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = [pa.array(column) for column in values.values()]
    pq.write_table(pa.Table.from_arrays(arrays, [name.strip("+") for name in values]), path)


def hub_data(root: Path) -> list[Subject]:
    """Return data sets of parquet files, and folders with a card and with images."""
    options = "data.split_column=split data.id_column=id"
    for name in ("parquet", "columns"):
        for part in range(2):
            write_parquet(root / name / f"{part}.parquet", columns() | {"id": [f"{part}.{n}" for n in range(ROWS)]})
    write_parquet(root / "card" / "d" / "a.parquet", columns())
    write_files(root / "card" / "d", {"README.md": f"---\n{json.dumps(_CARD)}\n---\n# Mine\n"})
    images = root / "images" / "d"
    images.mkdir(parents=True)
    for n in range(ROWS):
        (images / f"{n}.png").write_bytes(picture(n))
    rows = [f"{n}.png,{sentence(n)},{'train' if n < 6 else 'val'}" for n in range(ROWS)]
    write_files(images, {"metadata.csv": "\n".join(["file_name,caption,split", *rows])})
    train = {
        "parquet": f"{_TRAIN} data.files={{0}}/*.parquet {options}",
        "columns": f"{_TRAIN} data.files={{0}}/*.parquet {options}",
        "card": f"{_TRAIN} data.files={{0}}/d {options}",
        "images": f"{_TRAIN} data.files={{0}}/d data.split_column=split",
    }
    damage: dict[str, Callable[[Path, Random], str] | None] = {
        "parquet": damage_parquet,
        "columns": damage_columns,
        "card": damage_card,
        "images": damage_folder,
    }
    return [Subject(f"hub.{name}", root / name, ("*",), (train[name],), damage=damage[name]) for name in train]


def damage_parquet(folder: Path, random: Random) -> str:
    """Damage the bytes of a parquet file, often those of its footer."""
    path = folder / f"{random.randrange(2)}.parquet"
    data = path.read_bytes()
    start = random.choice((0, len(data) - min(len(data), random.choice((8, 300, 1500)))))
    changed, what = mutate_bytes(data[start:], random)
    path.write_bytes(data[:start] + changed)
    return f"{path.name} after {start}: {what}"


def hostile_paths(folder: Path) -> list[Any]:
    """Return paths and addresses outside of a data set, and values that are none; write what they name."""
    (folder.parent / "outside.png").write_bytes(picture(7))
    os.mkfifo(folder / "pipe")
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    (folder / "zero.png").symlink_to("/dev/zero")
    outside = folder.parent / "outside.png"
    local = "127.0.0.1:9/a.png"
    return [
        "/dev/zero", "/dev/stdin", "/proc/self/environ", str(outside), f"file://{outside}", "../outside.png", "pipe",
        f"{folder}/pipe", "link.png", "zero.png", f"http://{local}", f"HTTPS://{local}", f"simplecache::http://{local}",
        f"zip://a::{outside}", f"zip://a::http://{local}", "s3://bucket/a.png", "memory://a", "data:,x", "~/.bashrc",
        ".", "", "\0", "a" * 5000, "hf://datasets/a/b/c.png", "::", "://", f"ftp://{local}",
    ]  # fmt: skip


def damage_columns(folder: Path, random: Random) -> str:
    """Write other values into some columns, other types, repeated or missing columns, or no rows."""
    values, path = columns(), folder / f"{random.randrange(2)}.parquet"
    name = random.choice([*values, "image", "image"])
    count = len(values["caption"])
    kind = random.randrange(8)
    if kind == 0:
        values = {key: column[: random.choice((0, 0, 1))] for key, column in values.items()}
    elif kind == 1:
        values[f"{name}+"] = values[name]
    elif kind == 2:
        del values[name]
    elif kind == 3:
        values[name] = [random.choice(VALUES)] * count
    elif kind == 4:
        values[name] = [{"raw": value, "more": [None, value]} for value in values[name]]
    elif kind == 5:
        values[name] = [None if random.random() < 0.3 else value for value in values[name]]
    elif kind == 6:
        values[name] = [random.choice((b"x", 1.5, "1", None, True, [1], {"a": 1}))] * count
    else:
        hostile = random.choices(hostile_paths(folder), k=3)
        values["image"][:3] = [{"bytes": None, "path": path} for path in hostile]
        name = f"image: {hostile}"
    try:
        write_parquet(path, values)
    except Exception as error:  # what the library writes is valid
        write_parquet(path, columns())
        return f"nothing ({error})"
    return f"{path.name}: kind {kind} of {name}"


def damage_card(folder: Path, random: Random) -> str:
    """Change the card of a data set, or what lies beside it."""
    card = folder / "d" / random.choice(("README.md", ".huggingface.yaml"))
    names = ["http://127.0.0.1:9/a.parquet", "../*.parquet", "/etc/*", "~/*", "*.parquet", "**", "zip://*::a.zip", ""]
    match random.randrange(4):
        case 0:
            changed, what = mutate_value(_CARD, random)
            text = json.dumps(changed, default=str)
        case 1:
            entry = {"config_name": "default", random.choice(("data_files", "data_dir")): random.choice(names)}
            text, what = json.dumps({"configs": [entry]}), str(entry)
        case 2:
            text, what = mutate_bytes(json.dumps(_CARD).encode(), random)[0].decode(errors="replace"), "bytes"
        case _:
            text, what = json.dumps(_CARD), random.choice(("pipe", "link", "zero", "hops", "folder"))
            beside = folder / "d" / "b.parquet"
            if what == "pipe":
                os.mkfifo(beside)
            elif what == "hops":
                (folder / "d" / "a::b.parquet").write_bytes(b"x")
            else:
                beside.symlink_to({"link": "/etc/passwd", "zero": "/dev/zero", "folder": "/"}[what])
    card.write_text(f"---\n{text}\n---\n" if card.suffix == ".md" else text, errors="replace")
    return f"{card.name}: {what}"


def damage_folder(folder: Path, random: Random) -> str:
    """Change the table of a folder of images."""
    path = folder / "d" / "metadata.csv"
    lines = path.read_text().split("\n")
    at = random.randrange(len(lines))
    name = random.choice(("nowhere.png", "../../outside.png", "/dev/zero", "http://127.0.0.1:9/a.png", "", "pipe"))
    match random.randrange(4):
        case 0:
            lines[at] = f"{name},{sentence(at)},train"
        case 1:
            data, what = mutate_bytes(path.read_bytes(), random)
            path.write_bytes(data)
            return what
        case 2:
            lines[0] = random.choice(("file_name,caption", "file,caption,split", "file_name,file_name,split", ""))
        case _:
            lines[at] = slip(lines[at], random)
    path.write_text("\n".join(lines), errors="replace")
    return f"line {at}: {lines[at][:80]!r}"


def slip(line: str, random: Random) -> str:
    """Return a row of a table with what people mistype."""
    values = line.split(",")
    at = random.randrange(len(values))
    values[at] = random.choice(
        (
            f'"{values[at]}', f'{values[at]}"', f'"{values[at]}"', f'"{values[at]}""', f' "{values[at]}"', '"', '""',
            "", f'"{values[at]}\n', f"{values[at]},",
            f"'{values[at]}'", f'a "{values[at]}', f"{values[at]}\r", "\u201c",
        )
    )  # fmt: skip
    return random.choice((",", ",", ",", ";", ",,", "\t")).join(values)


def tables(root: Path) -> list[Subject]:
    """Return tables of captions that are scored and trained on, with slips; no row may be lost."""
    from subjects import regions, write_packed

    rows = [f"{n}.jpg,{sentence(n)},{'train' if n < 8 else 'val'}" for n in range(12)]
    folder = root / "slips"
    write_files(folder, {"c.csv": "\n".join(["file,caption,split", *rows]) + "\n"})
    write_files(folder, {"p.json": json.dumps({str(n): sentence(n) for n in range(12)})})
    write_packed(folder / "f.safetensors", regions(12))
    score = "score {0}/p.json {0}/c.csv --metrics fast --resamples 10 --out {0}/s.json"
    train = (
        f"train flickr8k.transformer --stages first {SHORT} {TINY} data.annotations={{0}}/c.csv "
        "data.features={0}/f.safetensors data.min_count=1 --out {0}/run"
    )

    def damage(folder: Path, random: Random) -> str:
        lines = (folder / "c.csv").read_text().split("\n")
        for _ in range(random.choice((1, 1, 2, 3))):
            at = random.randrange(len(lines) - 1)
            lines[at] = slip(lines[at], random)
        (folder / "c.csv").write_text("\n".join(lines))
        return repr("\n".join(lines))[:500]

    return [Subject("tables.slips", folder, ("c.csv",), (score, train), damage=damage)]


def sized(root: Path) -> list[Subject]:
    """Return images of up to a hundred megapixels in few bytes, judged by the memory that they take."""
    from model_subjects import draw_images

    folder = root / "sized"
    call(f"train scenes.ngsan --out {folder}/run {TINY} model.geometry_dim=4 {SHORT} data.train=12 data.validation=3")
    draw_images(folder, ("png",))

    def damage(folder: Path, random: Random) -> str:
        from PIL import Image

        pixels = random.choice((9, 20, 41, 60)) << 20
        width = random.choice((1, 3, 50, 1000, math.isqrt(pixels), 30_000))
        height = max(1, min(pixels // width, random.choice((65_535, 10**6, 5 * 10**7))))
        kind = random.choice(("png", "png", "png", "bmp", "gif", "tif", "jpg", "webp"))
        path = folder / "a.png"
        if kind == "png":
            depth, color, channels = random.choice(((8, 2, 3), (8, 6, 4), (16, 0, 1), (8, 4, 2), (1, 0, 1), (8, 3, 1)))
            row = bytes(1 + -(-width * channels * depth // 8))
            packer = zlib.compressobj(1)
            rows = max(1, (1 << 20) // len(row))
            data = b"".join(packer.compress(row * min(rows, height - top)) for top in range(0, height, rows))
            header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
            chunks = [(b"IHDR", header), (b"PLTE", bytes(768)), (b"IDAT", data + packer.flush()), (b"IEND", b"")]
            framed = (
                struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
                for name, content in chunks
                if name != b"PLTE" or color == 3
            )
            path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(framed))
            return f"{width} x {height} {kind} {depth} {color}"
        limit = {"jpg": 65_000, "webp": 16_000, "gif": 65_535}.get(kind, 10**6)
        size = min(width, limit), min(height, limit, 10**6)
        name = {"jpg": "JPEG", "tif": "TIFF"}.get(kind, kind.upper())
        options: dict[str, Any] = {"webp": {"lossless": True, "quality": 0, "method": 0}, "jpg": {"progressive": True}}
        mode = random.choice(("RGB", "L")) if kind in ("bmp", "jpg") else random.choice(("RGB", "RGBA", "L"))
        Image.new(mode, size).save(path, name, **options.get(kind, {}))
        return f"{size} {kind} {mode}"

    return [Subject("memory.images", folder, ("a.png",), ("caption {0}/a.png --model {0}/run",), damage=damage)]
