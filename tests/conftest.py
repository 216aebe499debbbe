"""What all tests share."""

from pathlib import Path

import pytest

_SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material beside the project; tests that need it are skipped where it is absent."""
    if not _SHARED.is_dir():
        pytest.skip("needs the shared/ folder of reference material beside the project")
    return _SHARED
