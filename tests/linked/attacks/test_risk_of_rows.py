"""The risk of linked tables counts the persons whom child rows single out, as an oracle does."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from oracles.oracle_linked import Known, LinkedDatabase, View, fewest_matches
from properties.linked_cases import make_linked_case
from sqlanon.database import connect
from sqlanon.linked.attacks.matching import Matches
from sqlanon.policy.linked import LinkedPolicy
from support.commands import cli
from support.lanes import some
from support.linked_hospital import make_hospital


def expected_risks(
    database: LinkedDatabase, k: int, knowledge: Sequence[Known], table: int | None = None
) -> Iterator[tuple[Any, ...]]:
    """For each number of known rows: unique persons, persons below k, fewest matches, and the average risk."""
    view, everybody = View(database, (0,) * len(database.heights)), database.everything
    for known in knowledge:
        matches = [count or 0 for count in fewest_matches(view, everybody, everybody, known, table).values()]
        risk = sum(1 / count for count in matches) / len(matches)
        yield matches.count(1), sum(count < k for count in matches), min(matches), pytest.approx(risk)


def figures(matches: Sequence[Matches]) -> list[tuple[Any, ...]]:
    return [
        (
            known_matches.unique_persons,
            known_matches.persons_below_k,
            known_matches.fewest_matches,
            known_matches.average_risk,
        )
        for known_matches in matches
    ]


def check_case(number: int, folder: Path) -> None:
    case = make_linked_case(number)
    database = folder / "source.duckdb"
    with duckdb.connect(str(database)) as connection:
        case.fill(connection)
    with connect() as db:
        risk = db.risk(LinkedPolicy(**case.policy(source={"database": database})))
    knowledge = [matches.known for matches in risk.together]
    assert figures([risk.alone]) == [*expected_risks(case.database, case.k, [0])]
    assert figures(risk.together) == [*expected_risks(case.database, case.k, knowledge)]
    for t, table in enumerate(case.database.tables[1:], 1):
        assert figures(risk.tables[table.name]) == [*expected_risks(case.database, case.k, knowledge, t)]


@pytest.mark.slow
@pytest.mark.parametrize("number", some(range(5), every=3))
def test_risks_are_those_of_the_oracle(number: int, tmp_path: Path) -> None:
    check_case(number, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("number", range(5, 300))
def test_risks_of_more_cases_are_those_of_the_oracle(number: int, tmp_path: Path) -> None:
    check_case(number, tmp_path)


def test_the_command_prints_each_table_and_all_together(tmp_path: Path) -> None:
    make_hospital(tmp_path)
    ended = cli("risk", tmp_path / "policy.toml")
    assert ended.status == 0
    for words in ("60 persons; ", "2 child rows, visits", "all child rows, labs", "all child rows, all tables"):
        assert words in ended.out
    printed = json.loads(cli("risk", tmp_path / "policy.toml", "--json").out)
    assert printed["tables"].keys() == {"visits", "labs"}
    assert printed["tables"]["visits"].keys() == printed["together"].keys() == {"1", "2", "all"}
    assert printed["together"]["2"]["share"] >= printed["tables"]["visits"]["2"]["share"] > printed["alone"]["share"]
    assert printed["persons_below_k"] == printed["together"]["2"]["persons_below_k"] > 0
    refused = cli("risk", tmp_path / "policy.toml", "--suda", "--leakage", "2")
    assert refused.status == 2
    assert "--suda: is for one table" in refused.err and "--leakage: is for" in refused.err
