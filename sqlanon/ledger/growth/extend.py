"""Extend a release by new rows of its source.

Released rows keep their values: they are copied from the release itself. New rows are generalized in the same way. The
new rows of a class are added if they meet the policy by themselves: then readers of the earlier release find no fewer
new rows than the policy requires, and a requirement that two sets of rows meet is met by their union. Other rows wait.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from uuid import uuid4

from sqlglot import exp

from sqlanon.audit.source_audit import SourceAudit
from sqlanon.disclosure.dependencies import Narrowing, measure_dependencies
from sqlanon.disclosure.unprotected_columns import warn_of_unprotected_columns
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import AuditError, PolicyError, ReleaseError, SourceError
from sqlanon.frequency.sets import ClassSpace
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.ledger.catalog import build_run_record
from sqlanon.ledger.earlier import EarlierRelease, open_earlier_release
from sqlanon.ledger.growth.marks import KEY_HASH
from sqlanon.ledger.growth.source_change import count_changes, measure_released_rows
from sqlanon.ledger.publication import ExtensionRecord, LedgerEntry
from sqlanon.ledger.published_release import PublishedRelease, find_newest_publication, published_by_policy
from sqlanon.ledger.recording import read_ledger
from sqlanon.ledger.records import Publication
from sqlanon.ledger.released_hierarchies import copy_released_hierarchies, merge_hierarchies
from sqlanon.measures import MEASURES, Figures
from sqlanon.policy import Policy
from sqlanon.policy.compatibility import EXTENSIONS, collect_sections, find_conflicts
from sqlanon.publish.draft import person_claims
from sqlanon.publish.published import Release
from sqlanon.publish.stage import publish
from sqlanon.publish.targets.base import ExpectedFigures, Reach
from sqlanon.publish.targets.file.target import FileTarget
from sqlanon.recode.full_domain import FullDomainRecoding, suppressed_classes
from sqlanon.release.label_levels import find_range_kinds, label_levels
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn, utc_now
from sqlanon.release.metadata import SuppressedRows
from sqlanon.release.score import recompute_score
from sqlanon.release.source_change import SourceChange
from sqlanon.requirements import guaranteed_k
from sqlanon.requirements.macros import call_digest, call_k_anonymity
from sqlanon.sources.columns import refuse_repeated_keys
from sqlanon.sources.run import Run
from sqlanon.strategies.lattice.candidate import candidate_query, class_leaves_query, inner_levels
from sqlanon.strategies.lattice.checker import fetch_leaf_sums, policy_measure
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import PersonFigures, person_figures
from sqlanon.support.checks import Check
from sqlanon.support.coding import CodedAttribute, Column, Levels, code_column
from sqlanon.support.expressions import (
    all_of,
    col,
    cols,
    create_table,
    create_temporary_view,
    release_order,
    row_count,
    select,
    select_star,
    subquery,
    template,
)
from sqlanon.support.names import EARLIER_RELEASES_COLUMN
from sqlanon.support.notices import sort_messages
from sqlanon.support.resources import RELEASE_MACROS, __version__

# The release that is extended has the first mark: bit 1.
_UNRELEASED = template("SELECT * FROM :rows WHERE (:mark & 1) = 0")
_UNRELEASED_COUNTS = template(
    "SELECT * FROM :relation WHERE :code IN (SELECT code_0 FROM :marks WHERE (value & 1) = 0)"
)
_CLASS_FIGURES = template("""
    SELECT
        coalesce(sum(size), 0) AS rows,
        count(*) AS classes,
        coalesce(min(size), 0) AS smallest_class,
        coalesce(sum(size * size::DOUBLE), 0) AS squares
    FROM (SELECT count(*) AS size FROM :rows GROUP BY :quasi) AS c
""")
_PERSONS = template("""
    WITH
        waiting AS (SELECT DISTINCT :candidate_person FROM :candidates AS c ANTI JOIN :added AS a ON :same_key),
        class_persons AS (SELECT DISTINCT :quasi, :person FROM :released),
        classes AS (SELECT count(*) AS persons FROM class_persons GROUP BY :quasi)
    SELECT
        (SELECT count(*) FROM (SELECT DISTINCT :person FROM :source) AS p) AS persons,
        (SELECT count(*) FROM waiting) AS waiting,
        (SELECT count(*) FROM (SELECT DISTINCT :person FROM class_persons) AS p) AS in_release,
        (SELECT coalesce(min(persons), 0) FROM classes) AS smallest
""")


def _union_rows(columns: Sequence[str], released: exp.Expr, added: exp.Expr) -> exp.Select:
    return template("""
        SELECT :columns
        FROM (
            SELECT :columns FROM :released
            UNION ALL
            SELECT :columns FROM :added
        ) AS r
    """)(columns=cols(columns), released=released, added=added)


def release_to_extend(run: Run, policy: Policy) -> PublishedRelease:
    """Find the release of a policy, and refuse one that cannot be extended."""
    if problems := list(find_conflicts(EXTENSIONS, collect_sections(dict(policy)))):
        raise PolicyError(problems)
    assert policy.catalog is not None
    ledger = read_ledger(run.engine, policy.catalog.database, Reach(policy))
    publication = find_newest_publication(ledger, run, policy)
    refuse_repeated_keys(run.engine, run.source, policy.source.key)
    with open_earlier_release(run.engine, publication, Reach()) as release:
        advice = "extend it with that policy, or run anonymize with [release] after"
        return published_by_policy(policy, ledger, publication, release.manifest, advice)


def extend(
    runner: StatementRunner, run: Run, search_input: SearchInput, extended: PublishedRelease, started: float
) -> Extension:
    """Find the new rows of a source that can be added to a release.

    Makes in the work schema ``candidates``, ``waiting`` and ``added``.
    """
    policy, publication, manifest = search_input.policy, extended.publication, extended.manifest
    levels = {name: level or 0 for name, level in manifest.levels(search_input.heights).items()}
    _refuse_other_columns(search_input, manifest, levels)
    recoding, waiting = _recoding(run, search_input, levels)
    persons = None
    count = run.engine.rows(row_count(rows=run.work("added_rows")))[0][0]
    change = count_changes(run, policy, publication, manifest, search_input.marginals.rows)
    with open_earlier_release(run.engine, publication, Reach(), verified=True) as release:
        change = measure_released_rows(run, search_input, publication, manifest, release.relation, change)
        if search_input.columns.person is not None:
            _refuse_unknown_persons(release, change, policy)
            persons = _person_figures(run, search_input, recoding)
        rows = _union_rows(manifest.quasi_identifiers, release.relation, run.work("added_rows"))
        query = _CLASS_FIGURES(rows=subquery(rows, "r"), quasi=cols(manifest.quasi_identifiers))
        figures = runner.fetch_figures(query)
    everything = replace(recoding, source=search_input.source.relation)
    dependencies = measure_dependencies(run.engine, runner, search_input, everything, levels)
    totals = replace(waiting, classes=figures["classes"], squared_sizes=float(figures["squares"]))
    measure = policy_measure(search_input)
    warnings = (*run.notices, *warn_of_unprotected_columns(runner, search_input), *dependencies.warnings)
    return Extension(
        released_before=manifest.released_rows,
        new_rows=count + waiting.suppressed_rows,
        added_rows=count,
        waiting_rows=waiting.suppressed_rows,
        classes=figures["classes"],
        smallest_class=figures["smallest_class"] if persons is None else persons.smallest_class,
        smallest_class_rows=figures["smallest_class"],
        persons=persons,
        generalization=levels,
        measure=policy.search.measure,
        score=measure.reported_score(measure.score((*levels.values(), 0), totals)),
        dependencies=dependencies.narrowing,
        source_change=change,
        warnings=[*sort_messages(warnings)],
        _origin=_Origin(run, search_input, publication, recoding, dependencies.refusals, uuid4().hex, started),
    )


def _refuse_unknown_persons(release: EarlierRelease, change: SourceChange, policy: Policy) -> None:
    """Refuse if released rows were deleted or changed: only the source knows the persons of rows."""
    if change.missing_rows:
        raise ReleaseError(
            f"{release.path}: {change.missing_rows:,} of its rows were deleted or changed in the source "
            f"({change.losses}). Their persons are unknown, so the persons of a class with new rows "
            f"cannot be counted: run `sqlanon withdraw {policy.file_name or 'POLICY.toml'}` first, which publishes the "
            "release again from the rows that the source still has"
        )


def _with_persons(run: Run, columns: Sequence[str], person: str) -> exp.Select:
    """Columns of the released and added rows, with their persons."""
    return _union_rows((*columns, person), *(run.work_names.view(f"{name}_persons") for name in ("released", "added")))


def _person_figures(run: Run, search_input: SearchInput, recoding: FullDomainRecoding) -> PersonFigures:
    """Count the persons of the source, and of the extended release: all of its rows are in the source.

    Makes the views ``released_persons`` and ``added_persons``.
    """
    person, engine = search_input.columns.person, run.engine
    assert person is not None
    released_rows = replace(recoding, source=run.work("released_rows"), suppressed=None)
    for name, rows in (("released", released_rows), ("added", recoding)):
        query = rows.with_column(Column(person)).select(shuffled=False)
        engine.execute(create_temporary_view(run.work_names.view(f"{name}_persons"), query))
    quasi = [column.name for column in recoding.columns if column.quasi is not None]
    key = [col(name, "c").eq(col(name, "a")) for name in search_input.columns.key]
    query = _PERSONS(
        person=col(person),
        candidate_person=col(person, "c"),
        source=search_input.source.relation,
        candidates=run.work("candidates"),
        added=run.work("added_rows"),
        same_key=all_of(key),
        quasi=cols(quasi),
        released=subquery(_with_persons(run, quasi, person), "r"),
    )
    return person_figures(*engine.rows(query)[0])


def _refuse_other_columns(search_input: SearchInput, manifest: Manifest, levels: Mapping[str, int]) -> None:
    """Refuse a source whose columns, or their types, differ from those of the release."""
    source = search_input.source
    recoding = FullDomainRecoding(
        source.relation, search_input.released_columns, search_input.attributes, (), (*levels.values(), 0)
    )
    new_columns = [
        (column.name, recoding.released_type(column, source.columns[column.name]))
        for column in search_input.released_columns
    ]
    if new_columns != [(column.name, column.type) for column in manifest.columns]:
        raise SourceError(
            "source: its columns are not those of the release: anonymize makes a release of them, which is not "
            "compared with the one that it replaces"
        )


def _recoding(
    run: Run, search_input: SearchInput, generalization: Mapping[str, int]
) -> tuple[FullDomainRecoding, Figures]:
    """The recoding of the added rows, and the figures of the waiting rows.

    Makes ``candidates``, ``waiting`` and ``added``.
    """
    engine, levels = run.engine, (*generalization.values(), 0)
    candidates, waiting = run.work("candidates"), run.work("waiting")
    unreleased = _UNRELEASED(rows=search_input.source.relation, mark=col(EARLIER_RELEASES_COLUMN))
    engine.execute(create_table(candidates.copy(), unreleased))
    space = _select_unreleased(search_input.frequency_sets.class_space(levels), search_input.attributes[-1])
    figures = _figures(search_input, space, levels)
    engine.execute(create_table(waiting.copy(), suppressed_classes(space, levels)))
    recoding = FullDomainRecoding(
        candidates,
        search_input.released_columns,
        search_input.attributes,
        tuple(hierarchy.top for hierarchy in search_input.hierarchies),
        levels,
        waiting,
    )
    with_keys = replace(recoding, columns=(*recoding.columns, *map(Column, search_input.columns.key)))
    engine.execute(create_table(run.work("added_rows"), with_keys.select(shuffled=False)))
    return recoding, figures


def _select_unreleased(space: ClassSpace, marks: CodedAttribute) -> ClassSpace:
    """The same classes with only the rows that the release does not contain."""
    code = col(code_column(len(space.heights) - 1, 0))

    def select_unreleased(relation: exp.Expr) -> exp.Expr:
        return subquery(_UNRELEASED_COUNTS(relation=relation, code=code, marks=marks.table), "f")

    sensitive = {key: replace(counts, table=select_unreleased(counts.table)) for key, counts in space.sensitive.items()}
    return replace(space, frequency=select_unreleased(space.frequency), sensitive=sensitive)


def _figures(search_input: SearchInput, space: ClassSpace, levels: Levels) -> Figures:
    """The figures of the waiting rows for the policy's measure."""
    runner, measure = search_input.frequency_sets.runner, policy_measure(search_input)
    suppressed = runner.fetch_figures(candidate_query(space, levels))["suppressed_rows"]
    leaves: dict[int, float] = {}
    if suppressed and measure.needs_leaves and inner_levels(search_input.attributes, levels):
        query = class_leaves_query(space, [(levels, False)], search_input.attributes)
        leaves = fetch_leaf_sums(runner, query).get(0, {})
    return Figures(0, suppressed, suppressed_leaves=leaves)


@dataclass(frozen=True)
class _Origin:
    """The objects from which an extension is published."""

    run: Run
    search_input: SearchInput
    publication: Publication
    recoding: FullDomainRecoding
    refusals: Sequence[str]
    run_id: str
    started: float


@dataclass(frozen=True)
class Extension:
    """New rows that can be added to a release; nothing is published yet.

    Attributes
    ----------
    released_before:
        Rows of the release.
    new_rows:
        Rows of the source that it does not contain: rows that are new, and rows that could not be released before.
    added_rows, waiting_rows:
        The new rows that are released now, and those that have to wait.
    classes, smallest_class, smallest_class_rows:
        The classes of the extended release. Where persons are counted, ``smallest_class`` counts persons.
    persons:
        The persons of the source, where persons are counted: with a waiting row (``suppressed``), and all others.
    generalization, measure, score:
        The unchanged level of each quasi-identifier, and its score for the current source with the waiting rows.
    dependencies:
        The released columns that narrow a generalized quasi-identifier: see docs/explanation/dependencies.md.
    source_change:
        Changes of the source since the release: rows that left the source stay in the release.
    warnings:
        Messages for the data holder; those about other releases follow once it is published.
    """

    released_before: int
    new_rows: int
    added_rows: int
    waiting_rows: int
    classes: int
    smallest_class: int
    smallest_class_rows: int
    persons: PersonFigures | None
    generalization: dict[str, int]
    measure: str
    score: float
    dependencies: tuple[Narrowing, ...]
    source_change: SourceChange
    warnings: list[str]
    _origin: _Origin

    @property
    def path(self) -> Path:
        """The path of the release that is extended."""
        return self._origin.publication.path

    @property
    def table(self) -> str:
        """The table of that release."""
        return self._origin.publication.table_name

    @property
    def released_rows(self) -> int:
        """Rows of the extended release."""
        return self.released_before + self.added_rows

    def sql(self, dialect: str = "duckdb") -> str:
        """The statement that makes the added rows, on the connection of the `Database` that found the extension."""
        return self._origin.recoding.select(shuffled=False).sql(dialect=dialect, pretty=True)

    def publish(self, force: bool = False) -> Release:
        """Replace the release by the extended release.

        Parameters
        ----------
        force:
            Whether to publish it even if it breaks another release of the ledger, which then records it.

        Raises
        ------
        ReleaseError
            The release cannot be written, or no longer exists.
        AuditError
            The audit refused it; nothing was changed.
        """
        if self._origin.refusals:
            raise AuditError(list(self._origin.refusals))
        origin = self._origin
        run, search_input, publication = origin.run, origin.search_input, origin.publication
        with open_earlier_release(run.engine, publication, Reach(), verified=True) as release:
            draft = ExtensionDraft(run, search_input, self, release, origin.recoding)
            hashed = select([col(KEY_HASH)], run.work("keys_0"))
            extended = ExtensionRecord(publication.run_id, self._hierarchies(), hashed, self._run_record())
            rows, keyed = self.released_before + self.new_rows, select_star(run.work("added_rows"))
            person = search_input.columns.person
            people = None if person is None else _with_persons(run, [], person)
            entry = LedgerEntry(
                run, search_input, origin.run_id, publication.path, rows, force, keyed, extended, peopled=people
            )
            target = FileTarget(publication.path, publication.table_name)
            published: Release = publish(
                target, draft, entry, attempts=1
            )  # a second attempt would meet another release
        self.warnings.extend(note for note in entry.notes(publication.digest) if note not in self.warnings)
        return published

    def _hierarchies(self) -> list[Hierarchy]:
        """The current hierarchies, with the labels of released values that left the source."""
        run, search_input = self._origin.run, self._origin.search_input
        earlier = copy_released_hierarchies(run, search_input.policy, self._origin.publication.run_id)
        return [
            merge_hierarchies(run, earlier[current.attribute.lower()], current)
            if current.attribute.lower() in earlier
            else current
            for current in search_input.policy_hierarchies
        ]

    def _run_record(self) -> dict[str, Any]:
        return build_run_record(
            self._origin.search_input.policy,
            self.generalization,
            run_id=self._origin.run_id,
            started_at=utc_now(),
            strategy="extend",
            measure=self.measure,
            rows=self.released_before + self.new_rows,
            suppressed_rows=self.waiting_rows,
            classes=self.classes,
            score=self.score,
            optimal=False,
            nodes=1,
            checked=1,
            seconds=time.perf_counter() - self._origin.started,
        )

    def to_dict(self) -> dict[str, Any]:
        """The figures, ready for JSON."""
        names = ("released_before", "new_rows", "added_rows", "waiting_rows", "released_rows")
        quality_names = ("classes", "smallest_class", "generalization", "measure", "score")
        figures = {name: getattr(self, name) for name in (*names, *quality_names)}
        if self.persons is not None:
            figures |= {"smallest_class_rows": self.smallest_class_rows, "persons": self.persons.persons}
            figures |= {"released_persons": self.persons.fully_released, "suppressed_persons": self.persons.suppressed}
        figures |= {"source_change": self.source_change.to_dict()}
        return figures | {"dependencies": [narrowing.to_dict() for narrowing in self.dependencies]}


@dataclass(frozen=True)
class ExtensionDraft:
    """An extended release before it is written: a `sqlanon.publish.targets.base.Draft`."""

    run: Run
    search_input: SearchInput
    extension: Extension
    release: EarlierRelease
    recoding: FullDomainRecoding
    is_draft: ClassVar[bool] = False
    retained_versions: ClassVar[int] = 1

    @property
    def expected_figures(self) -> ExpectedFigures:
        """The digest of a release is a sum over rows: those of the release and of the added rows add up."""
        engine, macros, before = self.run.engine, self.run.install_macros(RELEASE_MACROS), self.release.manifest.digest
        added = engine.rows(call_digest(self._added_rows.sql(engine.dialect), macros))[0][1]
        figures = (self.extension.released_rows, self.extension.classes, self.extension.smallest_class_rows)
        return ExpectedFigures(*figures, digest=str(int(before) + int(added)))

    @cached_property
    def _added_rows(self) -> exp.Table:
        """The added rows without their keys."""
        view = self.run.work_names.view("added_rows")
        columns = cols(column.name for column in self.columns())
        self.run.engine.execute(create_temporary_view(view.copy(), select(columns, self.run.work("added_rows"))))
        return view

    @property
    def quasi_identifiers(self) -> Sequence[str]:
        return self.release.manifest.quasi_identifiers

    @property
    def range_kinds(self) -> dict[str, RangeKind]:
        return find_range_kinds(self.run.engine, self.search_input)

    def label_levels(self, released: exp.Table) -> exp.Query:
        return label_levels(self.run.engine, self.search_input, self.release.manifest.generalization, released)

    def columns(self) -> tuple[ReleasedColumn, ...]:
        return self.release.manifest.columns

    def repeating_columns(self) -> Sequence[str]:
        """No columns: text with few values is not counted again."""
        return ()

    def rows(self) -> AbstractContextManager[exp.Select]:
        names = [column.name for column in self.columns()]
        query = _union_rows(names, self.release.relation, self.run.work("added_rows"))
        return nullcontext(query.order_by(*release_order(self.quasi_identifiers), copy=False))

    def remote_rows(self) -> NoReturn:
        """Releases on a server cannot be extended."""
        raise NotImplementedError

    def checks(self, released: exp.Table) -> list[Check]:
        run, recoding, macros = self.run, self.recoding, self.run.install_macros()
        person, all_rows = self.search_input.columns.person, None
        if person is not None:
            all_rows = _with_persons(run, [check.name for check in self.columns()], person)
        audit = SourceAudit(run.engine, run.work, macros, self.search_input, recoding, None, all_rows)
        checks = audit.checks(released.sql(run.engine.dialect))
        if not self.extension.added_rows:
            return checks
        added_rows = self._added_rows.sql(run.engine.dialect)
        added_persons = added_rows if person is None else run.work_names.view("added_persons").sql(run.engine.dialect)
        checks += (replace(check, name=f"new rows: {check.name}") for check in audit.checks_of_classes(added_persons))
        k = guaranteed_k(self.search_input.policy.privacy, self.search_input.policy.quasi_identifiers)
        if k != self.search_input.policy.k:  # no check of k-anonymity has counted that
            smallest = run.engine.rows(call_k_anonymity(added_rows, self.quasi_identifiers, macros))[0][0]
            checks.append(Check("new rows", smallest >= k, f"in the smallest class: {smallest:,} (required: {k})"))
        return checks

    def suppressed_by_label(self, released: exp.Table) -> SuppressedRows:
        """Empty: rows that wait are not suppressed."""
        return ()

    def manifest(self, table_name: str, facts: Facts) -> Manifest:
        released = self.release.manifest
        claims = replace(
            released,
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{self.run.engine.version}, python {released.engine.partition('python ')[2]}",
            rows=self.extension.released_before + self.extension.new_rows,
            dropped_lines=self.run.dropped_lines(self.search_input.policy),
            released_rows=facts.rows,
            suppressed_rows=self.extension.waiting_rows,
            classes=facts.classes,
            **person_claims(self.extension.persons, facts.smallest_class),
            score=None,
            optimal=False,
            digest=facts.digest,
            version=facts.version,
        )
        # The source may have changed since rows were released: scores that need class sizes keep their figure.
        needs_sizes = MEASURES[claims.measure].needs_squares
        return claims if needs_sizes else replace(claims, score=recompute_score(claims, {}))
