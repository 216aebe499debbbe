"""Check a release: python .ci/release_check.py [--build-only]. It builds, installs and tries what would be published.

Builds the source distribution and, from it, the wheel; checks the metadata, the files and the size of the wheel and the
changelog; installs the wheel into an empty environment without PyTorch, where it captions, scores and serves; and into
one with PyTorch for CPUs, where the examples run, outside of the repository; then from the checkout and from its git
address. Everything is written below build/release.
"""

import json
import os
import re
import subprocess
import sys
import urllib.request
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
MAX_WHEEL_MB = 24
MAX_LIGHT_MB = 250
"""The largest size of the packages that `pip install legenda` unpacks, without the bytecode that Python compiles."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# the command line, the library from Python, a plugin, the server, and ONNX
EXAMPLES = """
legenda --version
python {examples}/train_on_csv.py csv
python {examples}/caption_images.py --model csv/run
python {examples}/custom_attention.py cosine
legenda caption csv/images --model csv/run
python {examples}/serve.py csv/run
legenda export csv/run --out onnx
legenda convert csv/features.safetensors features
python {examples}/caption_onnx.py onnx features/{image}.npz
"""


def build() -> Path:
    """Return the wheel, built from the source distribution."""
    OUT.mkdir(parents=True, exist_ok=True)
    for old in (*OUT.glob("*.whl"), *OUT.glob("*.tar.gz")):
        old.unlink()
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(OUT)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (sdist,) = OUT.glob("*.tar.gz")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", OUT, sdist], check=True
    )
    (wheel,) = OUT.glob("*.whl")
    return wheel


def check(wheel: Path) -> None:
    """Exit with a message where the wheel or the changelog is not ready."""
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        text = file.read(next(name for name in names if name.endswith(".dist-info/METADATA")))
    metadata = Metadata.from_email(text, validate=True)  # raises for fields that an index refuses
    if metadata.description_content_type != "text/markdown" or not message_from_bytes(text).get_payload():
        sys.exit("the metadata has no description in Markdown")
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    missing = {line.removeprefix("src/") for line in tracked.splitlines()} - names
    if missing:
        sys.exit(f"the wheel lacks {', '.join(sorted(missing))}; add them to package-data in pyproject.toml")
    size = wheel.stat().st_size / 1e6
    if size > MAX_WHEEL_MB:
        sys.exit(f"the wheel has {size:.1f} MB, more than {MAX_WHEEL_MB}")
    version = metadata.version
    for file, line in (("CHANGELOG.md", f"## [{version}] "), ("CITATION.cff", f"version: {version}\n")):
        if f"\n{line}" not in (ROOT / file).read_text(encoding="utf-8"):
            sys.exit(f"{file} has no line that begins with {line.strip()!r}")
    print(f"{wheel.name}: {size:.1f} MB, {len(names)} files, metadata and changelog are complete")


def install(wheel: Path, extras: str, folder: Path, *options: str) -> Path:
    """Return the folder of the programs of a new environment that holds the wheel."""
    venv.create(folder, clear=True, with_pip=True)
    programs = folder / "bin"
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--constraint", ROOT / "constraints.txt", *options]
    subprocess.run([*pip, f"{wheel}{extras}"], check=True)
    return programs


def try_without_torch(wheel: Path, folder: Path) -> float:
    """Caption, score and serve over HTTP where the wheel is installed without PyTorch; return the MB of its packages.

    Exit with a message where PyTorch is installed, the packages are too large, or an answer is empty.
    """
    programs = install(wheel, "", folder / "venv")
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    others = ("pip", "setuptools", "_distutils_hack", "pkg_resources")  # what venv itself installs
    parts = [path for path in packages.iterdir() if not path.name.startswith(others)]
    size = (
        sum(
            file.stat().st_size
            for part in parts
            for file in (part, *part.rglob("*"))
            if file.is_file() and file.suffix != ".pyc"
        )
        / 1e6
    )
    heavy = {"torch", "scipy", "jaxtyping", "lightning_fabric", "transformers"} & {path.name for path in parts}
    if heavy or size > MAX_LIGHT_MB:
        sys.exit(f"the light install has {size:.0f} MB, with {', '.join(sorted(heavy)) or 'no heavy package'}")

    def call(*arguments: object) -> str:
        command = [programs / "legenda", *map(str, arguments)]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout

    photographs = sorted((packages / "legenda" / "assets" / "photographs").glob("*.jpg"))
    captions = json.loads(call("caption", *photographs, "--format", "json"))
    if not all(entry["captions"][0]["caption"] for entry in captions) or len(captions) != len(photographs):
        sys.exit(f"not all photographs have captions: {captions}")
    texts = {Path(entry["image"]).stem: entry["captions"][0]["caption"] for entry in captions}
    (folder / "captions.json").write_text(json.dumps(texts))
    (folder / "references.json").write_text(json.dumps({name: [text] for name, text in texts.items()}))
    if "CIDEr-D" not in call("score", "captions.json", "references.json", "--metrics", "fast"):
        sys.exit("the captions are not scored")
    subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", f"{wheel}[serve]"], check=True)
    _serve(programs, folder, photographs[0])
    return size


def _serve(programs: Path, folder: Path, photograph: Path) -> None:
    """Start the server, caption a photograph over HTTP, and stop it; exit with a message where it gives no caption."""
    command = [programs / "legenda", "serve", "photo", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://[\w.:]+", next(iter(server.stdout), ""))
            if address is None:
                sys.exit("the server names no address")
            head = '--x\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
            body = head.encode() + photograph.read_bytes() + b"\r\n--x--\r\n"
            headers = {"Content-Type": "multipart/form-data; boundary=x"}
            request = urllib.request.Request(f"{address[0]}/api/captions", body, headers)
            with urllib.request.urlopen(request, timeout=60) as answer:
                if not json.load(answer)["captions"][0]["text"]:
                    sys.exit("the server gives no caption")
        finally:
            server.terminate()


def _cpu_index() -> list[str]:
    """Return pip's options for PyTorch without CUDA; none where its index is not reached."""
    try:
        urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=10).close()
    except OSError:
        print(f"{CPU_INDEX} is not reached: PyTorch is installed from pip's own index")
        return []
    return ["--extra-index-url", CPU_INDEX]


def install_from_sources(programs: Path) -> None:
    """Replace the wheel by the checkout and by its commit as pip takes them, and load the packaged model of each."""
    load = "import legenda; print(legenda.__file__, len(legenda.load('photo').require_vocabulary()), 'words')"
    for source in (str(ROOT), f"git+{ROOT.as_uri()}"):
        print(f"$ pip install {source}", flush=True)
        pip = [programs / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall"]
        subprocess.run([*pip, source], check=True)
        subprocess.run([programs / "python", "-c", load], cwd=OUT, check=True)


def run_examples(programs: Path) -> None:
    """Run the examples in a folder outside of the repository's packages."""
    work = OUT / "work"
    subprocess.run(["rm", "-rf", work], check=True)
    work.mkdir()
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    for line in EXAMPLES.strip().splitlines():
        image = next((path.stem for path in sorted(work.glob("features/*.npz"))), "")
        command = line.format(examples=ROOT / "examples", image=image)
        print(f"$ {line.replace('{examples}', 'examples').replace('{image}', image)}", flush=True)
        subprocess.run(command.split(), cwd=work, env=environment, check=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # the checkout must not stand for the installed wheel
    built = build()
    check(built)
    if "--build-only" not in sys.argv:
        size = try_without_torch(built, OUT / "light")
        print(f"without PyTorch it captions, scores and serves; its packages have {size:.0f} MB")
        programs = install(built, "[onnx,serve]", OUT / "venv", *_cpu_index())
        run_examples(programs)
        install_from_sources(programs)
        print("the release is ready")
