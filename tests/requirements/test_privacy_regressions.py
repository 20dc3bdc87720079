"""Mistakes that were made once, each as small as it can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.audit.verify import verify_file
from support.lanes import some
from support.policies import make_policy


def anonymize_rows(
    rows: str, columns: str, attributes: dict[str, Any], privacy: dict[str, Any], **sections: Any
) -> Any:
    """The result on a table of these rows; or the error."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM (VALUES {rows}) v({columns})")
        connection.execute(
            "CREATE TABLE crowd AS SELECT q, r FROM t UNION ALL SELECT 'p' || i, 1 FROM range(30) x(i)"
        ) if ("population" in sections) else None
        policy = sqlanon.Policy(
            source={"table": "t", **sections.pop("source", {})},
            attributes=make_policy(attributes).attributes,
            privacy=privacy,
            **sections,
        )
        with sqlanon.connect(connection) as db:
            return db.anonymize(policy)


@pytest.mark.slow
def test_a_group_of_one_value_beside_a_diverse_one_breaks_joint_recursive_diversity() -> None:
    """Its figure is NULL, which an aggregate would pass over."""
    requirements = {"l_diversity": [{"attribute": "s", "kind": "recursive", "l": 2, "c": 3, "joint": True}]}
    attributes = {"q": "suppress", "u": "sensitive", "s": "sensitive"}
    with pytest.raises(sqlanon.InfeasibleError):
        anonymize_rows("('a', 'f', 'x'), ('a', 'f', 'y'), ('a', 'g', 'x')", "q, u, s", attributes, requirements)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["optimal", "k_minimal"])
def test_classes_that_only_the_population_has_cost_nothing(strategy: str) -> None:
    """Persons of the population alone do not count towards the suppression limit."""
    result = anonymize_rows(
        "('a',1,'x'), ('a',1,'y'), ('a',2,'x'), ('a',2,'y'), ('b',1,'x'), ('b',1,'y'), ('b',2,'x'), ('c',2,'y')",
        "q, r, s",
        {"q": "suppress", "r": "suppress", "s": "sensitive"},
        {"k_map": 1, "l_diversity": [{"attribute": "s", "kind": "entropy", "l": 2}]},
        population={"table": "crowd"},
        search={"suppression_limit": 0.3, "strategy": strategy},
    )
    assert result.generalization == {"q": 0, "r": 0}
    assert (result.suppressed_rows, result.score) == (2, 0.25)


@pytest.mark.thorough
@pytest.mark.parametrize("countries", [{"Europe": ["DE", "FR"]}, {"*": ["DE", "FR"]}])
@pytest.mark.parametrize("only", [False, True])
def test_strangers_do_not_match_a_top_label_that_names_its_values(
    countries: dict[str, list[str]], only: bool, tmp_path: Path
) -> None:
    """Six of a hundred people live in Europe. Only ``*`` may be any of them."""
    (tmp_path / "tree.csv").write_text(
        "DE\n" if only else "".join(f"{v};{k}\n" for k, vs in countries.items() for v in vs)
    )
    anybody = "*" in countries and not only
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 'DE' AS country FROM range(6)")
        connection.execute("CREATE TABLE world AS SELECT if(i < 6, 'DE', 'JP') AS country FROM range(100) AS r(i)")
        for k, holds in ((6, True), (7, anybody), (100, anybody)):
            policy = sqlanon.Policy(
                source={"table": "t"},
                attributes={
                    "country": {
                        "role": "quasi",
                        "hierarchy": {"file": str(tmp_path / "tree.csv")},
                        "min_level": 1 - only,
                    }
                },
                privacy={"k_map": k},
                population={"table": "world"},
                release={"database": str(tmp_path / f"{k}.duckdb"), "table": "r"},
            )
            with sqlanon.connect(connection) as db:
                if holds:
                    assert db.anonymize(policy).publish().verify().verified
                    assert db.verify(tmp_path / f"{k}.duckdb", policy).verified
                else:
                    with pytest.raises(sqlanon.InfeasibleError):
                        db.anonymize(policy)


def test_a_presence_that_all_people_need_names_those_whom_no_row_can_match() -> None:
    """Hierarchies without ``*`` that have all values, such as that of r, are not named."""
    with pytest.raises(
        sqlanon.InfeasibleError, match="30 rows of the population have values that are not in the hierarchy of 'q', and"
    ):
        anonymize_rows(
            "('a', 1), ('b', 1)",
            "q, r",
            {"q": {"categories": {"both": ["a", "b"]}}, "r": {"categories": {"any": list(range(20))}}},
            {"delta_presence": {"min": 0.01, "max": 1}},
            population={"table": "crowd"},
        )


@pytest.mark.slow
def test_persons_in_several_classes_do_not_stop_a_search_that_estimates() -> None:
    """Ten persons, each in four classes, are more than the population of twenty there; at the top they are ten."""
    rows = ", ".join(f"('{i % 4}', {i // 4})" for i in range(40))
    result = anonymize_rows(
        rows,
        "q, pid",
        {"q": "suppress", "pid": "identifying"},
        {"k": 2, "population_uniqueness": {"limit": 0.05, "population": 20}},
        source={"person": "pid"},
    )
    assert result.generalization == {"q": 1}


@pytest.mark.slow
def test_a_population_smaller_than_the_source_is_refused_before_the_search() -> None:
    with pytest.raises(sqlanon.SourceError, match="the source alone has 3"):
        anonymize_rows(
            "('a'), ('a'), ('b')",
            "q",
            {"q": "suppress"},
            {"k": 1, "population_uniqueness": {"limit": 1, "population": 2}},
        )


def release_path(directory: Path, privacy: dict[str, Any], person: bool = False) -> Path:
    path = directory / "release.duckdb"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT i % 2 AS q, i % 3 AS s, i AS who FROM range(12) x(i)")
        policy = sqlanon.Policy(
            source={"table": "t", **({"person": "who"} if person else {})},
            attributes=make_policy({"q": "suppress", "s": "sensitive", "who": "identifying"}).attributes,
            privacy=privacy,
        )
        with sqlanon.connect(connection) as db:
            db.anonymize(policy).publish(path)
    return path


@pytest.mark.thorough
@pytest.mark.parametrize(
    "privacy",
    some(
        [
            {"k": 2, "l_diversity": [{"attribute": "nope", "kind": "distinct", "l": 2}]},
            {"k": 2, "l_diversity": [{"attribute": "q", "kind": "distinct", "l": 1}]},
            {"k": 2, "k_anonymity": [{"quasi": ["nope"], "k": 2}]},
            {"k": "two"},
        ],
        2,
    ),
)
def test_a_manifest_with_requirements_on_other_columns_does_not_verify(privacy: dict[str, Any], tmp_path: Path) -> None:
    path = release_path(tmp_path, {"k": 2})
    with duckdb.connect(str(path)) as connection:
        ((text,),) = connection.execute("SELECT policy FROM sqlanon.manifest").fetchall()
        edited = json.dumps({**json.loads(text), "privacy": privacy})
        connection.execute("UPDATE sqlanon.manifest SET policy = ?", [edited])
    verification = verify_file(path)
    assert not verification.verified
    assert any(failure.startswith("requirements:") for failure in verification.failures)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "requirement",
    some(
        [
            {"l_diversity": [{"attribute": "s", "kind": "entropy", "l": 2}]},
            {"l_diversity": [{"attribute": "s", "kind": "recursive", "l": 2, "c": 9}]},
            {"alpha_k": [{"attribute": "s", "alpha": 0.6}]},
        ],
        3,
    ),
)
def test_requirements_that_no_persons_could_meet_are_refuted_without_them(
    requirement: dict[str, Any], tmp_path: Path
) -> None:
    """Persons do not show in a release; that all have one value does."""
    path = release_path(tmp_path, {"k": 2, **requirement}, person=True)
    assert verify_file(path).verified
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE t_v1 SET s = 0")
    assert any("of s" in f or "each s" in f for f in verify_file(path).failures)


@pytest.mark.slow
def test_errors_of_the_population_name_the_population(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS q")
        attributes = make_policy({"q": "suppress"}).attributes
        for population, message in (
            ({"table": "nope"}, r"^population\.table: no table or view is named 'nope'"),
            ({"query": "SELECT 1; SELECT 2"}, r"^population\.query: must be one SELECT"),
        ):
            policy = sqlanon.Policy(
                source={"table": "t"}, attributes=attributes, privacy={"k_map": 1}, population=population
            )
            with sqlanon.connect(connection) as db, pytest.raises(sqlanon.SourceError, match=message):
                db.anonymize(policy)
