"""The tool that plants faults: it finds them in Python and in SQL, and a fault that tests notice is killed."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import plant
import pytest
from faults import mutants_of

SOURCE = '''
"""A module < 1."""
from templates import template

_ROWS = template("""
    SELECT count(*) AS n
    FROM :rows AS r
    LEFT JOIN :others AS o ON o.x IS NOT DISTINCT FROM r.x
    WHERE n < :k AND NOT o.x IS NULL
""")
_NAMES = {"a AND b": 1}


def few(n: int = 0) -> bool:
    """Whether n < 5."""
    if n < 5 and n:
        raise ValueError(f"{n + 1} < 5")
    return True
'''


def faults(text: str, lines: set[int] | None = None) -> set[tuple[int, str, str]]:
    return {(fault.line, fault.old.strip(), fault.new.strip()) for fault in mutants_of(Path("x.py"), text, lines)}


def test_faults_are_in_code_and_in_the_sql_of_templates() -> None:
    assert faults(SOURCE) == {
        (6, "count(*)", "1"),
        (8, "LEFT JOIN", "JOIN"),
        (8, "IS NOT DISTINCT FROM", "="),
        (9, "<", "<="),
        (9, "AND", "OR"),
        (9, "NOT", ""),
        (9, "IS NULL", "IS NOT NULL"),
        (11, "1", "2"),
        (14, "0", "1"),
        (16, "<", "<="),
        (16, "5", "6"),
        (16, "and", "or"),
        (18, "True", "False"),
    }
    assert {line for line, *_ in faults(SOURCE, {9, 16})} == {9, 16}


def test_each_fault_changes_its_place_alone() -> None:
    for fault in mutants_of(Path("x.py"), SOURCE):
        lines = zip(SOURCE.splitlines(), fault.applied(SOURCE).splitlines(), strict=True)
        assert [i for i, (before, after) in enumerate(lines, start=1) if before != after] == [fault.line]


@pytest.mark.thorough
@pytest.mark.parametrize(("test", "survivors"), [("few(4) and not few(5)", 0), ("few(4)", 1)])
def test_an_unnoticed_fault_survives(
    test: str,
    survivors: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sqlanon").mkdir()
    (tmp_path / "sqlanon" / "__init__.py").touch()
    (tmp_path / "sqlanon" / "few.py").write_text("def few(n):\n    return n < 5\n")
    (tmp_path / "test_few.py").write_text(f"from sqlanon.few import few\ndef test(): assert {test}\n")
    monkeypatch.setattr(plant, "ROOT", tmp_path)
    monkeypatch.setattr(plant, "COPIED", ("sqlanon", "test_few.py"))
    monkeypatch.setattr(
        sys, "argv", ["plant.py", "--file", "sqlanon/few.py", "--only", "<", "-p", "no:xdist", "test_few.py"]
    )
    assert plant.main() == survivors
    assert f"{1 - survivors} of 1 faults were noticed" in capsys.readouterr().out
    assert (tmp_path / "sqlanon" / "few.py").read_text() == "def few(n):\n    return n < 5\n"


@pytest.mark.slow
def test_tests_that_hang_are_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "few.py").write_text("WAIT = 0\n")
    (tmp_path / "test_few.py").write_text("import time, few\ndef test(): time.sleep(few.WAIT)\n")
    monkeypatch.setattr(plant, "ROOT", tmp_path)
    monkeypatch.setattr(plant, "COPIED", ("few.py", "test_few.py"))
    (copied := tmp_path / "copy").mkdir()
    tests = ["-p", "no:xdist", "test_few.py"]
    hangs = plant.Fault("it waits", "few.py", lambda text: text.replace("0", "60"))
    assert plant.Copy(copied, patience=5).plant(hangs, [tests]) == "LATE"
    assert (copied / "few.py").read_text() == "WAIT = 0\n"


def test_a_listed_fault_is_found_after_its_text_is_indented(tmp_path: Path) -> None:
    path = tmp_path / "list.toml"
    path.write_text("""
[[mutant]]
id = "X01"
file = "few.py"
old = "FROM a\\nWHERE n"
new = "FROM a WHERE NOT n"
effect = "the others"
""")
    (fault,) = plant.listed_faults(path)
    assert fault.apply("SELECT 1\n    FROM a\n    WHERE n > 1") == "SELECT 1\n    FROM a WHERE NOT n > 1"
    with pytest.raises(SystemExit, match=r"X01: its text occurs 2 times in few\.py"):
        fault.apply("FROM a\nWHERE n; FROM a\n WHERE n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first.toml", "second.toml"])
def test_each_fault_of_a_list_can_be_planted(name: str) -> None:
    """Its text stands once in its file: a change of that line has to change the list, too."""
    for fault in plant.listed_faults(Path(__file__).with_name(name)):
        planted = fault.apply((plant.ROOT / fault.file).read_text(encoding="utf-8"))
        if fault.file.endswith(".py"):
            compile(planted, fault.file, "exec")


@pytest.mark.thorough
def test_faults_of_the_whole_package_are_drawn_by_their_seed() -> None:
    first, again, third = ([fault.name for fault in plant.draw_faults(3, random.Random(seed))] for seed in (1, 1, 2))
    assert len(first) == 3 and first == again != third
