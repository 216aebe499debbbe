"""Frames of synthesized videos: their sampling, and the features of videos as data sets read them."""

import json
import socket
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from legenda.data.captions import KarpathyData
from legenda.errors import ConfigError, LegendaError
from legenda.extractors import Extractor, extract_store
from legenda.features import open_features
from legenda.images import FrameSampling
from legenda.images.video import extract_video, read_frames

av = pytest.importorskip("av", reason="needs the extra video")
RATE, STEP = 10, 8


def write_video(path: Path, frames: int, size: int = 32, codec: str = "mpeg4", *, noise: bool = False) -> Path:
    """Write a video of gray frames, 10 a second, each brighter by 8 than the one before, or of noise, 25 a second."""
    rate = 25 if noise else RATE
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.bit_rate = 2_000_000
        stream.time_base = Fraction(1, rate)
        for number in range(frames):
            image = Image.new("RGB", (size, size), (number * STEP,) * 3)
            if noise:
                image = Image.fromarray(np.random.default_rng(number).integers(0, 256, (size, size, 3), np.uint8))
            container.mux(stream.encode(av.VideoFrame.from_image(image)))
        container.mux(stream.encode())
    return path


def numbers(path: Path, sampling: FrameSampling) -> list[int]:
    """Return the numbers of the frames that are read, by their gray."""
    return [round(float(np.asarray(frame).mean()) / STEP) for frame in read_frames(path, sampling)]


def gray(images: list[Image.Image]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two regions of an image: its gray, and twice its gray."""
    boxes = np.array([[0, 0, 1, 1], [0, 0, 0.5, 1]])
    return [(np.asarray(image, np.float32).mean() * np.array([[1.0], [2.0]]), boxes) for image in images]


@pytest.mark.parametrize(
    ("frames", "wanted", "expected"),
    [(20, 5, [2, 6, 10, 14, 18]), (20, 1, [10]), (20, 20, list(range(20))), (3, 7, [0, 0, 1, 1, 1, 2, 2])],
)
def test_a_fixed_number_of_frames_is_evenly_spread(tmp_path, frames, wanted, expected):
    found = numbers(write_video(tmp_path / "v.mp4", frames), FrameSampling(num_frames=wanted))
    assert found == expected


def test_the_features_of_a_video_are_the_means_of_its_frames(tmp_path):
    path, sampling = write_video(tmp_path / "v.mp4", 9), FrameSampling(num_frames=3)
    features, boxes = extract_video(Extractor("gray", gray), path, sampling, 2)
    assert boxes is None
    assert features.dtype == np.float32
    np.testing.assert_allclose(features[:, 0], 1.5 * STEP * np.array([1, 4, 7]), atol=1.5)
    np.testing.assert_array_equal(features, extract_video(Extractor("gray", gray), path, sampling, 32)[0])


def test_a_store_of_videos_is_read_by_a_data_set_and_names_what_it_skips(tmp_path):
    paths = [write_video(tmp_path / f"video{number}.mp4", 8) for number in range(3)]
    paths[1].write_bytes(paths[1].read_bytes()[:200])
    (tmp_path / "text.mp4").write_text("no video")
    out = tmp_path / "f.safetensors"
    report = extract_store(
        [*paths, tmp_path / "text.mp4"], Extractor("gray", gray), out, sampling=FrameSampling(num_frames=4)
    )
    assert report.images == 2
    assert [Path(path).name for path, _ in report.skipped] == ["video1.mp4", "text.mp4"]
    assert all(f"{path} cannot be decoded (" in reason for path, reason in report.skipped)
    store = open_features(out)
    assert (store.ids, str(store.extractor), store.has_boxes) == (("video0", "video2"), "gray@4frames", False)
    content = {
        "videos": [{"video_id": "video0", "split": "train"}, {"video_id": "video2", "split": "validate"}],
        "sentences": [{"video_id": name, "caption": "a gray wall"} for name in ("video0", "video2")],
    }
    (tmp_path / "videodatainfo.json").write_text(json.dumps(content))
    data = KarpathyData(annotations=tmp_path / "videodatainfo.json", features=out, min_count=1).open(lambda _: None)
    regions = data.validation.read(np.array([0]))
    assert regions.features.shape == (1, 4, 1)
    assert regions.boxes is None


def test_the_command_finds_videos_and_needs_their_library(tmp_path, run_command, monkeypatch):
    (tmp_path / "clips").mkdir()
    for name in ("a.mp4", "b.mkv"):
        write_video(tmp_path / "clips" / name, 4, 64)
    (tmp_path / "clips" / "notes.txt").touch()
    ones = "import numpy\ndef extract(images): return [(numpy.ones((1, 2)), None)] * len(images)"
    (tmp_path / "ones.py").write_text(ones)
    command = f"extract {tmp_path / 'clips'} --extractor {tmp_path / 'ones.py'} --out {tmp_path / 'f.safetensors'}"
    code, out, _ = run_command(f"{command} --num-frames 2")
    assert code == 0
    assert "2 videos by ones@" in out
    assert open_features(tmp_path / "f.safetensors").ids == ("a", "b")
    for options, message in [
        ("--num-frames 2 --frame-rate 1", "give either --num-frames or --frame-rate for videos, not both"),
        ("", f"{tmp_path / 'clips'} holds no image"),
    ]:
        code, _, err = run_command(f"{command} {options}")
        assert code == 2
        assert message in err
    monkeypatch.setitem(sys.modules, "av", None)
    code, _, err = run_command(f"{command} --num-frames 2")
    assert code == 2
    assert "legenda[video]" in err


def test_a_playlist_fetches_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.ts"
        for name, content in [
            ("a.mp4", f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{url}\n#EXT-X-ENDLIST\n"),
            ("b.mkv", f"ffconcat version 1.0\nfile '{url}'\n"),
        ]:
            (tmp_path / name).write_text(content)
            with pytest.raises(LegendaError, match=name):
                list(read_frames(tmp_path / name, FrameSampling(num_frames=1)))
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [
        ("mkv", "mpeg4"),
        ("webm", "libvpx"),
        ("avi", "mpeg4"),
        ("mpg", "mpeg1video"),
        ("mpeg", "mpeg2video"),
        ("mov", "mpeg4"),
        ("ts", "mpeg2video"),
    ],
)
def test_truncated_videos_are_refused(tmp_path, suffix, codec):
    path = write_video(tmp_path / f"v.{suffix}", 60, 64, codec, noise=True)
    content = path.read_bytes()
    for sampling in (FrameSampling(num_frames=4), FrameSampling(frame_rate=2)):
        assert len(list(read_frames(content, sampling, "v"))) in (4, 5)
        for share in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
            path.write_bytes(content[: int(share * len(content)) | 1])  # no whole packets of a transport stream
            with pytest.raises(LegendaError, match=rf"v\.{suffix}"):
                list(read_frames(path, sampling))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((None, None), "either --num-frames or --frame-rate"),
        ((0, None), "num_frames must be greater than or equal to 1, not 0"),
        ((2**63 - 1, None), "num_frames must be less than or equal to 10000, not 9223372036854775807"),
        ((None, float("nan")), "frame_rate must be a finite number, not nan"),
    ],
)
def test_impossible_samplings_are_rejected(options, message):
    with pytest.raises(ConfigError, match=message):
        FrameSampling(num_frames=options[0], frame_rate=options[1])
