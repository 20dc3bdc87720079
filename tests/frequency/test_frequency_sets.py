"""Large tables: frequency sets at several levels. The answer stays the same."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from people_cases import people, policy_of
from sqlglot import exp

import sqlanon
from properties import privacy_cases, privacy_checks, random_cases, search_checks
from properties.privacy_cases import PrivacyCase
from properties.random_cases import Case
from properties.search_checks import thorough
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.frequency.codes import assign_packs
from sqlanon.frequency.sets import draw_shares, expected_classes
from sqlanon.support.coding import CodedAttribute
from sqlanon.support.expressions import table
from support.lanes import examples, some
from support.thresholds import COARSE_SET, ROWS_PER_CODE, SMALL_SET


@pytest.fixture(autouse=True)
def _everything_is_large(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A table of any size is taken for a large one."""
    monkeypatch.setattr(SMALL_SET, 0)
    monkeypatch.setattr(COARSE_SET, 4)
    monkeypatch.setattr(ROWS_PER_CODE, 1 / 64)  # attributes share columns
    yield


@settings(thorough, max_examples=examples(20))
@given(case=random_cases.cases())
def test_optimal_search_matches_the_oracle(case: Case) -> None:
    search_checks.check(case, "optimal")


@pytest.mark.slow
@settings(thorough, max_examples=examples(60))
@given(case=privacy_cases.privacy_cases())
def test_requirements_match_the_oracle(case: PrivacyCase) -> None:
    privacy_checks.check(case)


@pytest.fixture
def database() -> Iterator[sqlanon.Database]:
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE people AS {people(20_000)}")
    with sqlanon.connect(connection) as opened:
        yield opened


REQUIREMENTS = [
    {"k": 5},
    {"k": 3, "l_diversity": [{"attribute": "diagnosis", "kind": "entropy", "l": 2}]},
    {"k": 3, "t_closeness": [{"attribute": "diagnosis", "distance": "equal", "t": 0.4}]},
]


@pytest.mark.thorough
@pytest.mark.parametrize("privacy", some(REQUIREMENTS, 3), ids=["k", "entropy", "closeness"])
def test_several_sets_change_no_answer(
    database: sqlanon.Database, privacy: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = database.anonymize(policy_of(**privacy))
    monkeypatch.setattr(SMALL_SET, 10**9)
    small = database.anonymize(policy_of(**privacy))
    assert (large.generalization, large.score, large.suppressed_rows, large.classes, large.optimal) == (
        small.generalization, small.score, small.suppressed_rows, small.classes, small.optimal,
    )  # fmt: skip


def test_the_guess_is_the_mean_where_attributes_have_nothing_to_do_with_one_another() -> None:
    draw = random.Random(7)
    first, second = [60, 30, 10], [50, 25, 15, 5, 3, 2]
    seen = [
        len(set(zip(draw.choices(range(3), first, k=100), draw.choices(range(6), second, k=100), strict=True)))
        for _ in range(500)
    ]
    guess = expected_classes([draw_shares(first, 1), draw_shares(second, 2)], 100)
    assert guess == pytest.approx(sum(seen) / len(seen), rel=0.15)


def test_expected_classes_are_exact_at_the_ends() -> None:
    assert expected_classes([], 100) == 1
    assert expected_classes([draw_shares([100], 1)], 100) == 1
    assert expected_classes([draw_shares([1] * 90_000, 1), draw_shares([1] * 50_000, 2)], 1_000) == pytest.approx(1_000)


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that read the source, as they are run."""
    run: list[str] = []
    generate = DuckDBEngine.sql

    def note_statement(self: DuckDBEngine, expression: exp.Expr) -> str:
        text = generate(self, expression)
        if re.search(r'FROM "sqlanon_work_\w+"\."\w+_views"\."sqlanon_work\w*_source"(?! LIMIT 0)', text):
            run.append(text)
        return text

    monkeypatch.setattr(DuckDBEngine, "sql", note_statement)
    return run


@pytest.mark.thorough
def test_a_small_table_is_read_once_by_columns_and_twice_by_rows(
    database: sqlanon.Database, statements: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(SMALL_SET, 10**9)
    result = database.anonymize(policy_of(k=5))
    texts = [text for text in statements if "frequency_" in text]
    values = [text for text in statements if "values_" in text]
    assert (len(values), len(texts), len(statements)) == (
        4,
        1,
        4 + 1 + 4,
    )  # and two for who may be a person, one each for what is nearly unique, and what narrows
    statements.clear()
    result.publish(tmp_path / "release.duckdb")
    assert len(statements) == 1


@pytest.mark.thorough
def test_a_large_table_is_coded_once_and_counted_from_its_codes(
    database: sqlanon.Database, statements: list[str]
) -> None:
    database.anonymize(policy_of(k=3, l_diversity=[{"attribute": "diagnosis", "kind": "entropy", "l": 2}]))
    tables = [match[1] for text in statements if (match := re.match(r'CREATE TABLE .*?"(\w+)" AS', text))]
    assert sorted(tables) == ["codes", "narrowing_rows", "sensitive_0", "values_0", "values_1", "values_2", "values_3"]


def test_attributes_share_a_column_while_their_codes_fit() -> None:
    attributes = [CodedAttribute(f"q{i}", 1, table(f"coded_{i}")) for i in range(6)]
    attributes[3] = replace(attributes[3], unknown=True)
    attributes[4] = replace(attributes[4], height=0)
    packs = assign_packs(attributes, [2, 30_000, 41, 3, 3, 700], rows=10**8)
    assert [dict(pack.factors) for pack in packs] == [{1: 1}, {5: 1, 2: 700}, {3: 1}, {4: 1}, {0: 1}]
    few = assign_packs(attributes, [2, 30_000, 41, 3, 3, 700], rows=2)  # a pack may have 128 codes
    assert [dict(part.factors) for part in few] == [{1: 1}, {5: 1}, {2: 1, 0: 41}, {3: 1}, {4: 1}]
