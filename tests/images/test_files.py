"""Finding image files, and reading all types as upright 8-bit RGB."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.errors import DataError, LegendaError
from legenda.images import find_images, read_image, to_image
from legenda.images.files import order_by_size


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
    with pytest.raises(LegendaError, match=r"bomb\.png has too many pixels.*scale it down"):
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
    with pytest.raises(DataError, match=r"^a\.jpg is a JPEG of more than 50 scans"):
        read_image(io.BytesIO(progressive(3000, between)), "a.jpg")


def test_jpegs_of_many_segments_are_refused_before_they_are_opened(tmp_path):
    """Pillow joins segments of Exif one by one: 200,000 take 13 s, and 600,000 minutes."""
    data = progressive(10)
    segment = b"\xff\xe1\x00\x12Exif\0\0" + bytes(10)
    (tmp_path / "a.jpg").write_bytes(data[:2] + segment * 900 + data[2:])
    (tmp_path / "b.jpg").write_bytes(data[:2] + segment * 1000 + data[2:])
    assert read_image(tmp_path / "a.jpg").size == (64, 48)
    with pytest.raises(DataError, match=r"b\.jpg is a JPEG of more than 50 scans or 1000 segments"):
        read_image(tmp_path / "b.jpg")
    assert order_by_size(["a.jpg", "b.jpg"], tmp_path) == [1, 0]  # without a size, it comes first


@pytest.mark.parametrize("kind", ["EPS", "PPM", "BLP"])
def test_no_other_format_is_opened_by_any_name(tmp_path, kind):
    """Pillow starts Ghostscript for EPS, and decodes FITS and others in Python."""
    path = tmp_path / "a.jpg"
    solid(0, "P" if kind == "BLP" else "RGB").save(path, kind)
    with pytest.raises(DataError, match=r"a\.jpg is not an image of a known type"):
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
