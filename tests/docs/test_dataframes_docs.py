"""docs/how-to/dataframes.md and the tutorial notebook are true: their Python runs as it stands."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from sqlanon.publish.stage import NOT_COMPARED
from support.pages import ROOT, blocks

PAGE = (ROOT / "docs" / "how-to" / "dataframes.md").read_text(encoding="utf-8")
NOTEBOOK = ROOT / "docs" / "tutorial" / "from-a-data-frame.ipynb"


@pytest.mark.thorough
def test_python_blocks_print_the_documented_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("polars", reason="the extra polars is not installed")
    monkeypatch.chdir(tmp_path)
    program = "\n".join(blocks("python", PAGE))
    exec(compile(program, "docs/how-to/dataframes.md", "exec"), {})
    matches = re.findall(r"^ *print\(.*\)  # (.*)$", program, re.MULTILINE)
    assert matches and capsys.readouterr().out.splitlines() == matches


def cells(kind: str) -> list[dict[str, Any]]:
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_the_notebook_has_no_outputs() -> None:
    """They would change at every run. Its links go to existing pages."""
    for cell in cells("code"):
        assert (cell["outputs"], cell["execution_count"], cell["metadata"]) == ([], None, {})
    text = "".join(line for cell in cells("markdown") for line in cell["source"])
    links = re.findall(r"\]\((.*?)\)", text)
    assert links and all((NOTEBOOK.parent / link).is_file() for link in links)


@pytest.mark.thorough
def test_the_notebook_ends_with_a_verified_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the cells in order, as a kernel does; the last value of each has a display."""
    pytest.importorskip("pandas", reason="the extra pandas is not installed")
    pytest.importorskip("altair", reason="the extra report is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in cells("code"):
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), cell["id"], "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)  # type: ignore[attr-defined]
            assert (
                value is None
                or getattr(value, "_repr_html_", None)
                or getattr(value, "_repr_mimebundle_", None)
                or value == ()
            )
    result, better, release = names["result"], names["better"], names["release"]
    assert release.verify().verified and release.manifest.smallest_class >= 5
    assert better.score < result.score, "the other strategy keeps more"
    for run_result in (result, better):
        suppressed = [name for name, level in run_result.generalization.items() if level == run_result.heights[name]]
        assert not suppressed, "no column is lost"
    assert {*better.warnings, *result.warnings} == {NOT_COMPARED}
