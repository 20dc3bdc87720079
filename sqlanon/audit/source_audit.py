"""The audit of requirements with the source.

It reads temporary views over the same recoding as the release: one with the person column added to the released
columns, and one of the population.

Where the rows of persons are remote, the server creates the release once more with the person of each row, and counts
the persons of each class, and of each sensitive value in it. Only the counts are transferred. Locally they become
relations in which the persons of each class are numbered from 0, for the macros that check requirements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from uuid import uuid4

from sqlglot import exp

from sqlanon.engines.base import Queryable
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.engines.travel import repeat_rows, row_count_column
from sqlanon.frequency.statements import count_persons
from sqlanon.policy.guarantee import guaranteed_combinations
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.release.reader import CachedQueries
from sqlanon.requirements import check_requirements, list_requirements
from sqlanon.requirements.audit import AuditedRelease, PrivateRelations
from sqlanon.requirements.base import ClassCondition, SourceDomains, SubsetCondition
from sqlanon.requirements.macros import call_digest
from sqlanon.sources.source import Population, Source
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.strategies.lattice.population_match import generalized_population
from sqlanon.strategies.recoding import ClassRecoding
from sqlanon.support.checks import Check
from sqlanon.support.coding import Column, Levels
from sqlanon.support.expressions import (
    Namer,
    col,
    create_table,
    create_temporary_view,
    drop_table,
    drop_view,
    ident,
    select,
    table,
    template,
    union_all,
)


@dataclass(frozen=True)
class SourceAudit:
    """The audit of the requirements of a policy on released rows.

    Attributes
    ----------
    macros:
        The database with the macro library.
    recoding:
        The recoding of the source for the release.
    with_persons:
        The released rows with their persons, if they are not those of the recoding.
    """

    engine: Queryable
    work: Namer
    macros: str
    search_input: SearchInput
    recoding: ClassRecoding
    population: Population | None
    with_persons: exp.Query | None = None

    def checks(self, relation: str) -> list[Check]:
        with self._private_relations() as (private, audited):
            checks = []
            if isinstance(counts := private.person_counts, RemotePersonCounts):
                columns = self.search_input.columns
                checks.append(counts.check_rows(relation, [*columns.generalized, *columns.sensitive]))
            if audited is not None:
                checks.append(self._check_rows(relation, audited))
                relation = audited.sql(self.engine.dialect)
            release = self._audited_release(relation, private)
            return [*checks, *check_requirements(self.search_input.policy.privacy, release)]

    def checks_of_classes(self, relation: str) -> list[Check]:
        """The checks, on some of the rows, of requirements that each class or each group of a shield must meet by
        itself, where rows are counted."""
        policy = self.search_input.policy
        facts = SourceDomains(policy.generalized_attributes)
        requirements = [
            requirement
            for requirement in list_requirements(policy.privacy)
            if isinstance(requirement.bind(facts), ClassCondition | SubsetCondition)
        ]
        with self._private_relations() as (private, _):
            release = self._audited_release(relation, private)
            return [check for requirement in requirements for check in requirement.checks(release)]

    def _audited_release(self, relation: str, private: PrivateRelations) -> AuditedRelease:
        policy = self.search_input.policy
        return AuditedRelease(
            CachedQueries(self.engine),
            relation,
            [column.name for column in self.recoding.columns if column.quasi is not None],
            policy.attributes_with_role("sensitive"),
            self.search_input.marginals.rows,
            policy.source.person_column is not None,
            self.macros,
            private,
            guaranteed_combinations(policy.redact()),
        )

    @contextmanager
    def _private_relations(self) -> Iterator[tuple[PrivateRelations, exp.Table | None]]:
        """Create the private relations temporarily, and a view of the released rows with their persons if needed."""
        mark = uuid4().hex[:12]
        search_input, dialect = self.search_input, self.engine.dialect
        source, person = search_input.source, search_input.columns.person
        audited = counts = population = None
        views: list[exp.Table] = []
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
                query = self._generalize_population(self.population.source.relation)
                self.population.engine.execute(create_table(target.copy(), query))
                population = target
            reference = source.relation
            if source.access == "remote" and counts is None and search_input.columns.sensitive:
                reference = self._create_reference(mark)
                views.append(reference)
            private = PrivateRelations(
                reference.sql(dialect),
                person,
                None if population is None else population.sql(dialect),
                None if search_input.population is None else search_input.population.person,
                {name: tree.table.sql(dialect) for name, tree in search_input.sensitive_hierarchies.items()},
                counts,
            )
            yield private, audited
        finally:
            if counts is not None:
                counts.close()
            for view in views:
                self.engine.execute(drop_view(view.copy()))
            if population is not None:
                self.engine.execute(drop_table(population.copy()))

    def _create_reference(self, mark: str) -> exp.Table:
        """Create a view with the sensitive columns of a remote source, from the counts of their combinations."""
        source, names = self.search_input.source, list(dict.fromkeys(self.search_input.columns.sensitive))
        count = row_count_column(source.columns)
        counts, view = self.work(f"reference_{mark}"), table(f"sqlanon_reference_{mark}", "main", "temp")
        query = template("SELECT :columns, count(*) AS :row_count FROM :source GROUP BY :columns")
        combinations = query(columns=[col(name) for name in names], row_count=ident(count), source=source.relation)
        self.engine.execute(create_table(counts, combinations))
        self.engine.execute(create_temporary_view(view, repeat_rows(counts, names, count)))
        return view

    def _generalize_population(self, rows: exp.Table) -> exp.Query:
        """Generalize the population as the release; masked rows match all of it, so it is added at the top levels."""
        search_input, recoding, population = self.search_input, self.recoding, self.search_input.population
        assert isinstance(recoding, FullDomainRecoding)  # a policy with a population needs a full-domain strategy
        assert population is not None
        heights = search_input.marginals.heights

        def at(levels: Levels) -> exp.Select:
            return generalized_population(
                rows,
                population.columns,
                recoding.attributes,
                recoding.tops,
                levels,
                search_input.types,
                population.person,
                recoding.mask,
            )

        if not recoding.mask or recoding.levels == heights:
            return at(recoding.levels)
        return union_all(at(recoding.levels), at(heights))

    def _check_rows(self, relation: str, audited: exp.Table) -> Check:
        """Check that the rows with persons are those of the release."""
        plain = table(f"{audited.name}_plain", "main", "temp")
        columns: list[exp.Expr] = [col(column.name) for column in self.recoding.columns]
        self.engine.execute(create_temporary_view(plain, select(columns, audited.copy())))
        try:
            names = (relation, plain.sql(self.engine.dialect))
            released, with_persons = (self.engine.rows(call_digest(name, self.macros))[0] for name in names)
        finally:
            self.engine.execute(drop_view(plain.copy()))
        claim, passed = "the rows whose persons are counted match the release", released == with_persons
        return Check("rows with persons", passed, claim if passed else f"not true: {claim}")


_ROW_COUNTS = template("SELECT :keys, count(*) AS row_count FROM :rows GROUP BY :keys")


class RemotePersonCounts:
    """Implements `requirements.audit.PersonCounts` on a server; `close` drops the relations that it creates."""

    def __init__(
        self, engine: Queryable, source: Source, work: Namer, recoding: ClassRecoding, person: str, mark: str
    ) -> None:
        assert source.persons is not None
        persons = source.persons
        self._engine, self._persons, self._work = engine, persons, work
        self._person, self._mark, self._numbers = person, mark, count()
        self._views: dict[tuple[str, ...], exp.Table] = {}
        self._spellings = {column.name.lower(): column.name for column in recoding.columns}
        persons.open()
        self._remote = StatementRunner(persons.engine)
        if source.relation != persons.relation:  # a source in PostgreSQL, which has only full-domain recodings
            assert isinstance(recoding, FullDomainRecoding)
            recoding = recoding.with_source(persons.relation)
        with_persons = recoding.with_column(Column(person)).select(shuffled=False)
        self._audited = self._remote.create_table(work(f"audited_{mark}"), with_persons)

    def release_relation(self, keys: Sequence[str], attribute: str | None = None) -> str:
        """A relation with the persons of each class, or of each value of a sensitive attribute in it."""
        return self._number_persons(self._audited, [*keys, *([attribute] if attribute is not None else [])], "released")

    def source_relation(self, attribute: str) -> str:
        """A relation with the persons of each value of a sensitive attribute in the source."""
        return self._number_persons(self._persons.relation, [attribute], "source")

    def count_source_persons(self) -> int:
        query = count_persons(self._persons.relation, self._person)
        return int(self._persons.engine.rows(query)[0][0])

    def check_rows(self, relation: str, columns: Sequence[str]) -> Check:
        """Check that the rows whose persons are counted are those of the release, in the columns of requirements."""
        keys = [col(self._spellings[name.lower()]) for name in columns]
        audited = self._remote.create_table(
            self._work(f"audited_rows_{self._mark}"), _ROW_COUNTS(keys=keys, rows=self._audited)
        )
        released = _ROW_COUNTS(keys=keys, rows=exp.to_table(relation, dialect="duckdb"))
        query = template("""
            SELECT count(*)
            FROM (
                (SELECT * FROM :released AS t EXCEPT ALL SELECT * FROM :audited AS o)
                UNION ALL
                (SELECT * FROM :audited AS o EXCEPT ALL SELECT * FROM :released AS t)
            ) AS d
        """)(released=exp.Subquery(this=released), audited=audited)
        passed = self._engine.rows(query)[0][0] == 0
        claim = "the rows whose persons are counted match the release"
        return Check("rows with persons", passed, claim if passed else f"not true: {claim}")

    def close(self) -> None:
        for view in self._views.values():
            self._engine.execute(drop_view(view.copy()))
        self._remote.drop_all_except([])
        self._persons.close()

    def _number_persons(self, rows: exp.Table, names: Sequence[str], kind: str) -> str:
        columns = [self._spellings[name.lower()] for name in names]
        view_key = (kind, *columns)
        if view_key not in self._views:
            number, keys = next(self._numbers), [col(name) for name in columns]
            query = template("""
                SELECT :keys, count(*) AS persons
                FROM (SELECT DISTINCT :keys, :person FROM :rows) AS p
                GROUP BY :keys
            """)(keys=keys, person=col(self._person), rows=rows)
            counts = self._remote.create_table(self._work(f"persons_{self._mark}_{number}"), query)
            view = table(f"sqlanon_persons_{self._mark}_{number}", "main", "temp")
            query = template("SELECT :keys, unnest(range(persons)) AS :person FROM :counts")(
                keys=keys, person=ident(self._person), counts=counts
            )
            self._engine.execute(create_temporary_view(view, query))
            self._views[view_key] = view
        return self._views[view_key].sql(self._engine.dialect)
