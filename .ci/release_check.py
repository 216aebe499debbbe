"""Check a release: python .ci/release_check.py [--build-only]. It builds, installs and tries what would be published.

Builds the source distribution and, from it, the wheel; checks metadata, versions, files, licenses and sizes; installs
the wheel into an empty environment without PyTorch on each supported Python that is here, where it captions, scores and
serves, and into one with PyTorch for CPUs, where every command of README runs, its Python and the examples do; each
time uninstalls it, which must leave nothing; then installs from the checkout and from its git address. Where the index
of PyTorch for CPUs is not reached, its packages are those of the environment that runs this file. Everything is written
below build/release.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import urllib.request
import zipfile
from email import message_from_bytes
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "release"
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAX_WHEEL_MB, MAX_SOURCE_MB = 24, 24
MAX_LIGHT_MB = 250
"""The largest size of the packages that `pip install legenda` unpacks, without the bytecode that Python compiles."""
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
LIGHT = """
legenda --version
legenda inspect --environment
legenda models
legenda recipes
legenda inspect photo
legenda caption {photographs} --format json --out captions.json
legenda caption {photographs} --beam-size 1 --format json --out greedy.json
legenda score captions.json references.json --metrics fast
legenda compare captions.json greedy.json --references references.json
legenda report captions.json greedy.json --annotations references.json --images {photographs} --out page.html
"""
WITH_TORCH = """
legenda inspect --environment
legenda demo
legenda recipes scenes.ngsan
legenda train scenes.ngsan --out mine training.epochs=1 data.train=60 data.validation=8 data.test=8
legenda train scenes.ngsan --out mine training.epochs=1 data.train=60 data.validation=8 data.test=8
legenda evaluate mine
legenda evaluate runs/demo/ngsan --split val
legenda evaluate runs/demo/transformer --split val
legenda compare runs/demo/ngsan runs/demo/transformer
legenda report runs/demo/ngsan runs/demo/transformer --out page.html
legenda table ngsan.table2 --scenes --rows in --estimate none training.epochs=1 data.train=60 data.validation=8
legenda inspect mine --verify
legenda models
python {examples}/train_on_csv.py csv
python {examples}/caption_images.py --model csv/run
python {examples}/custom_attention.py cosine
legenda caption csv/images --model csv/run
python {examples}/serve.py csv/run
legenda extract csv/images --extractor {examples}/my_extractor.py --out mine.safetensors
legenda convert csv/features.safetensors features
legenda export csv/run --out onnx
legenda caption csv/images --model onnx
python {examples}/caption_onnx.py onnx features/train0.npz
"""
NOT_RUN = {"import": "needs weights of a released code", "push": "needs an account", "serve": "runs apart"}


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


def check(wheel: Path) -> Metadata:
    """Return the metadata; exit with a message where the wheel, the changelog or the citation is not ready."""
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
    licenses = {name.rpartition("/licenses/")[2] for name in names if "/licenses/" in name}
    if licenses != {"LICENSE", "NOTICE"}:
        sys.exit(f"the wheel has the license files {licenses or 'of none'}, not LICENSE and NOTICE")
    (sdist,) = wheel.parent.glob("*.tar.gz")
    for path, limit in ((wheel, MAX_WHEEL_MB), (sdist, MAX_SOURCE_MB)):
        if path.stat().st_size / 1e6 > limit:
            sys.exit(f"{path.name} has {path.stat().st_size / 1e6:.1f} MB, more than {limit}")
    version = metadata.version
    for name, line in (("CHANGELOG.md", f"## [{version}] "), ("CITATION.cff", f"version: {version}\n")):
        if f"\n{line}" not in (ROOT / name).read_text(encoding="utf-8"):
            sys.exit(f"{name} has no line that begins with {line.strip()!r}")
    size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {size:.1f} MB, {len(names)} files, metadata, licenses and changelog are complete", flush=True)
    return metadata


def check_commands() -> None:
    """Exit with a message where README has a command that is neither run here nor in NOT_RUN."""
    run = set(re.findall(r"^legenda ([a-z]+)", LIGHT + WITH_TORCH, flags=re.MULTILINE)) | NOT_RUN.keys()
    missing = set(re.findall(r"^    legenda ([a-z]+)", README, flags=re.MULTILINE)) - run
    if missing:
        sys.exit(f"README has {', '.join(sorted(missing))}, which .ci/release_check.py does not run")


def interpreters(metadata: Metadata) -> dict[str, str]:
    """Return each supported Python that is here, by its version: this one, of PATH, or of pyenv."""
    listed = [value.rpartition(" ")[2] for value in metadata.classifiers or () if "Python :: 3." in value]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {}
    for version in listed:
        candidates = [sys.executable] if version == own else [f"python{version}"]
        candidates += map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}")))
        for candidate in candidates:
            try:  # a shim of pyenv may name an interpreter that does not run
                subprocess.run([candidate, "-c", "import ensurepip, venv"], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                continue
            found[version] = candidate
            break
    if set(listed) - found.keys():
        print(f"not tried, because it is not here: Python {', '.join(sorted(set(listed) - found.keys()))}")
    return found


class Environment:
    """An empty virtual environment that holds the wheel, its working folder, and an empty home folder."""

    def __init__(self, folder: Path, python: str, wheel: Path, extras: str = "", index: str | None = None) -> None:
        """index: a further one of packages; "" to use those of the environment that runs this file, too."""
        shutil.rmtree(folder, ignore_errors=True)
        self.home, self.work, self.venv = folder / "home", folder / "work", folder / "venv"
        for path in (self.home, self.work):
            path.mkdir(parents=True)
        subprocess.run([python, "-m", "venv", self.venv], check=True)
        (self.packages,) = (self.venv / "lib").glob("python*/site-packages")
        if index == "":
            (self.packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
        self.install(f"{wheel}{extras}", *(["--extra-index-url", index] if index else []))
        path = f"{self.venv / 'bin'}{os.pathsep}{os.environ['PATH']}"
        self.variables = {**os.environ, "HOME": str(self.home), "PATH": path}
        self.variables.pop("XDG_CACHE_HOME", None)

    def install(self, *arguments: object) -> None:
        """Install packages with the pinned versions."""
        pip = [self.venv / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", *map(str, arguments)], check=True)

    def run(self, program: str, *arguments: object) -> None:
        """Run a program of the environment in its working folder; exit with its output where it fails."""
        command = [str(self.venv / "bin" / program), *map(str, arguments)]
        print(f"$ {program} {' '.join(map(str, arguments))}"[:150].splitlines()[0], flush=True)
        done = subprocess.run(command, cwd=self.work, env=self.variables, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"it fails with exit code {done.returncode}:\n{done.stdout}{done.stderr}")

    def run_lines(self, lines: str, **values: str) -> None:
        """Run lines of commands; names in braces are replaced by values."""
        for line in lines.strip().splitlines():
            self.run(*line.format(**values).split())

    def megabytes(self) -> float:
        """Return the size of all packages but those of venv itself, without bytecode."""
        own = ("pip", "setuptools", "_distutils_hack", "pkg_resources")
        files = (file for file in self.packages.rglob("*") if file.is_file() and file.suffix != ".pyc")
        return sum(f.stat().st_size for f in files if not f.relative_to(self.packages).parts[0].startswith(own)) / 1e6

    def uninstall(self) -> None:
        """Uninstall Legenda; exit with a message where that, or a command in the home folder, has left a file."""
        pip = [self.venv / "bin" / "python", "-m", "pip", "uninstall", "--yes", "--quiet", "legenda"]
        subprocess.run(pip, check=True)
        left = [*self.venv.rglob("*legenda*"), *self.home.rglob("*")]
        if left:
            sys.exit(f"these files are left: {', '.join(map(str, left[:5]))}")


def try_without_torch(wheel: Path, folder: Path, python: str = sys.executable) -> float:
    """Caption, score, report and serve where the wheel is installed without PyTorch; return the MB of its packages.

    Exit with a message where PyTorch is installed, the packages are too large, a command fails, an answer is empty, or
    a file remains after it is uninstalled.
    """
    environment = Environment(folder, python, wheel)
    size = environment.megabytes()
    heavy = {"torch", "scipy", "jaxtyping", "lightning_fabric", "transformers"}
    heavy &= {path.name for path in environment.packages.iterdir()}
    if heavy or size > MAX_LIGHT_MB:
        sys.exit(f"the light install has {size:.0f} MB, with {', '.join(sorted(heavy)) or 'no heavy package'}")
    photographs = environment.work / "photographs"
    shutil.copytree(environment.packages / "legenda" / "assets" / "photographs", photographs)
    references = {path.stem: ["a photograph of something"] for path in photographs.iterdir()}
    (environment.work / "references.json").write_text(json.dumps(references))
    environment.run_lines(LIGHT, photographs="photographs")
    captions = json.loads((environment.work / "captions.json").read_text())
    if not all(entry["captions"][0]["caption"] for entry in captions) or len(captions) != len(references):
        sys.exit(f"not all photographs have captions: {captions}")
    environment.run("python", "-c", _readme_python()[0])
    environment.install(f"{wheel}[serve]")
    _serve(environment, next(photographs.iterdir()))
    environment.uninstall()
    return size


def _readme_python() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def _serve(environment: Environment, photograph: Path) -> None:
    """Start the server, caption a photograph over HTTP, and stop it; exit with a message where it gives no caption."""
    command = [environment.venv / "bin" / "legenda", "serve", "photo", "--port", "0"]
    with subprocess.Popen(
        command, cwd=environment.work, env=environment.variables, stdout=subprocess.PIPE, text=True
    ) as server:
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


def _cpu_index() -> str:
    """Return the index of PyTorch without CUDA; "" where it is not reached."""
    try:
        urllib.request.urlopen(f"{CPU_INDEX}/torch/", timeout=10).close()
    except OSError:
        print(f"{CPU_INDEX} is not reached: PyTorch is that of {sys.prefix}", flush=True)
        return ""
    return CPU_INDEX


def try_with_torch(wheel: Path, folder: Path) -> float:
    """Run README's commands and Python and the examples with PyTorch; return the MB of packages that it installs."""
    environment = Environment(folder, sys.executable, wheel, "[onnx,serve]", _cpu_index())
    size = environment.megabytes()
    environment.run_lines(WITH_TORCH, examples=str(ROOT / "examples"))
    for block in _readme_python():
        environment.run("python", "-c", f"import legenda\n{block}")
    environment.uninstall()
    load = "import legenda; print(len(legenda.load('photo').require_vocabulary()), 'words')"
    for source in (str(ROOT), f"git+{ROOT.as_uri()}"):
        environment.install("--no-deps", "--force-reinstall", source)
        environment.run("python", "-c", load)
    return size


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)  # the checkout must not stand for the installed wheel
    check_commands()
    built = build()
    metadata = check(built)
    if "--build-only" not in sys.argv:
        for version, python in interpreters(metadata).items():
            print(f"Python {version} without PyTorch", flush=True)
            size = try_without_torch(built, OUT / f"light-{version}", python)
            print(f"its packages have {size:.0f} MB, and uninstalling leaves nothing", flush=True)
        print("with PyTorch", flush=True)
        print(f"its packages have {try_with_torch(built, OUT / 'torch'):.0f} MB; the release is ready")
