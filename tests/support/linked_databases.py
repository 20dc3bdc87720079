"""Policies of patients and their visits, and the results of random linked databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlanon
from oracles.oracle_linked import LinkedDatabase, State
from properties.linked_cases import LinkedCase
from sqlanon.errors import InfeasibleError
from sqlanon.linked.anonymize import LinkedResult
from sqlanon.linked.search import LinkedTask
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.support.expressions import col, select
from support.databases import small_database

KEY = {"role": "key"}
QUASI = {"role": "quasi", "hierarchy": "suppress"}

PERSONS = "SELECT i AS id, i % 3 AS q FROM range(12) AS r(i)"
ROWS = "SELECT i % 12 AS pid, i % 2 AS w FROM range(24) AS r(i)"
"""Queries of the tables of `persons_and_rows`."""

ORDER_LINES = {"key": ["pid", "no"], "attributes": {"pid": KEY, "no": KEY, "w": QUASI}}
"""Keys of the rows of `persons_and_rows`: order and number of the line."""


def two_tables(patients: Mapping[str, Any], visits: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """A policy of patients (``patient_id``) and their visits (``visit_id``), with the roles of their attributes."""
    return {
        "table": [
            {"name": "patients", "person": "patient_id", "attributes": {"patient_id": KEY, **patients}},
            {
                "name": "visits",
                "key": "visit_id",
                "references": {"patient_id": "patients"},
                "attributes": {"visit_id": KEY, "patient_id": KEY, **visits},
            },
        ],
        **sections,
    }


def open_case(case: LinkedCase) -> sqlanon.Database:
    """A database with the tables of a case."""
    connection = small_database()
    case.fill(connection)
    return sqlanon.connect(connection)


def case_policy(case: LinkedCase, **search: Any) -> LinkedPolicy:
    """The policy of a case, with keys of its search."""
    tree = case.policy()
    return LinkedPolicy(**{**tree, "search": {**tree["search"], **search}})


def anonymize_case(case: LinkedCase, db: sqlanon.Database | None = None, **search: Any) -> LinkedResult | None:
    """The result for a case; None if nothing meets its policy."""
    try:
        return (db or open_case(case)).anonymize(case_policy(case, **search))
    except InfeasibleError:
        return None


def persons_and_rows(
    persons: dict[str, Any] | None = None, rows: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """A policy of persons ``p`` and their rows ``v``; ``persons`` and ``rows`` replace keys of their tables."""
    return {
        "table": [
            {"name": "p", "person": "id", "attributes": {"id": KEY, "q": QUASI}, **(persons or {})},
            {"name": "v", "references": {"pid": "p"}, "attributes": {"pid": KEY, "w": QUASI}, **(rows or {})},
        ],
        "privacy": {"k": 2, "known": 1},
        **sections,
    }


def anonymize_rows(tree: dict[str, Any], persons: str, rows: str) -> LinkedResult:
    """The result for tables ``p`` and ``v`` with the rows of two queries."""
    connection = small_database()
    connection.execute(f"CREATE TABLE p AS {persons}")
    connection.execute(f"CREATE TABLE v AS {rows}")
    return sqlanon.connect(connection).anonymize(LinkedPolicy(**tree))


def released_state(task: LinkedTask, database: LinkedDatabase) -> tuple[State, frozenset[tuple[int, int]]]:
    """The state after the last check of a task, and the rows of kept persons that are suppressed by themselves. Rows
    are numbered by key in the database, too."""
    snapshot = task.peeling.snapshot
    rows = snapshot.runner.engine.rows
    persons = frozenset(person for (person,) in rows(select([col("person")], snapshot.kept_persons.copy())))
    suppressed = frozenset[tuple[int, int]]()
    if snapshot.suppresses_rows:
        query = select([col("position"), col("row")], snapshot.suppressed_rows.copy())
        suppressed = frozenset((t, number) for t, number in rows(query) if database.person_of[t, number] in persons)
    kept_rows = frozenset(at for at, person in database.person_of.items() if person in persons and at not in suppressed)
    return State(persons, kept_rows), suppressed
