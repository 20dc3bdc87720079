"""A release before it is written: its columns, rows, checks and manifest."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from sqlanon.audit.source_audit import SourceAudit
from sqlanon.disclosure.dependencies import Dependencies
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import ReleaseError
from sqlanon.hierarchies.bounds import RangeKind
from sqlanon.policy.guarantee import strategy_guarantee
from sqlanon.publish.targets.base import ExpectedFigures
from sqlanon.publish.targets.kinds import kind_for_target
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.recode.stage import Recoding
from sqlanon.release.label_levels import find_range_kinds, label_levels
from sqlanon.release.manifest import Facts, Manifest, ReleasedColumn, types_in, utc_now
from sqlanon.release.metadata import SuppressedRows, can_show_labels, suppressed_by_label
from sqlanon.release.score import is_proof_public, is_score_public, public_generalization
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
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.checks import Check
from sqlanon.support.coding import KNOWN, Column
from sqlanon.support.expressions import cast, col, table
from sqlanon.support.notices import Notice
from sqlanon.support.resources import __version__

if TYPE_CHECKING:
    from sqlanon.decoys import DecoyResult
    from sqlanon.noise.stage import NoiseResult

_MAX_DICTIONARY_LABELS = 1000
"""Maximum number of labels of a column that is written with dictionary compression."""


@dataclass(frozen=True)
class ReplacedRelease:
    """A release that is published again without rows that have left its source.

    ``only_its_rows`` says whether the new release has no rows but those of the replaced one.
    """

    run_id: str
    only_its_rows: bool


@dataclass(frozen=True)
class ReleaseDraft:
    """The result of a search with its recoding: a `sqlanon.publish.targets.base.Draft`.

    ``recoding`` has the statement and the figures of the release, with its noise or decoys.
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
        """The number of versions to keep; earlier versions of a withdrawal would still have the withdrawn rows."""
        return 1 if self.is_draft or self.replaces is not None else self.search_input.policy.retained_versions

    @property
    def statement(self) -> ClassRecoding:
        return self.recoding.statement

    @property
    def score(self) -> float:
        """The score of the real rows."""
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
        """The query of the released rows; for a remote source, a relation that can be read once.

        ``shuffled`` rows are ordered by class, and at random within a class; checks do not need an order.
        """
        types = types_in(self.columns())
        with self.search_input.source.release_rows(self.run.engine, self.statement, types, shuffled) as relation:
            yield relation

    def remote_rows(self) -> AbstractContextManager[exp.Query]:
        return self.search_input.source.remote_release_query(self.run.engine, self.statement)

    @contextmanager
    def name_source_in_errors(self) -> Iterator[None]:
        """Name the source in errors that it causes."""
        source, types = self.search_input.source, types_in(self.columns())
        try:
            with source.transfer_errors(types):
                yield
        except ReleaseError as error:
            if missing := [str(file) for file in source.files if not file.exists()]:
                raise ReleaseError(
                    f"the source was removed since it was read: {', '.join(missing)}; nothing was published"
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
        repeating = {name for i, name in names.items() if counts[i] <= _MAX_DICTIONARY_LABELS}
        return [column.name for column in self.columns() if column.name in repeating and column.type == "VARCHAR"]

    def checks(self, released: exp.Table) -> list[Check]:
        run, policy = self.run, self.search_input.policy
        if not needs_source(policy.privacy, policy.source.person_column is not None):
            return []
        audit = SourceAudit(
            run.engine, run.work, run.install_macros(), self.search_input, self.statement, run.population
        )
        return audit.checks(released.sql(run.engine.dialect))

    def manifest(self, table_name: str, facts: Facts) -> Manifest:
        policy, result, search_input = self.search_input.policy, self.result, self.search_input
        levels, heights = public_generalization(policy, self.recoding.generalization, search_input.heights)
        claims = Manifest(
            table_name=table_name,
            published_at=utc_now(),
            sqlanon_version=__version__,
            engine=f"{self.run.engine.version}, python {platform.python_version()}",
            policy=policy.redact() | ({"draft": True} if self.is_draft else {}),
            policy_hash=policy.fingerprint(),
            columns=self.columns(),
            generalization=levels,
            rows=search_input.marginals.rows,
            dropped_lines=self.run.dropped_lines(policy),
            released_rows=facts.rows,
            suppressed_rows=self.recoding.figures.suppressed_rows,
            classes=facts.classes,
            **person_claims(self.recoding.persons, facts.smallest_class, bool(self.recoding.masked_rows)),
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
        return replace(claims, score=policy_measure(search_input).reported_score(self.score))

    def label_levels(self, released: exp.Table) -> exp.Query:
        return label_levels(self.run.engine, self.search_input, self.recoding.generalization, released)

    def suppressed_by_label(self, released: exp.Table) -> SuppressedRows:
        # The counts of a withdrawal would show readers of the replaced release who is withdrawn.
        hides_counts = self.decoys is not None or self.replaces is not None
        return () if hides_counts else count_suppressed_by_label(self.run, self.search_input, self.recoding, released)

    def keyed_rows(self) -> exp.Query | None:
        """The released rows with their key; None if the policy names no key."""
        return self._rows_with(self.search_input.columns.key)

    def rows_with_persons(self) -> exp.Query | None:
        """The released rows with their person; None without a person column, or for a remote source."""
        person = self.search_input.columns.person
        return None if person is None or self.search_input.source.access != "rows" else self._rows_with([person])

    def noise_ranges(self) -> exp.Query | None:
        """The noise ranges of the classes; None without noise, or for a remote source."""
        if self.noise is None or self.search_input.source.access != "rows":
            return None
        return self.noise.drawn.class_ranges(self.statement)

    def _rows_with(self, columns: Sequence[str]) -> exp.Query | None:
        if not columns:
            return None
        # decoys have no person or key
        statement = self.statement if self.decoys is None else replace(self.statement, drawn=None)
        for name in columns:
            statement = statement.with_column(Column(name))
        return statement.select(shuffled=False)


def person_claims(persons: PersonFigures | None, smallest_class: int, has_masked_rows: bool = False) -> dict[str, Any]:
    """The manifest's figures of persons; ``smallest_class`` is counted in rows. Masked rows form a class, too."""
    if persons is None:
        return {"smallest_class": smallest_class}
    masked_class = [persons.suppressed] if has_masked_rows else []
    return {
        "smallest_class": min([persons.smallest_class, *masked_class]),
        "smallest_class_rows": smallest_class,
        "persons": persons.persons,
        "released_persons": persons.fully_released,
        "suppressed_persons": persons.suppressed,
        "partly_released_persons": persons.partly_released,
    }


def count_suppressed_by_label(
    run: Run, search_input: SearchInput, recoding: Recoding, released: exp.Table
) -> SuppressedRows:
    """Count the suppressed rows by released label of one attribute, if the release may show them.

    The attribute is the first that is below its top, whichever rows there are: counts of two attributes could be
    combined if one follows from the other. No counts are shown

    - of labels with fewer than k rows;
    - if levels differ between rows, or if the policy has a person column, a population, or noise;
    - together with releases that readers have (versions that are kept, and releases that this one is based on): the
      rows of these could be subtracted.
    """
    policy, suppressed = search_input.policy, recoding.figures.suppressed_rows
    counts_are_safe = policy.source.person_column is None and policy.population is None and not policy.noisy_attributes
    is_alone = not search_input.earlier.run_ids and policy.retained_versions == 1
    if not counts_are_safe or not is_alone or policy.search.is_local or not suppressed:
        return []
    levels = zip(search_input.policy_attributes, recoding.generalization.values(), strict=True)
    below_top = [(attribute, level) for attribute, level in levels if level is not None and level < attribute.height]
    if not below_top:
        return []
    attribute, level = below_top[0]
    k = guaranteed_k(policy.privacy, policy.generalized_attributes)
    label = cast(col(f"label_{level}" if level >= attribute.lowest_labelled else "value"), "VARCHAR")
    rows = run.engine.rows(
        suppressed_by_label(attribute.table, label, col(KNOWN), released.copy(), attribute.column, k)
    )
    labels = rows[0][-1] if rows else 0
    if not can_show_labels([suppressed_rows for _, suppressed_rows, _, _ in rows], suppressed, labels, k):
        return []
    return [(attribute.column, value, suppressed_rows, kept_rows) for value, suppressed_rows, kept_rows, _ in rows]


def show_rows(runner: StatementRunner, draft: ReleaseDraft) -> None:
    """Record the statements of the released rows, for a plan."""
    source, policy = draft.search_input.source, draft.search_input.policy
    note = "here: at level 1, or the lowest allowed level"
    if policy.search.is_local:
        note = "each combination with its own labels"
    runner.record_text(source.render_statement(runner.engine, source.release_query(draft.statement)))
    runner.finish_stage("recode and suppress", source.release_note(kind_for_target(None, policy).writes, note))


def show_audit(runner: StatementRunner, draft: ReleaseDraft) -> None:
    """Record the statements of the audit, for a plan."""
    run, search_input, dialect = draft.run, draft.search_input, runner.engine.dialect
    policy, columns, source = search_input.policy, search_input.columns, search_input.source
    relation = table("release" if policy.release is None else policy.release.name).sql(dialect)
    persons = needed = person = None
    levels = example_levels(policy, search_input.marginals.heights)
    tops = tuple("*" for _ in search_input.attributes)
    if columns.person is not None:
        released = (*search_input.released_columns, Column(columns.person))
        recoding = FullDomainRecoding(source.relation, released, search_input.attributes, tops, levels)
        persons = runner.create_table(run.work("audited"), recoding.select(shuffled=False))
    if run.population is not None and search_input.population is not None:
        person = search_input.population.person
        query = generalized_population(
            run.population.source.relation,
            search_input.population.columns,
            search_input.attributes,
            tops,
            levels,
            search_input.types,
            person,
        )
        needed = runner.create_table(run.work("population_audited"), query)
    private = PrivateRelations(
        source.relation.sql(dialect),
        columns.person,
        None if needed is None else needed.sql(dialect),
        person,
        {name: run.work(f"sensitive_hierarchy_{s}").sql(dialect) for s, name in enumerate(columns.sensitive_names)},
    )
    subject = relation if persons is None else persons.sql(dialect)

    def build_audited_release(by: Queryable) -> AuditedRelease:
        sensitive = policy.attributes_with_role("sensitive")
        return AuditedRelease(by, subject, columns.generalized, sensitive, 0, columns.person is not None, None, private)

    queries: list[exp.Expr] = [call_k_anonymity(relation, columns.generalized), call_digest(relation)]
    queries += list_requirement_queries(policy.privacy, build_audited_release)
    for text in dict.fromkeys(runner.engine.render(query) for query in queries):
        runner.record_text(text)
    note = "in the new file, which then replaces the old one; checks that need the source run in its engine"
    runner.finish_stage("audit and publish", note)
