"""What commands leave behind: their error messages and their files."""

from pathlib import Path


def error_of(result: tuple[int, str, str]) -> str:
    """Return the error message of a command that failed with code 2; lines of progress may precede it."""
    code, out, err = result
    assert (code, out) == (2, "")
    *before, sentence = err.splitlines()
    assert sentence.startswith("legenda ")
    assert all(line.startswith(("drawing ", "reading ")) or line.endswith((" pictures", " images")) for line in before)
    return sentence


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
