"""Which rows are released, masked, filled up or left out, each at the border of the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError
from sqlanon.policy import ReleaseSection
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.recode.stage import Recoding, recode_at
from support.databases import connect_to, live_connection
from support.policies import make_policy


@pytest.fixture(scope="module")
def live() -> Iterator[duckdb.DuckDBPyConnection]:
    with live_connection() as connection:
        yield connection


TREE = {"categories": {"low": ["a", "b"], "high": ["c", "d"]}}


@pytest.fixture(scope="module")
def draft(live: duckdb.DuckDBPyConnection) -> Iterator[ReleaseDraft]:
    """Class a has five rows; b, c and an unknown letter have one each."""
    live.execute("CREATE TABLE letters AS SELECT unnest(['a', 'a', 'a', 'a', 'a', 'b', 'c', 'x']) AS letter")
    attribute = {"role": "quasi", "hierarchy": TREE, "on_unknown": "suppress", "max_level": 0}
    policy = make_policy({"letter": attribute}, k=3, table="letters", search={"suppression_limit": 0.5})
    with connect_to(live) as db:
        yield db.anonymize(policy)._draft


def recode_case(draft: ReleaseDraft, masks: bool = True, has_noise: bool = False, **attribute: Any) -> Recoding:
    """The recoding at level 0, if suppressed rows are masked, the attribute has other limits, or another has noise."""
    policy = draft.search_input.policy
    letter = policy.attributes["letter"].model_copy(update={"max_level": None} | attribute)
    release = ReleaseSection(suppressed="mask" if masks else "drop")
    attributes = {"letter": letter} | ({"age": letter.model_copy(update={"noise": "any"})} if has_noise else {})
    changed = policy.model_copy(update={"attributes": attributes, "release": release})
    search_input = replace(draft.search_input, policy=changed)
    draft.run.engine.connection.execute(f"DROP TABLE IF EXISTS {draft.run.work('suppressed').sql('duckdb')}")
    return recode_at(StatementRunner(draft.run.engine), search_input, (0,), draft.result.figures)


def rows(draft: ReleaseDraft, recoding: Recoding) -> Counter[Any]:
    query = recoding.statement.select(shuffled=False)
    return Counter(row[0] for row in draft.run.engine.rows(query))


@pytest.mark.parametrize(
    ("attribute", "masked", "reason"),
    [
        ({}, 3, ""),
        ({"max_level": 1}, 0, "max_level keeps letter below the top label"),
        ({"forbidden": ("*",)}, 0, "the policy forbids the top label of letter"),
        ({"has_noise": True}, 0, "there is nothing above the values of age to mask them with"),
        ({"masks": False}, 0, ""),
    ],
)
def test_suppressed_rows_are_masked_where_the_policy_permits_the_top(
    attribute: dict[str, Any], masked: int, reason: str, draft: ReleaseDraft
) -> None:
    recoding = recode_case(draft, **attribute)
    assert (recoding.figures.suppressed_rows, recoding.masked_rows) == (3, masked)
    assert [warning.message.endswith(reason) for warning in recoding.warnings] == [True] * bool(reason)
    assert rows(draft, recoding) == {"a": 5} | ({"*": masked} if masked else {})


@pytest.mark.cases(2)
@pytest.mark.parametrize(
    ("letters", "privacy", "masked"),
    [
        ("aaaaaabc", {"k": 3}, 0),  # two masked rows do not form a class of three
        ("aaaab", {"k": 1, "sample_uniqueness": 0.2}, 1),
        ("aaaab", {"k": 1, "sample_uniqueness": 0.19}, 0),
        ("aaaabc", {"k": 1, "average_risk": 0.34, "sample_uniqueness": 0.0}, 2),
        ("aaaabc", {"k": 1, "average_risk": 0.33, "sample_uniqueness": 0.0}, 0),
    ],
)
def test_masked_rows_form_a_class_that_meets_the_policy(
    letters: str, privacy: dict[str, Any], masked: int, live: duckdb.DuckDBPyConnection
) -> None:
    live.execute(f"CREATE OR REPLACE TABLE t AS SELECT unnest({[*letters]}) AS letter")
    unknown = {"role": "quasi", "hierarchy": {"categories": {"low": ["a"], "high": ["z"]}}, "on_unknown": "suppress"}
    if privacy["k"] == 3:
        unknown = {"role": "quasi", "hierarchy": TREE}
    policy = make_policy(
        {"letter": unknown},
        k=privacy["k"],
        privacy={key: value for key, value in privacy.items() if key != "k"},
        search={"suppression_limit": 0.5, "measure": "loss"},
        release={"suppressed": "mask"},
    )
    with connect_to(live) as db:
        result = db.anonymize(policy)
        assert (result.generalization, result.released_rows) == ({"letter": 0}, letters.count("a") + masked)
        released = Counter(live.sql(result.sql()).fetchall())
    assert released == {("a",): letters.count("a")} | ({("*",): masked} if masked else {})


def test_decoys_have_the_values_of_kept_rows_of_the_nearest_class(
    live: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Forty letters have one row each, and are filled up to two by a row of a, which alone has two rows under low;
    the letter z has one row, and takes its decoy from d."""
    letters = [f"b{i}" for i in range(40)]
    live.execute("CREATE OR REPLACE TABLE t (letter VARCHAR, ill VARCHAR)")
    live.execute("INSERT INTO t VALUES ('a', 'flu'), ('a', 'gout'), ('d', 'cut'), ('d', 'cut'), ('z', 'HIV')")
    live.execute(f"INSERT INTO t SELECT unnest({letters}), 'HIV'")
    tree = {"categories": {"low": ["a", *letters], "high": ["d", "z"]}}
    policy = make_policy(
        {"letter": {"role": "quasi", "hierarchy": tree, "max_level": 0}, "ill": "sensitive"},
        search={"suppression_limit": 1, "measure": "loss"},
        release={"decoys": True},
        catalog={"database": tmp_path / "private.duckdb"},
    )
    with connect_to(live) as db:
        result = db.anonymize(policy)
        assert result.decoys is not None and result.decoys.to_dict() == {
            "rows": 41,
            "classes": 41,
            "smallest_class_without": 1,
        }
        (notice,) = [
            warning
            for warning in result._draft.recoding.warnings
            if "of the released rows are decoys" in warning.message
        ]
        assert notice.affected == 41  # the real rows of these classes
        drawn = Counter(live.sql(result.sql()).fetchall())
        drawn.subtract(live.execute("FROM t").fetchall())
    assert min(drawn.values()) == 0
    assert Counter(letter for letter, _ in drawn.elements()) == Counter([*letters, "z"])
    values = Counter(ill for letter, ill in drawn.elements() if letter != "z")
    assert drawn["z", "cut"] == 1 and values.keys() == {"flu", "gout"}
    assert min(values.values()) >= 3  # of 40 draws, with a probability of one in 50 million for fewer


# --- persons of a population that no row can match


def test_a_population_beyond_the_hierarchy_matches_no_row(live: duckdb.DuckDBPyConnection) -> None:
    """The top of countries is Europe, so no label matches a person from Japan."""
    live.execute("CREATE OR REPLACE TABLE t AS SELECT unnest(['France', 'France', 'Italy']) AS country")
    countries = {"role": "quasi", "hierarchy": {"categories": {"Europe": ["France", "Italy"]}}}

    def anonymize(more: list[str], **privacy: Any) -> sqlanon.Result:
        query = f"SELECT unnest({['France', 'France', 'Italy', *more]}) AS country"
        policy = make_policy({"country": countries}, k=1, privacy=privacy, population={"query": query})
        with connect_to(live) as db:
            return db.anonymize(policy)

    assert anonymize(["Japan"], k_map=2).generalization == {"country": 1}
    with pytest.raises(InfeasibleError, match="1 rows of the population have values that are not in the hierarchy"):
        anonymize(["Japan"], delta_presence={"min": 0.1, "max": 1})
