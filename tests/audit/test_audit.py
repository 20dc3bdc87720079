"""The audit before publishing: for each check, a staged release that it alone refuses, one row beyond the border."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import AuditError

WARDS = {"a": "xxyy", "b": "xyz", "c": "xxyyzz"}


@contextmanager
def staged_rows_changed(statement: str) -> Iterator[None]:
    """Whatever is published next is changed between its writing and its audit; ``{rows}`` are the staged rows."""
    detach, changed = DuckDBEngine.detach, list[str]()

    def changing(engine: DuckDBEngine, alias: str) -> None:
        if alias == "sqlanon_staged" and not changed:
            changed.append(alias)
            engine.connection.execute(statement.format(rows="sqlanon_staged.main.patients_v1"))
        detach(engine, alias)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DuckDBEngine, "detach", changing)
        yield
    assert changed


@dataclass(frozen=True)
class Border:
    """A policy that a table just meets, a change after which it does not, and the message of the audit."""

    privacy: dict[str, Any]
    change: str
    failures: list[str]
    wards: dict[str, str] = field(default_factory=lambda: WARDS)
    sections: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    suppressed: int = 0


def first(ward: str, illness: str = "%") -> str:
    """A row of a ward."""
    return f"rowid = (SELECT min(rowid) FROM {{rows}} WHERE ward = '{ward}' AND illness LIKE '{illness}')"


SPLIT = "UPDATE {rows} SET ward = 'd' WHERE rowid IN (SELECT rowid FROM {rows} WHERE ward = 'c' LIMIT 3)"
ONE_TO_C = f"UPDATE {{rows}} SET ward = 'c' WHERE {first('b')}"
ONE_MORE_X = f"UPDATE {{rows}} SET illness = 'x' WHERE {first('a', 'y')}"
OTHERS = {"a": 4, "b": 3, "c": 6, "d": 2}
POPULATION = " UNION ALL ".join(f"SELECT '{ward}' AS ward FROM range({len(rows)})" for ward, rows in WARDS.items())
SEARCH = "the search found 3, the smallest of 3; has the source changed since?"

BORDERS = {
    "rows": Border(
        {"k": 3},
        f"DELETE FROM {{rows}} WHERE {first('c')}",
        ["manifest: contradicts itself in row counts", "12 rows are in the release (expected: 13)"],
    ),
    "classes": Border({"k": 3}, SPLIT, [f"4 classes, the smallest of 3 rows, are in the release; {SEARCH}"]),
    "smallest class": Border({"k": 2}, ONE_TO_C, [f"3 classes, the smallest of 2 rows, are in the release; {SEARCH}"]),
    "k": Border(
        {"k": 3},
        ONE_TO_C,
        [
            "3-anonymity: smallest class: 2 rows (required: 3)",
            f"3 classes, the smallest of 2 rows, are in the release; {SEARCH}",
        ],
    ),
    "k of some": Border(
        {"k": 3, "k_anonymity": [{"quasi": ["sex"], "k": 6}]},
        "UPDATE {rows} SET sex = 'o' WHERE ward = 'b' AND sex = 'f'",
        ["6-anonymity of sex: smallest class: 3 rows (required: 6)"],
        {"a": "xyzxyz", "b": "xyzxyz"},
        attributes={"sex": {"role": "quasi", "hierarchy": "suppress", "max_level": 0}},
    ),
    "average risk": Border(
        {"k": 3, "average_risk": 0.25}, SPLIT, ["average risk", "4 classes"], {"a": "xyz", "b": "xyz", "c": "xxyyzz"}
    ),
    "distinct l": Border(
        {"l_diversity": [{"attribute": "illness", "kind": "distinct", "l": 3}]},
        f"UPDATE {{rows}} SET illness = 'x' WHERE {first('b', 'y')}",
        ["distinct 3-diversity of illness: worst class: 2 (required: 3)"],
        {"a": "xyzz", "b": "xyz"},
    ),
    "other l": Border(
        {
            "l_diversity": [
                {"attribute": "illness", "kind": "entropy", "l": 2},
                {"attribute": "illness", "kind": "recursive", "l": 2, "c": 3},
            ]
        },
        ONE_MORE_X,
        [
            "entropy 2-diversity of illness: worst class: 1.75477 (required: 2)",
            "recursive (3, 2)-diversity of illness: in the worst class r1 is 3 times",
        ],
    ),
    "shares": Border(
        {
            "t_closeness": [
                {"attribute": "illness", "distance": distance, "t": 0.25}
                for distance in ("equal", "ordered", "hierarchical")
            ],
            "delta_disclosure": [{"attribute": "illness", "delta": math.log(2)}],
            "beta_likeness": [
                {"attribute": "illness", "kind": "basic", "beta": 0.5},
                {"attribute": "illness", "kind": "enhanced", "beta": 2},
            ],
            "alpha_k": [{"attribute": "illness", "alpha": 0.75}],
        },
        f"UPDATE {{rows}} SET illness = 'x' WHERE {first('b', 'y')}",
        [
            *(
                f"{distance} 0.25-closeness of illness: farthest class from the table: 0.5 (allowed: 0.25)"
                for distance in ("equal", "ordered", "hierarchical")
            ),
            f"{math.log(2)}-disclosure privacy of illness: greatest |ln(p/q)|: inf",
            "basic 0.5-likeness of illness: greatest gain of a value: 1 (allowed: 0.5)",
            "enhanced 2-likeness of illness: greatest gain of a value: 1 (allowed: 2); beyond -ln q by 0.306853",
            "share of at most 0.75 of each illness: the greatest share is 1",
        ],
        {"a": "xyyy", "b": "xxxy"},
        attributes={"illness": {"role": "sensitive", "hierarchy": "suppress"}},
    ),
    "population": Border(
        {"k_map": 3, "delta_presence": {"max": 1}},
        "UPDATE {rows} SET ward = 'd' WHERE ward = 'b'",
        ["3-map: fewest in the population that match a class: 2 (required: 3)", "(0, 1)-presence"],
        sections={
            "population": {
                "query": " UNION ALL ".join(f"SELECT '{ward}' AS ward FROM range({n})" for ward, n in OTHERS.items())
            }
        },
    ),
    "least presence": Border(
        {"delta_presence": {"min": 0.5, "max": 1}},
        f"UPDATE {{rows}} SET ward = 'a' WHERE {first('c')}",
        ["(0.5, 1)-presence: the shares of the population's classes are 0.416667 to 0.625"],
        sections={"population": {"query": f"{POPULATION} UNION ALL {POPULATION}"}},
    ),
    "smallest class with masked rows": Border(
        {"k": 2},
        ONE_TO_C,
        [f"4 classes, the smallest of 2 rows, are in the release; {SEARCH}"],
        WARDS | dict.fromkeys("efgh", "x"),
        sections={"search": {"suppression_limit": 0.3}, "release": {"suppressed": "mask"}},
        attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}},
        suppressed=4,
    ),
    "rows with persons": Border(
        {"k": 3},
        ONE_MORE_X,
        ["rows with persons: not true: the rows whose persons are counted match the release"],
        source={"person": "name"},
    ),
}


SLOW = {"classes", "smallest class", "k", "k of some", "average risk", "distinct l", "other l", "least presence"}
"""The rest has a case for each kind of check."""


@pytest.mark.least(8)
@pytest.mark.cases(5)
@pytest.mark.parametrize(
    "case",
    [pytest.param(kind, id=name, marks=[pytest.mark.slow] if name in SLOW else []) for name, kind in BORDERS.items()],
)
def test_one_row_beyond_the_border(case: Border, tmp_path: Path) -> None:
    attributes = {
        "name": {"role": "identifying"},
        "ward": {"role": "quasi", "hierarchy": "suppress", "max_level": 0},
        "illness": {"role": "sensitive"},
        "sex": {"role": "insensitive"},
        "cost": {"role": "insensitive"},
    }
    rows = [
        (f"{ward}{i}", ward, illness, "mf"[i % 2], float(i) if ward == "a" else 1.0)
        for ward, illnesses in case.wards.items()
        for i, illness in enumerate(illnesses)
    ]
    source = {"table": "patients"} | case.source
    policy = sqlanon.Policy(
        source=source, attributes=attributes | case.attributes, privacy=case.privacy, **case.sections
    )
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE patients (name TEXT, ward TEXT, illness TEXT, sex TEXT, cost DOUBLE)")
        connection.executemany("INSERT INTO patients VALUES (?, ?, ?, ?, ?)", rows)
        with sqlanon.connect(connection) as db:
            result = db.anonymize(policy)
            with staged_rows_changed(case.change), pytest.raises(AuditError) as refused:
                result.publish(tmp_path / "release.duckdb")
            failures = refused.value.failures
            assert len(failures) == len(case.failures), failures
            assert all(map(str.startswith, failures, case.failures)), failures
            assert result.publish(tmp_path / "release.duckdb").manifest.suppressed_rows == case.suppressed
