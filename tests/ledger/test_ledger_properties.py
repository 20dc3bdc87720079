"""The ledger on random small tables: what `after` finds, and what is refused, against a slow and obvious oracle."""

from __future__ import annotations

import csv
import itertools
import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, assume, event, given, settings

import sqlanon
from oracles import oracle, oracle_ledger
from oracles.oracle_ledger import LEAST, File
from oracles.oracle_privacy import Record, Release, Source
from properties.ledger_cases import KEY, Asked, LedgerCase, ledger_cases
from sqlanon.errors import AuditError, InfeasibleError, SourceError
from support.lanes import SEARCHING, examples

quick = settings(
    max_examples=examples(2),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)
thorough = settings(
    quick, derandomize=not SEARCHING, max_examples=examples(20), print_blob=True, phases=[Phase.generate]
)


@dataclass
class World:
    """A place with the source, as a live connection, the hierarchies, the catalog, and what was released."""

    place: Path
    connection: duckdb.DuckDBPyConnection
    db: sqlanon.Database
    case: LedgerCase
    files: list[File] = field(default_factory=list)
    keys: list[set[Any]] = field(default_factory=list)

    def policy(self, asked: Asked, name: str, after: bool = False) -> sqlanon.Policy:
        source = self.case.source
        attributes: dict[str, dict[str, Any]] = {}
        for column, level in asked.levels.items():
            rule = {"file": str(self.place / f"hierarchy_{[*source.quasi].index(column)}.csv")}
            attributes[column] = {"role": "quasi", "hierarchy": rule}
            if level is not None:
                attributes[column] |= {"min_level": level, "max_level": level}
            if column in (asked.weights or {}):
                attributes[column]["weight"] = asked.weights[column]
        for column in asked.shown:
            attributes[column] = {"role": "insensitive"}
        for column in asked.sensitive:
            attributes[column] = {"role": "sensitive"}
            if (tree := source.sensitive[column]) is not None:
                file = _write(tree, self.place / f"sensitive_{[*source.sensitive].index(column)}.csv")
                attributes[column]["hierarchy"] = {"file": file}
        search = {"strategy": asked.strategy, "suppression_limit": float(asked.limit), "measure": asked.measure}
        if asked.aggregate is not None:
            search["aggregate"] = asked.aggregate
        release: dict[str, Any] = {"database": self.place / name, "table": "released"}
        return sqlanon.Policy(
            source={
                "table": "t",
                "undeclared": "drop",
                **({"person": source.person} if source.person and after else {}),
                **({"key": [KEY]} if self.case.keyed else {}),
            },
            attributes=attributes,
            privacy=dict(asked.privacy),
            search=search,
            release=release | ({"after": "all"} if after else {}),
            catalog={"database": self.place / "catalog.duckdb"},
        )

    def fill(self, rows: list[Record]) -> None:
        names = [*self.case.source.quasi, *self.case.source.sensitive, KEY]
        if self.case.source.person:
            names.append(self.case.source.person)
        types = {name: _type(self.case, name) for name in names}
        arrow = pa.table({name: pa.array([row[name] for row in rows], type=types[name]) for name in sorted(types)})
        self.connection.register("arrow_table", arrow)
        self.connection.execute("CREATE OR REPLACE TABLE t AS FROM arrow_table")
        self.connection.unregister("arrow_table")

    def file(self, path: Path, asked: Asked, levels: Mapping[str, int]) -> File:
        """What somebody who has the file has."""
        rows = read(path)
        return File(rows, levels, [*asked.shown, *asked.sensitive], oracle_ledger.promised(asked.privacy, asked.levels))


def read(path: Path) -> list[Record]:
    with duckdb.connect() as reader:
        if path.suffix == ".parquet":
            found = reader.execute("FROM read_parquet(?)", [str(path)])
        else:
            reader.execute(f"ATTACH '{path}' AS r (READ_ONLY)")
            found = reader.execute("FROM r.released")
        names = [one[0] for one in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _write(tree: oracle.Hierarchy, path: Path) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(tree.paths.values())
    return str(path)


def _type(case: LedgerCase, name: str) -> pa.DataType:
    tree = {**case.source.quasi, **case.source.sensitive}.get(name)
    rows = [row for table in case.tables for row in table]
    known = [*(tree.paths if tree else ()), *(row[name] for row in rows if row[name] is not None)]
    return pa.int64() if known and isinstance(known[0], int) else pa.string()


@contextmanager
def world(case: LedgerCase) -> Iterator[World]:
    """The earlier releases are published in it, by force where they break one another; the source is as it is then."""
    assume(all(first_release(case, i).kept for i in range(len(case.firsts))))
    with tempfile.TemporaryDirectory() as name, duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        place = Path(name)
        for i, tree in enumerate(case.source.quasi.values()):
            _write(tree, place / f"hierarchy_{i}.csv")
        with sqlanon.connect(connection) as db:
            here = World(place, connection, db, case)
            for i, asked in enumerate(case.firsts):
                here.fill(case.tables[i])
                publish_first(here, i, asked)
            here.fill(case.tables[-1])
            yield here


def of(asked: Asked, source: Source) -> Source:
    """The source as a policy has it."""
    return replace(
        source,
        quasi={name: source.quasi[name] for name in asked.levels},
        sensitive={name: source.sensitive[name] for name in asked.sensitive},
    )


def first_release(case: LedgerCase, i: int) -> Release:
    """What the oracle says that an earlier release is."""
    asked = case.firsts[i]
    source = replace(of(asked, case.at(i)), person=None)
    return Release(source, tuple(level or 0 for level in asked.levels.values()), asked.privacy)


def publish_first(here: World, i: int, asked: Asked) -> None:
    """An earlier release: it is what the oracle says."""
    levels = {name: level or 0 for name, level in asked.levels.items()}
    expected = first_release(here.case, i)
    path = here.place / f"first {i}.{'parquet' if asked.parquet else 'duckdb'}"
    policy = here.policy(asked, path.name)
    here.db.anonymize(policy).publish(force=True)
    found = here.file(path, asked, levels)
    assert as_text(rows_of(found, [*levels], [*asked.shown, *asked.sensitive])) == as_text(
        expected.released([*asked.shown, *asked.sensitive])
    )
    here.files.append(found)
    here.keys.append({row[KEY] for records in expected.kept_records.values() for row in records})


def rows_of(file: File, quasi: list[str], shown: list[str]) -> Counter[Any]:
    return Counter(tuple(row[name] for name in (*quasi, *shown)) for row in file.rows)


def as_text(rows: Counter[Any]) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for row, n in rows.items():
        found[tuple(None if value is None else str(value) for value in row)] += n
    return found


# --- a release that is based on earlier ones --------------------------------------------------------


def check_after(case: LedgerCase) -> None:
    """What `after` finds is the best there is, it is published, and breaks no earlier release."""
    last = case.last
    source = of(last, case.at(-1))
    with world(case) as here:
        columns = [*last.levels, *last.sensitive, *([KEY] if case.keyed else [])]
        columns += [source.person] if source.person else []
        key = KEY if case.keyed else None
        marks = oracle_ledger.marks(source, last.sensitive, here.files, sorted(columns), key, here.keys)
        policy = here.policy(last, "last.duckdb", after=True)
        if not source.rows:
            with pytest.raises(InfeasibleError, match="no rows"):
                here.db.anonymize(policy)
            return
        if any(not any(mark >> i & 1 for mark in marks) for i in range(len(here.files))):
            with pytest.raises(SourceError, match="no row of"):
                here.db.anonymize(policy)
            return
        found = oracle_ledger.satisfying(
            source,
            last.privacy,
            here.files,
            marks,
            last.limit,
            last.measure,
            aggregate=last.aggregate,
            weights=last.weights,
        )
        best = oracle.best(found, last.measure)
        try:
            result = here.db.anonymize(policy)
        except InfeasibleError as error:
            assert "earlier releases" not in str(error)
            assert best is None or last.strategy in ("datafly", "samarati-binary", "ola")
            event("infeasible")
            return
        assert best is not None
        levels = tuple(result.generalization[name] for name in last.levels)
        figures = {one.levels: one for one in found}[levels]
        assert math.isclose(result.score, figures.score, rel_tol=oracle.TIE), (result.score, figures, best)
        if result.optimal:
            assert math.isclose(result.score, best.score, rel_tol=oracle.TIE), (result.score, best)
        if last.strategy == "optimal":
            assert levels == best.levels, best.ties
        chosen = oracle_ledger.Based(
            source, levels, oracle_ledger.asked_of_parts(source, last.privacy, here.files), marks
        )
        assert (result.suppressed_rows, result.classes) == (chosen.suppressed, len(chosen.whole))
        assert result.smallest_class == min(chosen.counts.values())
        # Whether what an earlier release shows is not all in the source any more.
        by_values = oracle_ledger.marks(source, last.sensitive, here.files, sorted(columns))
        there = [sum(mark >> i & 1 for mark in by_values) for i in range(len(here.files))]
        lost = [n < len(file.rows) for n, file in zip(there, here.files, strict=True)]
        check_published(here, policy, result, chosen.released(last.sensitive), lost)


def check_published(here: World, policy: sqlanon.Policy, result: Any, expected: Counter[Any], lost: list[bool]) -> None:
    """The release holds what the oracle says, verifies, and breaks no earlier one; what only seems so is told.

    Where an earlier release that is whole shows as it is what is a quasi-identifier now, so that few rows of it look
    alike by themselves, no generalization helps: who joins the two has these rows with all that is new in this release.
    That is refused.
    """
    case, asked = here.case, here.case.last
    trees, grew = case.source.quasi, only_grew(case)
    try:
        release, refused = result.publish(), False
    except AuditError:
        release, refused = result.publish(force=True), True
    assert release.verify().verified
    assert here.db.verify(release.path, policy).verified
    new = here.file(release.path, asked, dict(result.generalization))
    assert as_text(rows_of(new, [*asked.levels], [*asked.sensitive])) == as_text(expected)
    broken = [oracle_ledger.broken(first, new, trees) for first in here.files]
    few = [bool(one.combinations or one.added) for one in broken]
    assert refused == any(one and not gone for one, gone in zip(few, lost, strict=True))
    for first, one, gone in zip(here.files, broken, lost, strict=True):
        if one.combinations and not gone:
            assert oracle_ledger.exposes(first, {*first.levels, *asked.levels}, min(first.k or LEAST, new.k or LEAST))
        assert gone or not one.added
    # What the files alone tell is told, and nothing of the kind where the table only grew.
    told = any(one and gone for one, gone in zip(few, lost, strict=True))
    assert told == any("deleted or changed since" in warning for warning in result.warnings)
    assert not told or not grew or case.keyed or set(asked.privacy) != {"k"}
    event(f"told of by the files: {told}; only grew: {grew}; refused: {refused}")


def only_grew(case: LedgerCase) -> bool:
    """Whether each table has all rows of the one before."""
    counts = [Counter(tuple(sorted((name, str(row[name])) for name in row)) for row in table) for table in case.tables]
    return all(then <= now for then, now in itertools.pairwise(counts))


@pytest.mark.thorough
@quick
@given(ledger_cases(most=1))
def test_after_finds_the_optimum(case: LedgerCase) -> None:
    check_after(case)


@pytest.mark.thorough
@thorough
@given(ledger_cases())
def test_after_finds_the_optimum_thoroughly(case: LedgerCase) -> None:
    check_after(case)


# --- releases that break one another ----------------------------------------------------------------


def check_refused(case: LedgerCase) -> None:
    """A release is refused exactly where it breaks an earlier one; by force the ledger says which."""
    last = case.last
    source = of(last, case.at(-1))
    levels = {name: level or 0 for name, level in last.levels.items()}
    assume(Release(source, tuple(levels.values()), last.privacy).kept)
    with world(case) as here:
        result = here.db.anonymize(here.policy(last, "last.duckdb"))
        release = None
        try:
            release = result.publish()
        except AuditError as error:
            message = str(error)
            assert not (here.place / "last.duckdb").exists()
        if release is None:
            release = result.publish(force=True)
        else:
            message = ""
        new = here.file(release.path, last, levels)
        told = [oracle_ledger.broken(first, new, case.source.quasi) for first in here.files]
        names = [f"first {i}.{'parquet' if one.parquet else 'duckdb'}" for i, one in enumerate(case.firsts)]
        findings = [
            [finding for line in message.splitlines() if f"/{name}, table" in line for finding in line.split("); ")]
            for name in names
        ]
        for first, found, few in zip(here.files, findings, told, strict=True):
            # Few rows, or such that do not meet a requirement: the oracle knows it of diversity in joined classes.
            by_requirement = [finding for finding in found if " not have " in finding]
            assert bool(few) == (len(by_requirement) < len(found)), (message, few)
            assert not by_requirement or last.privacy.keys() - {"k", "k_anonymity"}, message
            diverse = [spec for spec in last.privacy.get("l_diversity", ()) if not spec.get("joint")]
            is_diverse = oracle_ledger.are_joined_classes_diverse(first, new, case.source.quasi, diverse)
            assert few or is_diverse or any("joined with it" in one for one in by_requirement), message
            if diverse and last.privacy.keys() <= {"k", "k_anonymity", "l_diversity"} and is_diverse:
                assert not any("joined with it" in one for one in by_requirement), message
        with duckdb.connect(str(here.place / "catalog.duckdb"), read_only=True) as reader:
            breaks = reader.execute("SELECT breaks FROM sqlanon.ledger WHERE path LIKE '%last%'").fetchall()
        assert len(breaks) == 1
        assert sorted(Path(path).name for path in breaks[0][0]) == [
            name for name, found in zip(names, findings, strict=True) if found
        ]
        event("refused" if message else "let through")


@pytest.mark.thorough
@quick
@given(ledger_cases(fixed=True, most=1))
def test_a_release_that_breaks_an_earlier_one_is_refused(case: LedgerCase) -> None:
    check_refused(case)


@pytest.mark.thorough
@thorough
@given(ledger_cases(fixed=True))
def test_a_release_that_breaks_an_earlier_one_is_refused_thoroughly(case: LedgerCase) -> None:
    check_refused(case)
