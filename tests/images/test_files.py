"""Finding image files, and reading all types as upright 8-bit RGB."""

import io
import os
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.errors import DataError, LegendaError
from legenda.images import files, find_images, read_image, to_image, web
from legenda.images.files import find_names, order_by_size


def save(path: Path, image: Image.Image, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def solid(color, mode: str = "RGB", size: tuple[int, int] = (4, 3)) -> Image.Image:
    return Image.new(mode, size, color)


def test_files_folders_and_patterns_are_found_sorted_and_once(tmp_path):
    names = ["b.jpg", "a.PNG", "deep/er/c.webp", "deep/d.tiff", "deep/notes.txt", "._b.jpg"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "folder.jpg").mkdir()
    relative = [path.relative_to(tmp_path).as_posix() for path in find_images([tmp_path])]
    assert relative == ["a.PNG", "b.jpg", "deep/d.tiff", "deep/er/c.webp"]
    assert find_images([str(tmp_path / "*.jpg")]) == [tmp_path / "b.jpg"]
    assert find_images([str(tmp_path / "**/*.webp")]) == [tmp_path / "deep/er/c.webp"]
    first = tmp_path / "deep/d.tiff"
    assert find_images([first, tmp_path])[:2] == [first, tmp_path / "a.PNG"]
    assert len(find_images([first, tmp_path])) == 4
    assert find_images([tmp_path / "deep/notes.txt"]) == [tmp_path / "deep/notes.txt"]


def test_other_files_of_a_folder_are_counted_and_named(tmp_path, caplog):
    for name in ("a.HEIC", "b.avif", "c.jfif", ".hidden", *(f"deep/{number}.txt" for number in range(30))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in find_images([tmp_path])] == ["a.HEIC", "b.avif", "c.jfif"]
    (message,) = caplog.messages
    assert "30 files" in message
    assert "0.txt" in message
    caplog.clear()
    find_images([tmp_path / "*.avif"])
    assert not caplog.messages


@pytest.mark.parametrize(("name", "message"), [("empty", "no image"), ("*.jpg", "no image"), ("no.jpg", "not exist")])
def test_a_path_without_images_raises(tmp_path, name, message):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LegendaError, match=message) as error:
        find_images([str(tmp_path / name)])
    assert name in str(error.value)


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "bmp", "gif", "tif", "heic", "avif"])
def test_each_format_is_read_as_rgb(tmp_path, suffix):
    read = read_image(save(tmp_path / f"a.{suffix}", solid((200, 30, 60))))
    assert (read.mode, read.size) == ("RGB", (4, 3))
    assert np.abs(np.asarray(read, int) - (200, 30, 60)).max() <= 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    upright = np.zeros((16, 24, 3), np.uint8)
    upright[:8, :8] = 255  # one white corner: no two orientations are equal
    # how the sensor stored it, by the EXIF standard's table of row 0 and column 0
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright, 1),
        7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / "a.png", Image.fromarray(np.ascontiguousarray(stored)), exif=exif)
    np.testing.assert_array_equal(np.asarray(read_image(path)), upright)


def test_transparency_is_blended_with_white(tmp_path):
    clear_red = save(tmp_path / "a.png", solid((255, 0, 0, 0), "RGBA"))
    half_black = save(tmp_path / "b.png", solid((0, 128), "LA"))
    palette = solid(0, "P")
    palette.putpalette([0, 0, 0, 9, 9, 9])
    clear_palette = save(tmp_path / "c.png", palette, transparency=0)
    keyed = save(tmp_path / "d.png", solid((1, 2, 3)), transparency=(1, 2, 3))
    assert read_image(clear_red).getpixel((0, 0)) == (255, 255, 255)
    assert read_image(half_black).getpixel((0, 0)) == (127, 127, 127)
    assert read_image(clear_palette).getpixel((0, 0)) == (255, 255, 255)
    assert read_image(keyed).getpixel((0, 0)) == (255, 255, 255)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "bmp", "tif", "heic", "avif"])
def test_a_truncated_image_raises_unless_only_its_trailer_is_missing(tmp_path, suffix):
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8))
    whole, cut = save(tmp_path / f"whole.{suffix}", noise), tmp_path / f"cut.{suffix}"
    content, pixels = whole.read_bytes(), np.asarray(read_image(whole))
    messages: list[str] = []
    for length in range(0, len(content), 11):
        cut.write_bytes(content[:length])
        try:
            read = read_image(cut)
        except LegendaError as error:
            messages.append(str(error))
        else:
            assert length > len(content) * 0.9
            np.testing.assert_array_equal(np.asarray(read), pixels)
    assert len(messages) > 20
    assert all(f"cut.{suffix}" in text and text.endswith("leave it out") and "\n" not in text for text in messages)


def test_a_decompression_bomb_raises(tmp_path, monkeypatch):
    path = save(tmp_path / "bomb.png", solid(0, "L", (100, 100)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4000)
    with pytest.raises(LegendaError, match=r"bomb\.png"):
        read_image(path)


def test_arrays_and_pil_images_are_read_as_files(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    path = save(tmp_path / "a.png", Image.fromarray(pixels))
    for image in (path, str(path), pixels, Image.fromarray(pixels), Image.fromarray(pixels).convert("RGBA")):
        np.testing.assert_array_equal(np.asarray(to_image(image)), pixels)
    gray = np.asarray(to_image(pixels[..., 0]))
    np.testing.assert_array_equal(gray, np.repeat(pixels[..., :1], 3, axis=2))


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 3), np.float32), "image 2 is an array of float32; convert it to uint8"),
        (Image.new("RGB", (9, 9)).crop((5, 2, 5, 8)), "image 2 .*0 x 6"),
        (np.zeros((3, 4, 5), np.uint8), r"image 2 has the channels first, \(3, 4, 5\); give image.transpose\(1, 2, 0"),
        (np.zeros((4, 4, 2), np.uint8), r"shape \(4, 4, 2\); give \(height, width, 3\) or \(height, width\)"),
        (7, "image 2 is of type int"),
    ],
)
def test_other_arrays_and_types_are_refused_by_name(image, message):
    with pytest.raises(DataError, match=message):
        to_image(image, "image 2")


def progressive(scans: int, between: bytes = b"") -> bytes:
    """Return a progressive JPEG whose last scan is repeated, each time after the bytes `between`."""
    data = io.BytesIO()
    Image.effect_noise((64, 48), 30).convert("RGB").save(data, "JPEG", progressive=True)
    first, last = data.getvalue()[:-2], data.getvalue()[data.getvalue().rindex(b"\xff\xda") : -2]
    return first + (between + last) * (scans - first.count(b"\xff\xda")) + b"\xff\xd9"


@pytest.mark.parametrize("between", [b"", b"\xff\x01", b"\xff\xfe\x00\x04\xff\xd9"], ids=["", "TEM", "comment"])
def test_jpegs_of_many_scans_are_refused_before_they_are_decoded(between):
    assert read_image(io.BytesIO(progressive(50, between)), "a.jpg").size == (64, 48)
    with pytest.raises(DataError, match=r"^a\.jpg"):
        read_image(io.BytesIO(progressive(3000, between)), "a.jpg")


def test_jpegs_of_many_segments_are_refused_before_they_are_opened(tmp_path):
    """Pillow joins segments of Exif one by one: 200,000 take 13 s, and 600,000 minutes."""
    data = progressive(10)
    segment = b"\xff\xe1\x00\x12Exif\0\0" + bytes(10)
    (tmp_path / "a.jpg").write_bytes(data[:2] + segment * 900 + data[2:])
    (tmp_path / "b.jpg").write_bytes(data[:2] + segment * 1000 + data[2:])
    assert read_image(tmp_path / "a.jpg").size == (64, 48)
    with pytest.raises(DataError, match=r"b\.jpg"):
        read_image(tmp_path / "b.jpg")
    assert order_by_size(["a.jpg", "b.jpg"], tmp_path) == [1, 0]  # without a size, it comes first


@pytest.mark.parametrize("kind", ["EPS", "PPM", "BLP"])
def test_no_other_format_is_opened_by_any_name(tmp_path, kind):
    """Pillow starts Ghostscript for EPS, and decodes FITS and others in Python."""
    path = tmp_path / "a.jpg"
    solid(0, "P" if kind == "BLP" else "RGB").save(path, kind)
    with pytest.raises(DataError, match=r"a\.jpg"):
        read_image(path)


def test_what_follows_a_jpeg_does_not_count(tmp_path):
    (tmp_path / "a.jpg").write_bytes(progressive(12) + b"\xff\xda" * 1000)
    assert read_image(tmp_path / "a.jpg").size == (64, 48)


@pytest.mark.parametrize(
    ("size", "read"), [((1000, 700), (500, 350)), ((399, 300), (399, 300)), ((4000, 60), (4000, 60))]
)
def test_larger_images_than_suffice_are_scaled_down(tmp_path, size, read):
    """JPEGs while they are decoded, others after it; a panorama keeps the pixels of its shorter side."""
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    image = Image.fromarray(np.stack([x, y, 255 - x], axis=-1).astype(np.uint8))
    image.save(tmp_path / "a.jpg", quality=95)
    image.save(tmp_path / "a.png")
    scaled = [np.asarray(read_image(tmp_path / name, sufficient_side=400), float) for name in ("a.jpg", "a.png")]
    assert [values.shape[1::-1] for values in scaled] == [read, read]
    assert np.abs(scaled[0] - scaled[1]).mean() < 2
    assert read_image(tmp_path / "a.jpg").size == size


def header_of_png(width: int, height: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    framed = (struct.pack(">I", len(d)) + kind + d + struct.pack(">I", zlib.crc32(kind + d)) for kind, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


@pytest.mark.filterwarnings("ignore:Image size")
def test_sides_and_pixels_are_limited_before_decoding(tmp_path):
    for width, height in ((1, 49_000_000), (70_000, 2), (12_000, 12_000)):
        (tmp_path / "a.png").write_bytes(header_of_png(width, height))
        with pytest.raises(LegendaError, match=r"a\.png"):
            read_image(tmp_path / "a.png")
    (tmp_path / "sparse.tif").write_bytes(save(tmp_path / "b.tif", solid(0, "L")).read_bytes())
    os.truncate(tmp_path / "sparse.tif", 1 << 34)
    os.truncate(save(tmp_path / "sparse.jpg", solid(0, "L")), 1 << 34)
    for name in ("sparse.tif", "sparse.jpg"):
        with pytest.raises(LegendaError, match="16384 MiB"):
            read_image(tmp_path / name)


MODES = {
    "rgb.jpg": "RGB",
    "cmyk.jpg": "CMYK",
    "gray.png": "L",
    "rgba.png": "RGBA",
    "la.png": "LA",
    "p.gif": "P",
    "bits.png": "1",
    "i16.png": "I;16",
    "f.tif": "F",
    "w.webp": "RGBA",
    "h.heic": "RGB",
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("orientation", [1, 6])
def test_large_images_are_reduced_and_look_the_same(tmp_path, monkeypatch, name, orientation):
    mode = MODES[name]
    y, x = np.mgrid[0:96, 0:160]
    picture = np.stack([x * 255 / 160, y * 255 / 96, (x + y) % 256, 255 - x], -1).astype(np.uint8)
    image = Image.fromarray(picture, "RGBA").convert("RGBA" if mode in ("RGBA", "LA") else "RGB")
    image = {
        "I;16": lambda: Image.fromarray(picture[..., 0].astype(np.uint16) * 257),
        "F": lambda: Image.fromarray(picture[..., 0].astype(np.float32) / 255),
    }.get(mode, lambda: image.convert(mode))()
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(tmp_path / name, image, **({} if name == "p.gif" else {"exif": exif}))
    whole = read_image(path)
    for kept in (whole.width * whole.height // 4, 1000, 200):
        monkeypatch.setattr(files, "_KEPT_PIXELS", kept)
        reduced = read_image(path)
        assert reduced.width * reduced.height <= kept * 1.4
        assert reduced.mode == "RGB"
        difference = np.asarray(whole.resize(reduced.size, Image.Resampling.BOX), float) - np.asarray(reduced)
        assert np.abs(difference).mean() < 12


def test_links_to_devices_and_pipes_are_no_images(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    save(tmp_path / "a.png", solid(0, "L"))
    assert find_images([tmp_path]) == [tmp_path / "a.png"]
    for name in ("pipe.png", "zero.png"):
        with pytest.raises(LegendaError, match=name):
            read_image(tmp_path / name)


@contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Serve every connection by a function; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    threading.Thread(target=work, args=(connection,), daemon=True).start()

        def work(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                connection.recv(10_000)
                answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def slowly(head: bytes, rest: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        connection.sendall(head)
        for byte in rest:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    return answer


OK = b"HTTP/1.0 200 OK\r\n\r\n"


@pytest.mark.parametrize("answer", [slowly(OK, bytes(1000)), slowly(b"", b"HTTP/1.0 200 OK\r\nX: " + bytes(1000))])
def test_an_address_has_a_time_in_all(monkeypatch, answer):
    monkeypatch.setattr(web, "FETCH_TIMEOUT_S", 0.3)
    with serving(answer) as address, pytest.raises(LegendaError, match=r"0\.3 s"):
        web.fetch(f"http://{address}/a.png")


def test_addresses_follow_one_rule(tmp_path):
    content = save(tmp_path / "a.png", solid(0, "L")).read_bytes()
    with serving(lambda connection: connection.sendall(OK + content)) as address:
        assert find_names([f"HTTP://{address}/a"], allow_urls=True) == [f"HTTP://{address}/a"]
        assert web.fetch(f"HTTP://{address}/a.png") == content
        with pytest.raises(LegendaError, match=address) as error:
            web.fetch(f"http://me:secret@{address}/a.png")
        assert "secret" not in str(error.value)
    with pytest.raises(LegendaError, match="--allow-urls"):
        find_names([f"HTTP://{address}/a.png"])
    moved = f"HTTP/1.0 302 Found\r\nLocation: ftp://{address}/a.png\r\n\r\n".encode()
    with (
        serving(lambda connection: connection.sendall(moved)) as address,
        pytest.raises(LegendaError, match="http"),
    ):
        web.fetch(f"http://{address}/a.png")


@pytest.mark.parametrize("suffix", ["heic", "avif"])
def test_a_heading_of_many_pixels_is_refused_before_decoding(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB", (64, 48), "orange").save(path, {"heic": "HEIF", "avif": "AVIF"}[suffix])
    data = path.read_bytes()
    assert b"ispe" in data  # ISO/IEC 23008-12, 6.5.3: version and flags, width, height
    data = re.sub(rb"ispe.{12}", b"ispe" + struct.pack(">III", 0, 10_000, 9_000), data, flags=re.DOTALL)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.(heic|avif)"):
        read_image(path)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["heic", "avif"])
def test_the_largest_image_that_is_decoded_takes_less_than_1500_mib(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    options = {"heic": {"enc_params": {"preset": "ultrafast"}}, "avif": {"speed": 10}}[suffix]
    kind = {"heic": "HEIF", "avif": "AVIF"}[suffix]
    Image.new("RGB", (8000, 8000), "orange").save(path, kind, quality=10, **options)
    code = (
        "import sys; from legenda.images.files import read_image; print(read_image(sys.argv[1]).width);"
        "print(*(line for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    ended = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    width, _, peak, _ = ended.stdout.split()
    assert 2000 < int(width) <= 8000
    assert int(peak) / 1024 < 1500
