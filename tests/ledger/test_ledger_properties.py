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

pytestmark = pytest.mark.thorough

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
    """A location with the source as a live connection, the hierarchies, the catalog, and the releases."""

    place: Path
    connection: duckdb.DuckDBPyConnection
    db: sqlanon.Database
    case: LedgerCase
    files: list[File] = field(default_factory=list)
    keys: list[set[Any]] = field(default_factory=list)

    def policy(self, request: Asked, name: str, after: bool = False) -> sqlanon.Policy:
        source = self.case.source
        attributes: dict[str, dict[str, Any]] = {}
        for column, level in request.levels.items():
            rule = {"file": str(self.place / f"hierarchy_{[*source.quasi].index(column)}.csv")}
            attributes[column] = {"role": "quasi", "hierarchy": rule}
            if level is not None:
                attributes[column] |= {"min_level": level, "max_level": level}
            if column in (request.weights or {}):
                attributes[column]["weight"] = request.weights[column]
        for column in request.shown:
            attributes[column] = {"role": "insensitive"}
        for column in request.sensitive:
            attributes[column] = {"role": "sensitive"}
            if (tree := source.sensitive[column]) is not None:
                file = _write(tree, self.place / f"sensitive_{[*source.sensitive].index(column)}.csv")
                attributes[column]["hierarchy"] = {"file": file}
        search = {"strategy": request.strategy, "suppression_limit": float(request.limit), "measure": request.measure}
        if request.aggregate is not None:
            search["aggregate"] = request.aggregate
        release: dict[str, Any] = {"database": self.place / name, "table": "released"}
        return sqlanon.Policy(
            source={
                "table": "t",
                "undeclared": "drop",
                **({"person": source.person} if source.person and after else {}),
                **({"key": [KEY]} if self.case.keyed else {}),
            },
            attributes=attributes,
            privacy=dict(request.privacy),
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

    def file(self, path: Path, request: Asked, levels: Mapping[str, int]) -> File:
        """The contents of a file for somebody who has it."""
        rows = read(path)
        return File(
            rows,
            levels,
            [*request.shown, *request.sensitive],
            oracle_ledger.promised_rows(request.privacy, request.levels),
        )


def read(path: Path) -> list[Record]:
    with duckdb.connect() as reader:
        if path.suffix == ".parquet":
            relation = reader.execute("FROM read_parquet(?)", [str(path)])
        else:
            reader.execute(f"ATTACH '{path}' AS r (READ_ONLY)")
            relation = reader.execute("FROM r.released")
        names = [column[0] for column in relation.description]
        return [dict(zip(names, row, strict=True)) for row in relation.fetchall()]


def _write(tree: oracle.Hierarchy, path: Path) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=";", lineterminator="\n").writerows(tree.paths.values())
    return str(path)


def _type(case: LedgerCase, name: str) -> pa.DataType:
    tree = {**case.source.quasi, **case.source.sensitive}.get(name)
    rows = [row for table in case.tables for row in table]
    values = [*(tree.paths if tree else ()), *(row[name] for row in rows if row[name] is not None)]
    return pa.int64() if values and isinstance(values[0], int) else pa.string()


@contextmanager
def open_world(case: LedgerCase) -> Iterator[World]:
    """A world with the earlier releases, published by force if they break one another, and the source at that time."""
    assume(all(first_release(case, i).kept for i in range(len(case.firsts))))
    with tempfile.TemporaryDirectory() as name, duckdb.connect() as connection:
        connection.execute("SET threads = 1")
        place = Path(name)
        for i, tree in enumerate(case.source.quasi.values()):
            _write(tree, place / f"hierarchy_{i}.csv")
        with sqlanon.connect(connection) as db:
            state = World(place, connection, db, case)
            for i, request in enumerate(case.firsts):
                state.fill(case.tables[i])
                publish_first(state, i, request)
            state.fill(case.tables[-1])
            yield state


def restrict_source(request: Asked, source: Source) -> Source:
    """The source as a policy has it."""
    return replace(
        source,
        quasi={name: source.quasi[name] for name in request.levels},
        sensitive={name: source.sensitive[name] for name in request.sensitive},
    )


def first_release(case: LedgerCase, i: int) -> Release:
    """An earlier release according to the oracle."""
    request = case.firsts[i]
    source = replace(restrict_source(request, case.at(i)), person=None)
    return Release(source, tuple(level or 0 for level in request.levels.values()), request.privacy)


def publish_first(place: World, i: int, request: Asked) -> None:
    """Check that an earlier release is as the oracle says."""
    levels = {name: level or 0 for name, level in request.levels.items()}
    expected = first_release(place.case, i)
    path = place.place / f"first {i}.{'parquet' if request.parquet else 'duckdb'}"
    policy = place.policy(request, path.name)
    place.db.anonymize(policy).publish(force=True)
    file = place.file(path, request, levels)
    assert as_text(rows_of(file, [*levels], [*request.shown, *request.sensitive])) == as_text(
        expected.released([*request.shown, *request.sensitive])
    )
    place.files.append(file)
    place.keys.append({row[KEY] for records in expected.kept_records.values() for row in records})


def rows_of(file: File, quasi: list[str], visible: list[str]) -> Counter[Any]:
    return Counter(tuple(row[name] for name in (*quasi, *visible)) for row in file.rows)


def as_text(rows: Counter[Any]) -> Counter[Any]:
    texts: Counter[Any] = Counter()
    for row, n in rows.items():
        texts[tuple(None if value is None else str(value) for value in row)] += n
    return texts


# --- a release that is based on earlier ones --------------------------------------------------------


def check_after(case: LedgerCase) -> None:
    """Check that `after` finds the best release, publishes it, and breaks no earlier release."""
    last = case.last
    source = restrict_source(last, case.at(-1))
    with open_world(case) as state:
        columns = [*last.levels, *last.sensitive, *([KEY] if case.keyed else [])]
        columns += [source.person] if source.person else []
        key = KEY if case.keyed else None
        marks = oracle_ledger.marks(source, last.sensitive, state.files, sorted(columns), key, state.keys)
        policy = state.policy(last, "last.duckdb", after=True)
        if not source.rows:
            with pytest.raises(InfeasibleError, match="no rows"):
                state.db.anonymize(policy)
            return
        if any(not any(mark >> i & 1 for mark in marks) for i in range(len(state.files))):
            with pytest.raises(SourceError, match="no row of"):
                state.db.anonymize(policy)
            return
        feasible = oracle_ledger.satisfying(
            source,
            last.privacy,
            state.files,
            marks,
            last.limit,
            last.measure,
            aggregate=last.aggregate,
            weights=last.weights,
        )
        best = oracle.best(feasible, last.measure)
        try:
            result = state.db.anonymize(policy)
        except InfeasibleError as error:
            assert "earlier releases" not in str(error)
            assert best is None or last.strategy in ("datafly", "samarati-binary", "ola")
            event("infeasible")
            return
        assert best is not None
        levels = tuple(result.generalization[name] for name in last.levels)
        figures = {candidate.levels: candidate for candidate in feasible}[levels]
        assert math.isclose(result.score, figures.score, rel_tol=oracle.TIE), (result.score, figures, best)
        if result.optimal:
            assert math.isclose(result.score, best.score, rel_tol=oracle.TIE), (result.score, best)
        if last.strategy == "optimal":
            assert levels == best.levels, best.ties
        chosen = oracle_ledger.Based(
            source, levels, oracle_ledger.asked_of_parts(source, last.privacy, state.files), marks
        )
        assert (result.suppressed_rows, result.classes) == (chosen.suppressed, len(chosen.whole))
        assert result.smallest_class == min(chosen.counts.values())
        # Whether what an earlier release shows is not all in the source any more.
        by_values = oracle_ledger.marks(source, last.sensitive, state.files, sorted(columns))
        shared_rows = [sum(mark >> i & 1 for mark in by_values) for i in range(len(state.files))]
        lost = [n < len(file.rows) for n, file in zip(shared_rows, state.files, strict=True)]
        check_published(state, policy, result, chosen.released(last.sensitive), lost)


def check_published(
    state: World, policy: sqlanon.Policy, result: Any, expected: Counter[Any], lost: list[bool]
) -> None:
    """The release matches the oracle, verifies, and breaks no earlier one; apparent breaches are reported.

    Where an earlier whole release shows a present quasi-identifier unchanged, so that few rows of it look
    alike by themselves, no generalization helps: joining the two yields these rows with the new columns of this
    release. That is refused.
    """
    case, request = state.case, state.case.last
    trees, grew = case.source.quasi, only_grew(case)
    try:
        release, refused = result.publish(), False
    except AuditError:
        release, refused = result.publish(force=True), True
    assert release.verify().verified
    assert state.db.verify(release.path, policy).verified
    new = state.file(release.path, request, dict(result.generalization))
    assert as_text(rows_of(new, [*request.levels], [*request.sensitive])) == as_text(expected)
    broken = [oracle_ledger.find_breaches(first, new, trees) for first in state.files]
    few = [bool(finding.combinations or finding.added) for finding in broken]
    assert refused == any(has_few and not gone for has_few, gone in zip(few, lost, strict=True))
    for first, finding, gone in zip(state.files, broken, lost, strict=True):
        if finding.combinations and not gone:
            assert oracle_ledger.exposes(first, {*first.levels, *request.levels}, min(first.k or LEAST, new.k or LEAST))
        assert gone or not finding.added
    # Findings in the files alone are reported, and none where the table only grew.
    is_reported = any(has_few and gone for has_few, gone in zip(few, lost, strict=True))
    assert is_reported == any("deleted or changed since" in warning for warning in result.warnings)
    assert not is_reported or not grew or case.keyed or set(request.privacy) != {"k"}
    event(f"reported by the files: {is_reported}; only grew: {grew}; refused: {refused}")


def only_grew(case: LedgerCase) -> bool:
    """Whether each table has all rows of the one before."""
    counts = [Counter(tuple(sorted((name, str(row[name])) for name in row)) for row in table) for table in case.tables]
    return all(then <= now for then, now in itertools.pairwise(counts))


@thorough
@given(ledger_cases())
def test_after_finds_the_optimum(case: LedgerCase) -> None:
    check_after(case)


# --- releases that break one another ----------------------------------------------------------------


def check_refused(case: LedgerCase) -> None:
    """Check that a release is refused exactly if it breaks an earlier one; by force, the ledger records which."""
    last = case.last
    source = restrict_source(last, case.at(-1))
    levels = {name: level or 0 for name, level in last.levels.items()}
    assume(Release(source, tuple(levels.values()), last.privacy).kept)
    with open_world(case) as state:
        result = state.db.anonymize(state.policy(last, "last.duckdb"))
        release = None
        try:
            release = result.publish()
        except AuditError as error:
            message = str(error)
            assert not (state.place / "last.duckdb").exists()
        if release is None:
            release = result.publish(force=True)
        else:
            message = ""
        new = state.file(release.path, last, levels)
        breaches = [oracle_ledger.find_breaches(first, new, case.source.quasi) for first in state.files]
        names = [f"first {i}.{'parquet' if request.parquet else 'duckdb'}" for i, request in enumerate(case.firsts)]
        findings = [
            [finding for line in message.splitlines() if f"/{name}, table" in line for finding in line.split("); ")]
            for name in names
        ]
        for first, sentences, few in zip(state.files, findings, breaches, strict=True):
            # Few rows, or such that do not meet a requirement: the oracle knows it of diversity in joined classes.
            by_requirement = [finding for finding in sentences if " not have " in finding]
            assert bool(few) == (len(by_requirement) < len(sentences)), (message, few)
            assert not by_requirement or last.privacy.keys() - {"k", "k_anonymity"}, message
            diverse = [spec for spec in last.privacy.get("l_diversity", ()) if not spec.get("joint")]
            is_diverse = oracle_ledger.are_joined_classes_diverse(first, new, case.source.quasi, diverse)
            assert few or is_diverse or any("joined with it" in finding for finding in by_requirement), message
            if diverse and last.privacy.keys() <= {"k", "k_anonymity", "l_diversity"} and is_diverse:
                assert not any("joined with it" in finding for finding in by_requirement), message
        with duckdb.connect(str(state.place / "catalog.duckdb"), read_only=True) as reader:
            breaks = reader.execute("SELECT breaks FROM sqlanon.ledger WHERE path LIKE '%last%'").fetchall()
        assert len(breaks) == 1
        assert sorted(Path(path).name for path in breaks[0][0]) == [
            name for name, sentences in zip(names, findings, strict=True) if sentences
        ]
        event("refused" if message else "let through")


@thorough
@given(ledger_cases(fixed=True))
def test_a_release_that_breaks_an_earlier_one_is_refused(case: LedgerCase) -> None:
    check_refused(case)
