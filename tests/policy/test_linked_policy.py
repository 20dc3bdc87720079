"""Mistakes in a policy of linked tables are refused with their place."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sqlanon.errors import PolicyError
from sqlanon.policy.linked import LinkedPolicy
from support.linked_databases import KEY, ORDER_LINES, QUASI, persons_and_rows

AFTER = {"database": "new.duckdb", "after": "old"}
CATALOG = {"catalog": {"database": "catalog.duckdb"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": []}, "must be one table or more"),
        ({"privacy": {"k": 2, "known": 4}}, 'privacy.known: must be 1, 2, 3 or "all", not 4'),
        ({"search": {"strategy": "subtree"}}, "is not supported with several tables"),
        ({"table": [persons_and_rows()["table"][1]]}, "exactly one table has person"),
        ({"table": [persons_and_rows()["table"][0]] * 2}, "two tables are named 'p'"),
        (
            persons_and_rows(rows={"references": {"pid": "pp"}}),
            "table 'pp' does not exist; did you mean 'p'?",
        ),
        ({"table": [{**persons_and_rows()["table"][0], "attributes": {}}]}, "'id' has no role"),
        ({"search": {"row_suppression_limit": 0.1}}, "table[1].key: is missing"),
        ({"source": {"scratch": "shared"}}, "source.scratch: applies to tables in Spark: leave it out"),
        (
            {"source": {"spark": "local[2]", "postgres": "env:HOSPITAL"}},
            "source.postgres: give postgres = ... or spark = ...: only one",
        ),
        (
            {"source": {"spark": "local[2]", "csv": {"skip": 2}}},
            "source.csv: is for CSV files, and the tables are in Spark",
        ),
        (
            {"source": {"spark": "local[2]"}, "search": {"strategy": "mondrian"}},
            "search.strategy: 'mondrian' is not supported for tables in Spark",
        ),
        (
            {"source": {"database": "a.duckdb"}, "release": {"spark": True, "schema_name": "shared"}},
            "release.spark: applies to tables in Spark, and these are elsewhere",
        ),
        (
            {"source": {"spark": "local[2]"}, "release": {"spark": True}},
            "release.schema_name: is missing: name the schema",
        ),
        ({"release": AFTER}, "release.after: needs the ledger, which is in the catalog"),
        (
            {"release": AFTER, **CATALOG, "search": {"strategy": "mondrian"}},
            "release.after: 'mondrian' has no levels to compare with an earlier release",
        ),
    ],
)
def test_a_wrong_policy_is_refused_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        LinkedPolicy(**persons_and_rows(**changes))


def test_a_release_is_made_from_an_earlier_one_that_the_catalog_has() -> None:
    assert LinkedPolicy(**persons_and_rows(release=AFTER, **CATALOG)).release is not None
    LinkedPolicy(**persons_and_rows(release={"database": "new.duckdb"}, search={"strategy": "mondrian"}, **CATALOG))


def test_cycles_are_refused() -> None:
    first = persons_and_rows()["table"][0]
    keys = {"id": {"role": "key"}, "other": {"role": "key"}}
    b = {"name": "b", "key": "id", "references": {"other": "c"}, "attributes": keys}
    c = {"name": "c", "key": "id", "references": {"other": "b"}, "attributes": keys}
    with pytest.raises(PolicyError, match="b > c > b is a cycle"):
        LinkedPolicy(**persons_and_rows(table=[first, b, c]))


@pytest.mark.parametrize(
    ("tree", "place", "message"),
    [
        (
            persons_and_rows(
                persons={"attributes": {"id": KEY, "Q": {"role": "identifying"}, "q": {"role": "insensitive"}}}
            ),
            "table[0].attributes.q", "differs from 'Q' only in case",
        ),
        (persons_and_rows(rows={"name": "p_v1"}), "table[1].name", "a release keeps versions of 'p' under such names"),
        (persons_and_rows(rows={"name": "p_v1_manifest"}), "table[1].name", "versions of 'p' under such names"),
        (persons_and_rows(search={"max_checks": 0}), "search.max_checks", "must be at least 1"),
        (persons_and_rows(search={"time_limit": -1}), "search.time_limit", "must be more than 0"),
    ],
)  # fmt: skip
def test_mistakes_within_a_table_are_refused_with_their_place(tree: dict[str, Any], place: str, message: str) -> None:
    with pytest.raises(PolicyError) as error:
        LinkedPolicy(**tree)
    problems = {problem.place: problem.message for problem in error.value.problems}
    assert message in problems[place]


def test_a_table_whose_key_is_partly_a_reference_has_no_children() -> None:
    tree = persons_and_rows(rows=ORDER_LINES)
    notes = {"pid": KEY, "no": KEY, "x": QUASI}
    tree["table"].append({"name": "n", "references": {"pid": "v", "no": "v"}, "attributes": notes})
    with pytest.raises(PolicyError, match=r"table\[2\].references.pid: a part of the key of 'v' is a reference itself"):
        LinkedPolicy(**tree)
