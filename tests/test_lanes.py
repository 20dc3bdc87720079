"""Which tests run when: shares of examples and cases, and the steps of continuous integration."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from support import lanes
from support.lanes import some

CI = Path(__file__).resolve().parent.parent / ".ci" / "run"


@pytest.mark.parametrize(
    ("examples", "number", "expected"),
    [
        (0.1, 100, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90]),
        (0.1, 24, [0, 12]),
        (0.1, 3, [0]),
        (0.1, 2, [0, 1]),
        (1, 9, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        (10, 9, [0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_share_of_the_cases_is_spread_over_all(
    examples: float, number: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "EXAMPLES", examples)
    assert lanes.share(list(range(number))) == expected


def test_mark_sets_the_minimum_number_of_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "EXAMPLES", 0.1)
    assert lanes.share(list(range(9)), 3) == [0, 3, 6]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.cases(3)
def test_the_marked_number_of_cases_is_in_the_quick_lane(number: int, request: pytest.FixtureRequest) -> None:
    assert (request.node.get_closest_marker("slow") is None) == (number in (0, 2, 4))


@pytest.mark.thorough
def test_thorough_tests_are_slow_and_left_out_of_a_share(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("slow") is not None and lanes.EXAMPLES >= 1


STUB = """#!/bin/bash
echo "stub $0 $*" >>"$CALLS"
case "$*" in
    *"-m venv "*)
        mkdir -p "${@: -1}/bin"; for name in pip python mypy sqlanon; do cp "$STUB" "${@: -1}/bin/$name"; done ;;
esac
case "$0 $*" in *$FAILING*) exit 3 ;; esac
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "failing",
    some(
        [
            "nothing at all",
            "-m venv .venv",
            "install -q .",
            "sqlanon demo",
            "tests/run.py",
            "benchmarks/imports.py",
            "-m slow or extras",
            "[test-spark]",
            "-m spark",
            "mypy",
            "tests/oldest.py",
            "-e .[test,all]",
            "-n 0 -m not slow",
        ],
        8,
    ),
)
@pytest.mark.skipif(os.name != "posix", reason="needs bash")
def test_continuous_integration_fails_if_a_step_does(failing: str, tmp_path: Path) -> None:
    """Every program is one that does nothing, but that the one fails."""
    folder, programs, calls = tmp_path / "project", tmp_path / "programs", tmp_path / "calls"
    (folder / ".ci").mkdir(parents=True)
    (folder / ".ci" / "run").write_text(CI.read_text(encoding="utf-8"), encoding="utf-8")
    programs.mkdir()
    for name in ("python3", "python3.10", "python3.14", "ls", "apt-get"):
        (programs / name).write_text(STUB, encoding="utf-8")
        (programs / name).chmod(stat.S_IRWXU)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "CALLS": str(calls),
        "STUB": str(programs / "python3"),
        "FAILING": failing.replace("[", "\\[").replace("]", "\\]").replace(" ", "\\ "),
        "PYENV_ROOT": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", folder / ".ci" / "run"], env=environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode == 0) == (failing == "nothing at all"), done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("s)") and ("== passed" in done.stdout) == (done.returncode == 0)
    if failing in ("-m spark", "tests/oldest.py"):  # the one does not keep the other from its end
        text = calls.read_text(encoding="utf-8")
        assert "-m spark" in text and "tests/oldest.py" in text
