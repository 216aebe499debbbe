"""Read hostile pickles through every command that reads pickles: each must be refused, or yield nothing but plain data.

    python tests/fuzz/pickles.py

Prints, for each command, how many were refused, how many were read, and the most memory that one added; exit code 1
where code of a pickle ran, a process died, a refusal is no sentence, or one added over 200 MiB.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

MAX_MIB = 200
PROTO, TRACE = b"\x80\x04", "ran-a-pickle"


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def _global(module: str, name: str) -> bytes:
    return _text(module) + _text(name) + b"\x93"


def _call(module: str, name: str, *arguments: bytes) -> bytes:
    return _global(module, name) + b"(" + b"".join(arguments) + b"tR"


def _tensor(count: bytes, shape: bytes, stride: bytes) -> bytes:
    """Return a tensor of a storage with `count` elements."""
    storage = b"(" + _text("storage") + b"ctorch\nFloatStorage\n" + _text("0") + _text("cpu") + count + b"tQ"
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + shape + stride + b"\x89}tR"


def hostile(folder: Path) -> dict[str, bytes]:
    """Return pickles by what they attempt; code that runs would create a file in `folder`."""
    trace = str(folder / TRACE)
    touch = _text(f"touch {trace}")
    opened = _text(trace) + _text("w")
    number = _text(f"open({trace!r}, 'w')")
    size = struct.Struct("<Q").pack
    dtype = b"cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R"
    huge = b"\x8a\x06" + (2**40).to_bytes(6, "little")
    laughs = b"]" + b"".join(b"q" + bytes([n]) + b"](" + (b"h" + bytes([n])) * 10 + b"e" for n in range(30))
    encode = b"c_codecs\nencode\nh\x00X\x06\x00\x00\x00latin1\x86R"
    rebuilt = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x01\x85"
    copies = b"q\x01(" + b"K\x01" * 20_000 + b"lq\x000](" + b"h\x01h\x00\x85\x81" * 300 + b"e"
    calls = {
        "REDUCE os.system": _call("os", "system", touch),
        "REDUCE posix.system": b"cposix\nsystem\n(" + touch + b"tR",
        "REDUCE eval": _call("builtins", "eval", number),
        "REDUCE exec": _call("builtins", "exec", number),
        "REDUCE open": _call("builtins", "open", opened),
        "REDUCE io.open": _call("io", "open", opened),
        "REDUCE __import__": _call("builtins", "__import__", _text("antigravity")),
        "REDUCE getattr": _call("builtins", "getattr", _global("os", "path"), _text("system")),
        "REDUCE subprocess": _call("subprocess", "Popen", b"(" + _text("touch") + _text(trace) + b"l"),
        "REDUCE partial": _call("functools", "partial", _global("os", "system"), touch),
        "REDUCE operator.attrgetter": _call("operator", "attrgetter", _text("system")),
        "REDUCE runpy": _call("runpy", "_run_code", number, b"}"),
        "REDUCE Path.touch": _global("pathlib", "Path.touch") + b"(" + _call("pathlib", "Path", _text(trace)) + b"tR",
        "INST": b"(" + touch + b"ios\nsystem\n",
        "OBJ": b"(" + _global("os", "system") + touch + b"o",
        "NEWOBJ": _global("os", "system") + b"(" + touch + b"t\x81",
        "NEWOBJ_EX": _global("subprocess", "Popen") + b"(" + _text("touch " + trace) + b"t}\x92",
        "BUILD on a class": _global("collections", "Counter") + b"}" + _text("most_common") + b"K\x01sb",
        "BUILD slots": _global("collections", "OrderedDict") + b"N}" + _text("items") + b"K\x01s\x86b",
        "EXT1": b"\x82\x01",
        "EXT4": b"\x84\x7f\xff\xff\x7f",
        "persistent id": b"Pos.system\n",
        "binary persistent id": touch + b"Q",
        "ndarray over bytes": b"cnumpy\nndarray\n(K\x01\x85" + dtype + b"B\x08\x00\x00\x00" + bytes(8) + b"tR",
        "scalar of an object": b"cnumpy.core.multiarray\nscalar\n(" + dtype + b"B\x08\x00\x00\x00" + bytes(8) + b"tR",
        "_reconstruct of objects": rebuilt + dtype + b"\x89C\x08" + bytes(8) + b"tb",
        "_reconstruct of another": b"cnumpy.core.multiarray\n_reconstruct\n(" + _global("os", "system") + touch + b"tR",
        "frombuffer": _call("numpy.core.numeric", "_frombuffer", b"C\x08" + bytes(8), dtype, b"K\x01\x85", _text("C")),
        "numpy.zeros": _call("numpy", "zeros", huge),
        "bytearray(n)": _call("builtins", "bytearray", huge),
        "range to list": _call("builtins", "list", _call("builtins", "range", huge)),
        "tensor beyond its storage": _tensor(b"K\x01", huge + b"\x85", b"K\x01\x85"),
        "expanded tensor": _tensor(b"K\x01", huge + b"\x85", b"K\x00\x85"),
        "huge storage": _tensor(huge, b"K\x01\x85", b"K\x01\x85"),
        "negative tensor": _tensor(b"K\x01", b"J\xff\xff\xff\xff\x85", b"K\x01\x85"),
        "sparse tensor": _call("torch._utils", "_rebuild_sparse_tensor", huge),
        "torch.zeros": _call("torch", "zeros", huge),
        "memo index": b"Nr\xff\xff\xff\x7f",
        "BYTEARRAY8": b"\x96" + size(2**33) + b"abc",
        "BINUNICODE8": b"\x8d" + size(2**33) + b"abc",
        "BINBYTES8": b"\x8e" + size(2**33) + b"abc",
        "FRAME": b"\x95" + size(2**33) + b"N",
        "LONG4": b"\x8b\xff\xff\xff\x7f" + b"\xff" * 100,
        "digits": b"I" + b"9" * 100_000 + b"\n",
        "nested tuples": b"N" + b"\x85" * 500_000,
        "tuples as a key": b"}N" + b"\x85" * 500_000 + b"Ns",
        "nested lists": b"]" * 200_000 + b"a" * 199_999,
        "list in itself": b"]q\x00h\x00a",
        "billion laughs": laughs,
        "colliding keys": b"}(" + b"".join(_integer(n * (2**61 - 1)) + b"N" for n in range(20_000)) + b"u",
        "copies of a text": _text("a" * 100_000) + b"q\x000](" + encode * 5000 + b"e",
        "copies of a list": _global("builtins", "frozenset") + copies,
        "marks alone": b"(" * 500_000,
        "pops": b"0" * 10,
    }  # fmt: skip
    return {name: PROTO + call + b"." for name, call in calls.items()}


def _integer(value: int) -> bytes:
    data = value.to_bytes(16, "little", signed=True)
    return b"\x8a\x10" + data


def zipped(content: bytes) -> bytes:
    """Return a .pth file as torch.save writes it, with other content and one storage of four bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in {"data.pkl": content, "byteorder": b"little", "data/0": bytes(4), "version": b"3\n"}.items():
            archive.writestr(f"archive/{name}", data)
    return out.getvalue()


def commands(folder: Path) -> dict[str, tuple[str, str, bool]]:
    """Return the commands that read pickles by name: the command line, the file, and whether it is an archive."""
    from subjects import write_packed

    legacy = folder / "model.bin"
    import torch

    torch.save({"x": torch.zeros(1)}, legacy)
    (folder / "vocab.txt").write_text("a\nb\n")
    write_packed(folder / "f.safetensors")
    (folder / "instances.json").write_text(json.dumps({"images": [], "annotations": []}))
    refs = "--data.refs {0}/refs.p --data.instances {0}/instances.json --data.features {0}/f.safetensors"
    tiny = "--model.dim 8 --model.num-heads 2 --model.num-layers 1 --model.ff-dim 8 --out {0}/refs"
    return {
        "words of import": ("import aoanet {0}/model.bin --vocabulary {0}/infos.pkl --out {0}/run", "infos.pkl", False),
        "weights of import": (
            "import aoanet {0}/model.pkl --vocabulary {0}/vocab.txt --out {0}/run",
            "model.pkl",
            False,
        ),
        "archives of import": ("import xlan {0}/model.pth --vocabulary {0}/vocab.txt --out {0}/run", "model.pth", True),
        "expressions": (f"train refcoco.mcan {refs} {tiny}", "refs.p", False),
        "torchvision": (
            "extract {0}/a.png --extractor torchvision:fasterrcnn_mobilenet_v3_large_320_fpn:{0}/d.pth --out {0}/o",
            "d.pth",
            True,
        ),
        "bottom-up": ("extract {0}/a.png --extractor bottom-up:{0}/b.pth --out {0}/o", "b.pth", False),
    }


def check(folder: Path, names: list[str] | None = None) -> tuple[list[str], dict[str, Counter[str]]]:
    """Read all pickles by the commands of some names; return what is wrong, and how the readings of each ended."""
    from campaign import Child, judge
    from PIL import Image

    problems: list[str] = []
    tallies: dict[str, Counter[str]] = {}
    Image.new("RGB", (32, 32)).save(folder / "a.png")
    child = Child(folder)
    try:
        for name, (line, file, archive) in commands(folder).items():
            if names is not None and name not in names:
                continue
            arguments = [part.format(folder) for part in line.split()]
            (folder / file).write_bytes(pickle.dumps({"a": 1}, 2) if not archive else zipped(pickle.dumps({"a": 1}, 2)))
            base = max(child.run(arguments)["peak"] for _ in range(2))
            tally = tallies[name] = Counter()
            for attempt, content in hostile(folder).items():
                (folder / file).write_bytes(zipped(content) if archive else content)
                ended = child.run(arguments)
                kind, details = judge(ended, "", "", exact=False)
                tally[kind] += 1
                tally["MiB"] = max(tally["MiB"], round(ended["peak"] - base))
                if kind != "refused":
                    problems.append(f"{name}, {attempt}: {kind}: {details[-300:]}")
                elif ended["peak"] - base > MAX_MIB:
                    problems.append(f"{name}, {attempt}: {ended['peak'] - base:.0f} MiB")
                if (folder / TRACE).exists():
                    problems.append(f"{name}, {attempt}: its code ran")
                    (folder / TRACE).unlink()
            print(f"{name:<20} {dict(tally)}", flush=True)
    finally:
        child.close()
    return problems, tallies


def main() -> int:
    """Read all pickles by all commands."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="legenda-pickles-") as parent:
        folder = Path(parent)
        print(f"{len(hostile(folder))} pickles", flush=True)
        problems, _ = check(folder)
    print("\n".join(problems) or "no findings")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
