"""What all tests share."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import jaxtyping
import pytest
from jaxtyping import install_import_hook

if TYPE_CHECKING:
    from playwright import sync_api

    from legenda import Regions

# Shapes and types in the signatures of these modules are checked at every call in the tests of attention, models,
# decoding and extras; all others run the library as users have it, which is faster. Other modules are left out because
# beartype cannot read their `Self` or Protocol, or because they tell a user of wrong shapes in words of their own.
_CHECKED = [
    "attention",
    "decoding.generation",
    "decoding.ensemble",
    "decoding.search",
    "models.transformer",
    "models.layers",
    "extras.vqa.model",
    "extras.translation.model",
]
pytest_plugins = ["run_fixtures", "hub_server"]

install_import_hook([f"legenda.{module}" for module in _CHECKED], "beartype.beartype")
jaxtyping.config.update("jaxtyping_disable", True)

# A busy machine is no failure.
hypothesis.settings.register_profile("legenda", deadline=None)
hypothesis.settings.load_profile("legenda")

_TESTS = Path(__file__).resolve().parent
_SHARED = _TESTS.parents[1] / "shared"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Check the shapes of annotated signatures in the tests of the folders that are about them."""
    room = item.path.relative_to(_TESTS).parts[0]
    jaxtyping.config.update("jaxtyping_disable", room not in {"attention", "models", "decoding", "extras"})
    return (yield)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the project; tests that need it are skipped where it is absent."""
    if not _SHARED.is_dir():
        pytest.skip("needs the shared/ folder of reference material beside the project")
    return _SHARED


@pytest.fixture
def offline(monkeypatch) -> None:
    """No network: what HF_HUB_OFFLINE=1 sets when huggingface_hub is imported."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.fixture
def unchecked_shapes(monkeypatch) -> None:
    """The library as users have it, without the checks of shapes that these tests install."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


@pytest.fixture(scope="session")
def draw_regions() -> Callable[..., Regions]:
    """Random regions of pictures with so many real regions each: `draw_regions((5, 3), dim=6, seed=0)`."""
    import torch

    from legenda import Regions

    def draw(counts: Sequence[int], *, dim: int, seed: int = 0) -> Regions:
        generator = torch.Generator().manual_seed(seed)
        features = torch.randn(len(counts), max(counts), dim, generator=generator)
        corners = torch.rand(len(counts), max(counts), 2, generator=generator) * 0.6
        sizes = torch.rand(len(counts), max(counts), 2, generator=generator) * 0.3 + 0.05
        mask = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
        return Regions(features, torch.cat([corners, corners + sizes], dim=-1), mask)

    return draw


@pytest.fixture(scope="session")
def sized() -> Callable[..., dict[str, Any]]:
    """Keep the given options that a model has: `sized("xlan", dim=16, ff_dim=24)`.

    `dropout` stands for every kind of dropout that the model has.
    """
    from legenda.models import describe_model

    def choose(name: str, *, dropout: float | None = None, **options: Any) -> dict[str, Any]:
        own = {field: info.default for field, info in describe_model(name).config.model_fields.items()}
        rates = [kind for kind, usual in own.items() if kind.endswith("dropout") and isinstance(usual, float)]
        return {kind: dropout for kind in rates if dropout is not None} | {
            key: value for key, value in options.items() if key in own
        }

    return choose


@pytest.fixture(scope="session")
def largest() -> Callable[[], Any]:
    """Watches the size of the largest tensor that any operation gives.

    `with largest() as found: ...` leaves it in `found.elements`.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = func(*args, **(kwargs or {}))
            for part in found if isinstance(found, tuple | list) else (found,):
                if isinstance(part, torch.Tensor):
                    self.elements = max(self.elements, part.numel())
            return found

    return Largest


@pytest.fixture(scope="session", autouse=True)
def every_layer_is_packed() -> None:
    """Weights are packed from the first on, as those of wide models are, so that small models meet the same code."""
    from legenda.models import packing

    packing.MIN_NUMEL = 1


@pytest.fixture
def forget_plugins(monkeypatch) -> Iterator[Callable[[], None]]:
    """Forget all plugins when it is called, as a new process has none; what a test registers is forgotten after it."""
    from legenda import registry

    def forget() -> None:
        for name in registry._files:
            sys.modules.pop(name, None)
        registry._files.clear()
        registry._entry_points_loaded = False
        for known in registry._registries:
            known._added.clear()

    monkeypatch.setattr(sys, "path", list(sys.path))
    forget()
    yield forget
    forget()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Torch keeps to one thread meanwhile: what small models do is slower and less alike with more."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    """A real browser without a window; tests that need it are skipped where none is installed."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    with sync_api.sync_playwright() as playwright:
        program = next(filter(None, map(shutil.which, BROWSERS)), playwright.chromium.executable_path)
        if not Path(program).exists():
            pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is installed, nor that of playwright")
        browser = playwright.chromium.launch(executable_path=program, args=list(BROWSER_ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def serve_folder() -> Iterator[Callable[..., str]]:
    """Serves the files of a folder by HTTP on this machine: `serve_folder(folder)` is the address."""
    with ExitStack() as servers:

        def serve(folder: Path, handler: type[SimpleHTTPRequestHandler] = SimpleHTTPRequestHandler) -> str:
            server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
            servers.enter_context(server)
            servers.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            return f"http://127.0.0.1:{server.server_address[1]}"

        yield serve
