"""The costs of tests, read from records of several processes, and recorded by a run of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from costs import Cost, read_costs

TESTS = Path(__file__).parent


def test_the_cases_of_a_test_are_added_up_over_processes(tmp_path: Path) -> None:
    records = [("t.py::one[a]", 1.0, [1, 2]), ("t.py::one[b]", 2.0, [2, 3]), ("t.py::two", 4.0, [3])]
    for i, (test, seconds, lines) in enumerate(records):
        text = json.dumps({"test": test, "seconds": seconds, "lines": {"x.py": lines}})
        with (tmp_path / f"{i % 2}.jsonl").open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    assert read_costs(tmp_path) == {
        "t.py::one": Cost(3.0, frozenset({("x.py", 1), ("x.py", 2), ("x.py", 3)})),
        "t.py::two": Cost(4.0, frozenset({("x.py", 3)})),
    }


@pytest.mark.thorough
@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python monitors lines since 3.12")
def test_a_run_records_the_lines_of_the_package(tmp_path: Path) -> None:
    """Each test that runs a line has it, not the first alone."""
    (tmp_path / "test_two.py").write_text(
        "import pytest\nfrom sqlanon.engines.limits import Limits\n\n"
        "@pytest.mark.parametrize('threads', [1, 2])\ndef test_it(threads):\n    Limits(threads=threads)\n\n"
        "def test_nothing():\n    pass\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "COSTS": str(tmp_path / "costs"), "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "costs", "-p", "no:cacheprovider", "test_two.py"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)
    records = [
        json.loads(line)
        for path in (tmp_path / "costs").glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    lines = {record["test"].partition("::")[2]: record["lines"] for record in records}
    assert lines["test_nothing"] == {}
    assert lines["test_it[1]"].keys() == lines["test_it[2]"].keys() == {str(Path("engines", "limits.py"))}
