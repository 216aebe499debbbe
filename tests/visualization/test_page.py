"""The example of docs/guides/visualization.md runs."""

from pathlib import Path


def test_the_example_of_the_page_on_viewing_runs(capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "visualization.md").read_text(encoding="utf-8")
    exec(compile(page.split("```python\n")[1].split("```")[0], "visualization.md", "exec"), {})
    assert capsys.readouterr().out == "(320, 240) (760, 262)\n"
