"""The release of a searched source, before it is written: its columns, rows and checks."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.audit.source_audit import SourceAudit
from sqlanon.disclosure.dependencies import Dependencies
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.policy.guarantee import strategy_guarantee
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.recode.stage import Recoding
from sqlanon.release.label_levels import label_levels
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn, utc_now
from sqlanon.release.metadata import SuppressedRows, can_show_labels, suppressed_by_label
from sqlanon.release.ranges import find_range_kinds
from sqlanon.release.score import is_proof_public, is_score_public, public_generalization
from sqlanon.release.targets.base import ExpectedFigures, kind_for_target
from sqlanon.requirements import guaranteed_k, list_requirement_queries, needs_source
from sqlanon.requirements.audit import AuditedRelease, PrivateRelations, Queryable
from sqlanon.requirements.macros import call_digest, call_k_anonymity
from sqlanon.sources.run import Run
from sqlanon.strategies.examples import example_levels
from sqlanon.strategies.lattice.checker import policy_measure
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.persons import PersonFigures
from sqlanon.strategies.lattice.population_match import generalized_population
from sqlanon.strategies.lattice.result import SearchResult
from sqlanon.strategies.recoding import ReleaseStatement
from sqlanon.support.coding import KNOWN, Column
from sqlanon.support.expressions import cast, col, table
from sqlanon.support.notices import Notice
from sqlanon.support.resources import __version__

if TYPE_CHECKING:
    from sqlanon.decoys import DecoyResult
    from sqlanon.noise.stage import NoiseResult

FEW = 1000
"""The number of labels up to which a column is written as a dictionary."""


@dataclass(frozen=True)
class ReplacedRelease:
    """The run of a release that is published again without rows that have left its source; and whether its other rows
    are the only ones."""

    run_id: str
    only_its_rows: bool


@dataclass(frozen=True)
class ReleaseDraft:
    """What was found, and what was done to it since: a `sqlanon.release.targets.base.Draft`.

    ``recoding`` is how the rows are made before noise, with the figures of the release; ``noise`` and ``decoys`` are
    None without noise, and without decoys.
    """

    run: Run
    search_input: SearchInput
    result: SearchResult
    recoding: Recoding
    noise: NoiseResult | None
    decoys: DecoyResult | None
    dependencies: Dependencies
    warnings: tuple[Notice, ...]
    seconds: dict[str, float]
    is_draft: bool = False
    replaces: ReplacedRelease | None = None

    @property
    def retained_versions(self) -> int:
        """The number of versions that its place keeps: earlier ones still have rows that are withdrawn."""
        return 1 if self.is_draft or self.replaces is not None else self.search_input.policy.retained_versions

    @property
    def statement(self) -> ReleaseStatement:
        return self.recoding.statement if self.noise is None else self.noise.statement

    @property
    def score(self) -> float:
        """The cost of its real rows."""
        return self.result.score if self.decoys is None else self.decoys.score

    @property
    def quasi_identifiers(self) -> list[str]:
        return [column.name for column in self.statement.columns if column.quasi is not None]

    @property
    def range_kinds(self) -> dict[str, RangeKind]:
        return find_range_kinds(self.run.engine, self.search_input)

    @property
    def expected_figures(self) -> ExpectedFigures:
        recoding = self.recoding
        rows = self.search_input.marginals.rows - recoding.figures.suppressed_rows + recoding.masked_rows
        rows += 0 if self.decoys is None else self.decoys.decoys.rows
        return ExpectedFigures(rows, recoding.figures.classes, recoding.smallest_class, recoding.masked_rows)

    @contextmanager
    def rows(self, shuffled: bool = True) -> Iterator[exp.Select]:
        """The statement that makes its rows here, class by class unless for checks; where the source is elsewhere,
        a relation that can be read once."""
        types = {one.name: one.type for one in self.columns()}
        with self.search_input.source.release_rows(self.run.engine, self.statement, types, shuffled) as relation:
            yield relation

    def remote_rows(self) -> AbstractContextManager[exp.Query]:
        return self.search_input.source.remote_release_query(self.run.engine, self.statement)

    @contextmanager
    def name_source_in_errors(self) -> Iterator[None]:
        """Errors that the source caused name it."""
        source, types = self.search_input.source, {one.name: one.type for one in self.columns()}
        try:
            with source.transfer_errors(types):
                yield
        except ReleaseError as error:
            if gone := [str(file) for file in source.files if not file.exists()]:
                raise ReleaseError(
                    f"the source was removed since it was read: {', '.join(gone)}; nothing was published"
                ) from error
            raise

    def columns(self) -> tuple[ReleasedColumn, ...]:
        roles = {name.lower(): attribute.role for name, attribute in self.search_input.policy.attributes.items()}
        source, statement = self.search_input.source, self.statement
        columns = []
        for column in statement.columns:
            type_ = statement.released_type(column, source.columns[column.name])
            columns.append(ReleasedColumn(column.name, type_, roles[column.name.lower()]))
        return tuple(columns)

    def repeating_columns(self) -> list[str]:
        statement = self.statement
        counts = self.run.engine.rows(statement.label_counts())[0]
        names = {column.quasi: column.name for column in statement.columns if column.quasi is not None}
        few = {name for i, name in names.items() if counts[i] <= FEW}
        return [column.name for column in self.columns() if column.name in few and column.type == "VARCHAR"]

    def checks(self, released: exp.Table) -> list[Check]:
        run, policy = self.run, self.search_input.policy
        if not needs_source(policy.privacy, policy.source.person_column is not None):
            return []
        macros = run.install_macros()
        plain = self.recoding.statement
        audit = SourceAudit(run.engine, run.work, macros, self.search_input, self.statement, plain, run.population)
        return audit.checks(released.sql(run.engine.dialect))

    def manifest(self, table_name: str, facts: Facts) -> Manifest:
        policy, result, prepared = self.search_input.policy, self.result, self.search_input
        levels, heights = public_generalization(policy, self.recoding.generalization, prepared.heights)
        claims = Manifest(
            table_name=table_name,
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{self.run.engine.version}, python {platform.python_version()}",
            policy=policy.redact() | ({"draft": True} if self.is_draft else {}),
            policy_hash=policy.fingerprint(),
            columns=self.columns(),
            generalization=levels,
            rows=prepared.marginals.rows,
            dropped_lines=self.run.dropped_lines(policy),
            released_rows=facts.rows,
            suppressed_rows=self.recoding.figures.suppressed_rows,
            classes=facts.classes,
            **self._of_persons(facts),
            measure=policy.search.measure,
            score=None,
            optimal=result.optimal and is_proof_public(policy),
            digest=facts.digest,
            guarantee=strategy_guarantee(policy.search.strategy),
            heights=heights,
            version=facts.version,
            **({} if self.noise is None else self.noise.manifest_values(policy)),
            **({} if self.decoys is None else self.decoys.decoys.manifest_values()),
        )
        is_based = policy.release is not None and bool(policy.release.after)
        if is_based or not is_score_public(claims):
            return claims
        return replace(claims, score=policy_measure(prepared).reported_score(self.score))

    def _of_persons(self, facts: Facts) -> dict[str, Any]:
        """The smallest class and the persons, by the manifest's columns. All masked rows are a class, too."""
        persons = self.recoding.persons
        figures = person_claims(persons, facts.smallest_class)
        if persons is not None and self.recoding.masked_rows:
            figures["smallest_class"] = min(persons.smallest_class, persons.suppressed)
        return figures

    def label_levels(self, released: exp.Table) -> exp.Query:
        return label_levels(self.run.engine, self.search_input, self.recoding.generalization, released)

    def suppressed_by_label(self, released: exp.Table) -> SuppressedRows:
        # Of those, readers of the release that is replaced could tell who is withdrawn.
        shows_none = self.decoys is not None or self.replaces is not None
        return () if shows_none else count_suppressed_by_label(self.run, self.search_input, self.recoding, released)

    def keyed_rows(self) -> exp.Query | None:
        """The released rows with the key that the policy names; None without one."""
        return self._rows_with(self.search_input.columns.key)

    def rows_with_persons(self) -> exp.Query | None:
        """The released rows with the person of each; None where persons are not named, or rows are elsewhere."""
        person = self.search_input.columns.person
        return None if person is None or self.search_input.source.access != "rows" else self._rows_with([person])

    def noise_ranges(self) -> exp.Query | None:
        """The classes with the ranges of their noise (`sqlanon.noise.statements.NoisyRecoding.class_ranges`); None
        without noise, or where rows are elsewhere."""
        if self.noise is None or self.search_input.source.access != "rows":
            return None
        return self.noise.statement.class_ranges()

    def _rows_with(self, columns: Sequence[str]) -> exp.Query | None:
        statement = self.statement
        if self.decoys is not None and self.decoys.statement is not None:
            statement = self.decoys.statement.real  # a decoy is nobody, and has none
        if not columns:
            return None
        for name in columns:
            statement = statement.with_column(Column(name))
        return statement.select(shuffled=False)


def person_claims(persons: PersonFigures | None, smallest_class: int) -> dict[str, Any]:
    """The persons of a release and its smallest class, which has so many rows, by the manifest's columns."""
    if persons is None:
        return {"smallest_class": smallest_class}
    return {
        "smallest_class": persons.smallest_class,
        "smallest_class_rows": smallest_class,
        "persons": persons.persons,
        "released_persons": persons.released,
        "suppressed_persons": persons.suppressed,
        "partly_released_persons": persons.partly_released,
    }


def count_suppressed_by_label(
    run: Run, prepared: SearchInput, recoding: Recoding, released: exp.Table
) -> SuppressedRows:
    """What may be told of the suppressed rows, by the released labels of one attribute: nothing of fewer than k.

    It is the first attribute that is not at its top: one in all releases of a policy, whatever its rows are. Those of
    two could be held against one another, where the one follows from the other. Where no one level was chosen for all
    rows, where rows are not persons, or are nobody's, and beside releases that readers have (versions that are kept,
    those that it is based on), nothing is told: their rows could be taken from the sums.
    """
    policy, suppressed = prepared.policy, recoding.figures.suppressed_rows
    may_show = policy.source.person_column is None and policy.population is None and not policy.noisy_attributes
    alone = not prepared.earlier.run_ids and policy.retained_versions == 1
    if not may_show or not alone or policy.search.is_local or not suppressed:
        return []
    own = zip(prepared.policy_attributes, recoding.generalization.values(), strict=True)
    below = [(attribute, level) for attribute, level in own if level is not None and level < attribute.height]
    if not below:
        return []
    attribute, level = below[0]
    least = guaranteed_k(policy.privacy, policy.generalized_attributes)
    label = cast(col(f"label_{level}" if level >= attribute.lowest_labelled else "value"), "VARCHAR")
    query = suppressed_by_label(attribute.table, label, col(KNOWN), released.copy(), attribute.column, least)
    rows = run.engine.rows(query)
    labels = rows[0][-1] if rows else 0
    if not can_show_labels([row[1] for row in rows], suppressed, labels, least):
        return []
    return [(attribute.column, value, left_out, kept) for value, left_out, kept, _ in rows]


def show_rows(steps: StatementRunner, draft: ReleaseDraft) -> None:
    """Record the statements that make the rows of a release."""
    source, policy = draft.search_input.source, draft.search_input.policy
    note = "here: at level 1, or the lowest allowed level"
    if policy.search.is_local:
        note = "each combination with its own labels"
    steps.show_text(source.render_statement(steps.engine, source.release_query(draft.statement)))
    steps.finish("recode and suppress", source.release_note(kind_for_target(None, policy).writes, note))


def show_audit(steps: StatementRunner, draft: ReleaseDraft) -> None:
    """Record the audit: in the release file alone; and where it needs the source, by the engine that reads it."""
    run, prepared, dialect = draft.run, draft.search_input, steps.engine.dialect
    policy, columns, source, release = prepared.policy, prepared.columns, prepared.source, prepared.policy.release
    relation = table("release" if release is None else release.name).sql(dialect)
    persons = needs = person = None
    levels = example_levels(policy, prepared.marginals.heights)
    tops = tuple("*" for _ in prepared.attributes)
    if columns.person is not None:
        released = (*prepared.released_columns, Column(columns.person))
        recoding = FullDomainRecoding(source.relation, released, prepared.attributes, tops, levels)
        persons = steps.make(run.work("audited"), recoding.select(shuffled=False))
    if run.population is not None and prepared.population is not None:
        person = prepared.population.person
        query = generalized_population(
            run.population.source.relation,
            prepared.population.columns,
            prepared.attributes,
            tops,
            levels,
            prepared.types,
            person,
        )
        needs = steps.make(run.work("population_audited"), query)
    private = PrivateRelations(
        source.relation.sql(dialect),
        columns.person,
        None if needs is None else needs.sql(dialect),
        person,
        {name: run.work(f"sensitive_hierarchy_{s}").sql(dialect) for s, name in enumerate(columns.sensitive_names)},
    )
    subject = relation if persons is None else persons.sql(dialect)

    def audited(by: Queryable) -> AuditedRelease:
        sensitive = policy.attributes_with_role("sensitive")
        return AuditedRelease(by, subject, columns.generalized, sensitive, 0, columns.person is not None, None, private)

    queries: list[exp.Expr] = [call_k_anonymity(relation, columns.generalized), call_digest(relation)]
    queries += list_requirement_queries(policy.privacy, audited)
    for text in dict.fromkeys(steps.engine.render(query) for query in queries):
        steps.show_text(text)
    note = "in the new file, which then replaces the old one; checks that need the source run in its engine"
    steps.finish("audit and publish", note)
