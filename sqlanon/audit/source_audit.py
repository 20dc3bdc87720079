"""The audit of requirements with the source.

The views that it needs are temporary, and read the same recoding as the release: with the person column beside the
released ones, and of the population.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.audit.remote_persons import RemotePersonCounts
from sqlanon.engines.base import Queries
from sqlanon.engines.travel import repeat_rows, row_count_column
from sqlanon.policy.guarantee import guaranteed_combinations
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.release.reader import CachedQueries
from sqlanon.requirements import check_requirements, list_requirements
from sqlanon.requirements.audit import AuditedRelease, PrivateRelations
from sqlanon.requirements.base import ClassCondition, SourceFacts, SubsetCondition
from sqlanon.requirements.macros import call_digest
from sqlanon.sources.source import Population
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.population_match import generalized_population
from sqlanon.strategies.recoding import ReleaseStatement
from sqlanon.support.coding import Column, Levels
from sqlanon.support.expressions import (
    Namer,
    col,
    create_table,
    create_temporary_view,
    drop_table,
    drop_view,
    named,
    select,
    table,
    union_all,
)


@dataclass(frozen=True)
class SourceAudit:
    """The audit of the requirements: the engine, the names of its tables and the database with the macros; the source,
    its recoding for the release, and that before noise (a population gets none); the population, if there is one."""

    engine: Queries
    work: Namer
    macros: str
    prepared: SearchInput
    recoding: ReleaseStatement
    plain: ReleaseStatement
    population: Population | None
    with_persons: exp.Query | None = None
    """The released rows with their persons, where they are not those of the recoding."""

    def checks(self, relation: str) -> list[Check]:
        with self._private() as (private, audited):
            found = []
            if isinstance(counts := private.person_counts, RemotePersonCounts):
                columns = self.prepared.columns
                found.append(counts.same_rows(relation, [*columns.generalized, *columns.sensitive]))
            if audited is not None:
                found.append(self._same_rows(relation, audited))
                relation = audited.sql(self.engine.dialect)
            return [*found, *check_requirements(self.prepared.policy.privacy, self._subject(relation, private))]

    def checks_of_classes(self, relation: str) -> list[Check]:
        """The checks, on some of the rows, of what each class or each group of a shield must meet by itself, where rows
        are counted."""
        policy = self.prepared.policy
        facts, parts = SourceFacts(policy.generalized_attributes), ClassCondition | SubsetCondition
        of_parts = [one for one in list_requirements(policy.privacy) if isinstance(one.bind(facts), parts)]
        with self._private() as (private, _):
            subject = self._subject(relation, private)
            return [check for one in of_parts for check in one.audit(subject)]

    def _subject(self, relation: str, private: PrivateRelations) -> AuditedRelease:
        policy = self.prepared.policy
        return AuditedRelease(
            CachedQueries(self.engine),
            relation,
            [column.name for column in self.recoding.columns if column.quasi is not None],
            policy.attributes_with_role("sensitive"),
            self.prepared.marginals.rows,
            policy.source.person_column is not None,
            self.macros,
            private,
            guaranteed_combinations(policy.redact()),
        )

    @contextmanager
    def _private(self) -> Iterator[tuple[PrivateRelations, exp.Table | None]]:
        """Create the views temporarily; the second has the released rows with their persons."""
        mark = uuid4().hex[:12]
        person, audited, counts = self.prepared.columns.person, None, None
        source = self.prepared.source
        views: list[exp.Table] = []
        theirs = None
        try:
            if person is not None and source.persons is not None:
                counts = RemotePersonCounts(self.engine, source, self.work, self.recoding, person, mark)
            elif person is not None:
                audited = table(f"sqlanon_audited_{mark}", "main", "temp")
                query = self.with_persons
                if query is None:
                    query = self.recoding.with_column(Column(person)).select(shuffled=False)
                self.engine.execute(create_temporary_view(audited, query))
                views.append(audited)
            if self.population is not None:
                target = self.work(f"population_audited_{mark}")
                query = self._generalized(self.population.source.relation)
                self.population.engine.execute(create_table(target.copy(), query))
                theirs = target
            reference = self.prepared.source.relation
            is_remote = self.prepared.source.access == "remote" and counts is None
            if is_remote and self.prepared.columns.sensitive:
                reference = self._counted(mark)
                views.append(reference)
            yield (
                PrivateRelations(
                    reference.sql(self.engine.dialect),
                    person,
                    None if theirs is None else theirs.sql(self.engine.dialect),
                    None if self.prepared.population is None else self.prepared.population.person,
                    {
                        name: tree.table.sql(self.engine.dialect)
                        for name, tree in self.prepared.sensitive_hierarchies.items()
                    },
                    counts,
                ),
                audited,
            )
        finally:
            if counts is not None:
                counts.close()
            for view in views:
                self.engine.execute(drop_view(view.copy()))
            if theirs is not None:
                self.engine.execute(drop_table(theirs.copy()))

    def _counted(self, mark: str) -> exp.Table:
        """A view that has the sensitive columns of a source whose rows are elsewhere: each combination of their values
        as often as it was counted."""
        source, names = self.prepared.source, list(dict.fromkeys(self.prepared.columns.sensitive))
        count = row_count_column(source.columns)
        counted, view = self.work(f"reference_{mark}"), table(f"sqlanon_reference_{mark}", "main", "temp")
        output: list[exp.Expr] = [*map(col, names), named(exp.Count(this=exp.Star()), count)]
        query = select(output, source.relation.copy(), [col(name) for name in names])
        self.engine.execute(create_table(counted, query))
        self.engine.execute(create_temporary_view(view, repeat_rows(counted, names, count)))
        return view

    def _generalized(self, population: exp.Table) -> exp.Query:
        """The population, generalized as the release is; a second time at the top: masked rows match all of it."""
        prepared, recoding, theirs = self.prepared, self.plain, self.prepared.population
        assert isinstance(recoding, FullDomainRecoding)  # a policy with a population needs a full-domain strategy
        assert theirs is not None
        heights = prepared.marginals.heights

        def at(levels: Levels) -> exp.Select:
            return generalized_population(
                population,
                theirs.columns,
                recoding.attributes,
                recoding.tops,
                levels,
                prepared.types,
                theirs.person,
                recoding.mask,
            )

        if not recoding.mask or recoding.levels == heights:
            return at(recoding.levels)
        return union_all(at(recoding.levels), at(heights))

    def _same_rows(self, relation: str, audited: exp.Table) -> Check:
        plain = table(f"{audited.name}_plain", "main", "temp")
        columns: list[exp.Expr] = [col(column.name) for column in self.recoding.columns]
        self.engine.execute(create_temporary_view(plain, select(columns, audited.copy())))
        try:
            names = (relation, plain.sql(self.engine.dialect))
            theirs, ours = (self.engine.rows(call_digest(name, self.macros))[0] for name in names)
        finally:
            self.engine.execute(drop_view(plain.copy()))
        message = "the rows whose persons are counted match the release"
        return Check("rows with persons", theirs == ours, message if theirs == ours else f"not true: {message}")
