"""The audit of each requirement on released classes, compared with plain Python: alone, with its source, in plain SQL.

The policy writes all names in capital letters, and the table in small ones. NULL is a value, and a person.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from class_requirements import REQUIREMENTS, VALUES

from oracles.oracle import Hierarchy
from oracles.oracle_privacy import Record, Release, Source
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.policy import PrivacySection
from sqlanon.requirements import bind_requirements, check_requirements, list_requirements
from sqlanon.requirements.audit import AuditedRelease, PrivateRelations
from sqlanon.requirements.delta_presence import DeltaPresence
from sqlanon.requirements.k_map import KMap
from sqlanon.requirements.null_map import NullMap
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.requirements.wrong_map import WrongMap
from sqlanon.support.expressions import table
from sqlanon.support.resources import REQUIREMENT_MACROS, macro_script
from support.databases import small_database

TYPES = {"class": pa.string(), "s": pa.int64(), "other": pa.string(), "who": pa.string()}
CLASSES = 40


def draw_records(seed: int) -> list[Record]:
    """Rows of small classes. A person has rows in several classes, and several rows in one."""
    rng, records = random.Random(seed), list[Record]()
    for i in range(CLASSES):
        values = rng.sample([None, 0, 1, 2, 3], rng.randint(1, 5))
        for _ in range(rng.choice([1, 2, 2, 3, 4, 4, 6, 9, 15])):
            who = rng.choice([None, *(f"{i // 3} {j}" for j in range(7))])
            records.append({"class": f"{i}", "s": rng.choice(values), "other": rng.choice(["x", None]), "who": who})
    return records


@dataclass(frozen=True)
class Audited:
    """A table in a database; some of its classes are released."""

    connection: duckdb.DuckDBPyConnection
    source: Source

    def audit(self, privacy: Mapping[str, Any], classes: Sequence[str], is_alone: bool = False) -> list[bool | None]:
        names = [*map(str, classes)]
        self.connection.execute(
            f"CREATE OR REPLACE VIEW released AS FROM t WHERE list_contains({names}::TEXT[], class)"
        )
        person = self.source.person
        private = PrivateRelations("t", person=person, hierarchies={"S": "tree"})
        audited = AuditedRelease(
            DuckDBEngine(self.connection), "released", ["class"], ["s", "other"], len(self.source.rows),
            counts_persons=person is not None, private=None if is_alone else private,
        )  # fmt: skip
        return [check.passed for check in check_requirements(in_capitals(privacy), audited)]


def in_capitals(privacy: Mapping[str, Any]) -> PrivacySection:
    def capitalize(spec: Any) -> Any:
        names = {"attribute": str.upper, "quasi": lambda names: [name.upper() for name in names]}
        return {key: names.get(key, lambda value: value)(value) for key, value in spec.items()}

    return PrivacySection.model_validate(
        {key: [*map(capitalize, value)] if isinstance(value, list) else value for key, value in privacy.items()}
    )


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with small_database() as connection:
        connection.execute(macro_script(REQUIREMENT_MACROS))
        records = draw_records(54)
        connection.register("records", pa.Table.from_pylist([*map(dict, records)], schema=pa.schema([*TYPES.items()])))
        connection.execute("CREATE TABLE t AS FROM records")
        paths = [*VALUES.paths.values(), (None, None, "*")]
        connection.execute("CREATE TABLE tree (level_0 BIGINT, level_1 BIGINT, level_2 VARCHAR)")
        connection.executemany("INSERT INTO tree VALUES (?, ?, ?)", paths)
        yield connection


def fails_for_any_persons(release: Release, names: Sequence[str]) -> bool:
    """Whether the rows alone show that a requirement is violated, whoever has them: too few rows, or values."""
    values = {name: len({record["s"] for record in release.classes[(name,)]}) for name in names}
    rows = {name: len(release.classes[(name,)]) for name in names}
    privacy = release.privacy
    least_rows = max([privacy.get("k", 1), *(shield["k"] for shield in privacy.get("k_anonymity", ()))])
    least_values = [spec["l"] for spec in privacy.get("l_diversity", ()) if not spec.get("joint")]
    least_values += [1 / spec["alpha"] for spec in privacy.get("alpha_k", ())]
    return min(rows.values()) < least_rows or min(values.values()) < max(least_values, default=0)


AUDITED = REQUIREMENTS | {"alpha_k of half": {"alpha_k": [{"attribute": "s", "alpha": 0.5}]}}
NOT_ALONE = {"t_closeness", "delta_disclosure", "beta_likeness"}


@pytest.mark.cases(19)
@pytest.mark.parametrize("person", [None, "who"])
@pytest.mark.parametrize("name", AUDITED)
def test_an_audit_judges_each_class_as_the_oracle_does(
    name: str, person: str | None, connection: duckdb.DuckDBPyConnection
) -> None:
    privacy, records = AUDITED[name], draw_records(54)
    unchanged = Hierarchy({record["class"]: (record["class"], "*") for record in records})
    source = Source(records, {"class": unchanged}, {"s": VALUES, "other": None}, person)
    release, audited = Release(source, (0,), privacy), Audited(connection, source)
    kept = [label for (label,) in release.kept]
    violating = sorted({str(label) for (label,) in release.classes} - {*kept}, key=int)
    assert kept and violating
    assert {*audited.audit(privacy, kept)} == {True}
    assert True not in audited.audit(privacy, [])
    for label in violating[:: len(violating) // 2 + 1]:
        assert False in audited.audit(privacy, [*kept, label]), release.classes[(label,)]
    for labels in (kept, violating[:1]):
        alone = audited.audit(privacy, labels, is_alone=True)
        if person is None and not NOT_ALONE & privacy.keys():
            assert alone == audited.audit(privacy, labels)
        elif name not in ("distinct", "joint"):
            assert (False in alone) == (person is not None and fails_for_any_persons(release, labels))
            assert False in alone or None in alone
    requirements = bind_requirements(in_capitals(privacy), ["CLASS"])
    assert requirements.min_class_rows <= min(len(records) for records in release.kept_records.values())


@pytest.mark.parametrize("name", [name for name in AUDITED if name not in ("ordered", "hierarchical")])
def test_a_warehouse_finds_the_violating_classes(name: str, connection: duckdb.DuckDBPyConnection) -> None:
    privacy, records = AUDITED[name], draw_records(54)
    unchanged = Hierarchy({record["class"]: (record["class"], "*") for record in records})
    release = Release(Source(records, {"class": unchanged}, {"s": VALUES, "other": None}), (0,), privacy)
    released = WarehouseRelease(table("t"), table("t"), ["class"], ["s", "other"], {"S": "s", "CLASS": "class"})
    queries = [requirement.violations(released) for requirement in list_requirements(in_capitals(privacy))]
    rows = [row for query in queries if query is not None for row in DuckDBEngine(connection).rows(query)]
    assert {row[:1] for row in rows} == release.classes.keys() - release.kept.keys()


@pytest.mark.parametrize("population_person", [None, "id"])
def test_an_audit_compares_the_classes_of_the_population(
    population_person: str | None, connection: duckdb.DuckDBPyConnection
) -> None:
    """Each requirement holds at the figure of the oracle, and not below it."""
    draw, records = random.Random(7), draw_records(54)
    classes = [class_ for class_ in range(CLASSES + 3) for _ in range(draw.choice([0, 1, 3, 5]))]
    people = [{"class": f"{i}", "id": draw.choice([None, f"{i // 3} {draw.randrange(7)}"])} for i in classes]
    schema = pa.schema({"class": pa.string(), "id": pa.string()})
    connection.register("people_records", pa.Table.from_pylist(people, schema=schema))
    connection.execute("CREATE OR REPLACE TABLE people AS FROM people_records")
    unchanged = Hierarchy({name: (name, "*") for name in sorted({*map(str, range(CLASSES + 3))})})
    source = Source(records, {"class": unchanged}, {"s": VALUES, "other": None}, "who", people, "id")
    release = Release(source, (0,), {"k": 1})
    matched = [labels for labels in release.classes if labels in release.population]
    connection.execute("CREATE OR REPLACE VIEW matched AS FROM t SEMI JOIN people USING (class)")

    def audit(relation: str, requirement: Any) -> bool | None:
        private = PrivateRelations("t", "who", "people", population_person)
        names = ["class"], ["s", "other"]
        audited = AuditedRelease(DuckDBEngine(connection), relation, *names, len(records), True, private=private)
        return next(check.passed for check in requirement.checks(audited))

    counting_source = source if population_person else replace(source, population_person=None)
    sizes = Release(counting_source, (0,), {"k": 1}).population
    least = min(sizes[labels] for labels in matched)
    assert [audit("matched", KMap(k)) for k in (least, least + 1)] == [True, False]
    assert audit("t", KMap(1)) is False
    most = max(source.count(release.classes[labels]) / sizes[labels] for labels in matched)
    assert [audit("matched", DeltaPresence(max=limit)) for limit in (most, 0.999 * most)] == [True, False]
    connection.execute("CREATE OR REPLACE VIEW nobody AS FROM t LIMIT 0")
    maps = [NullMap(max=1), *([WrongMap(max=1)] if population_person else [])]
    assert True not in [audit("nobody", requirement) for requirement in (KMap(1), DeltaPresence(min=0.1, max=1), *maps)]
    shares = [(NullMap, release.null_map / len(records))]
    shares += [(WrongMap, release.wrong_map / len(records))] if population_person else []
    for requirement_type, share in shares:
        assert 0 < share < 1
        limits = (share, 0.999 * share)
        assert [audit("t", requirement_type(max=limit)) for limit in limits] == [True, False]
