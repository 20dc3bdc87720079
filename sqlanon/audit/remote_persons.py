"""The audit of persons whose rows are remote.

The server creates the release once more with the person of each row, and counts the persons of each class, and of each
sensitive value in it. Only the counts are transferred. Locally they become relations in which the persons of each class
are numbered from 0, for the macros that check requirements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.engines.base import Queryable
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.statements import count_persons
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.sources.source import Source
from sqlanon.strategies.recoding import ReleaseStatement
from sqlanon.support.coding import Column
from sqlanon.support.expressions import Namer, col, create_temporary_view, drop_view, ident, table, template

_PERSON_COUNTS = template("""
    SELECT :keys, count(*) AS persons
    FROM (SELECT DISTINCT :keys, :person FROM :rows) AS p
    GROUP BY :keys
""")
_ROW_COUNTS = template("SELECT :keys, count(*) AS n FROM :rows GROUP BY :keys")
_DIFFERENCES = template("""
    SELECT count(*)
    FROM (
        (SELECT * FROM :released AS t EXCEPT ALL SELECT * FROM :audited AS o)
        UNION ALL
        (SELECT * FROM :audited AS o EXCEPT ALL SELECT * FROM :released AS t)
    ) AS d
""")


class RemotePersonCounts:
    """Implements `requirements.audit.PersonCounts` on a server; `close` drops the relations that it creates."""

    def __init__(
        self, engine: Queryable, source: Source, work: Namer, recoding: ReleaseStatement, person: str, mark: str
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
        query = _DIFFERENCES(released=exp.Subquery(this=released), audited=audited)
        passed = self._engine.rows(query)[0][0] == 0
        claim = "the rows whose persons are counted match the release"
        return Check("rows with persons", passed, claim if passed else f"not true: {claim}")

    def close(self) -> None:
        for view in self._views.values():
            self._engine.execute(drop_view(view.copy()))
        self._remote.drop_all_except([])
        self._persons.close()

    def _number_persons(self, rows: exp.Table, names: Sequence[str], kind: str) -> str:
        spelled = [self._spellings[name.lower()] for name in names]
        view_key = (kind, *spelled)
        if view_key not in self._views:
            number, keys = next(self._numbers), [col(name) for name in spelled]
            query = _PERSON_COUNTS(keys=keys, person=col(self._person), rows=rows)
            counts = self._remote.create_table(self._work(f"persons_{self._mark}_{number}"), query)
            view = table(f"sqlanon_persons_{self._mark}_{number}", "main", "temp")
            query = template("SELECT :keys, unnest(range(persons)) AS :person FROM :counts")(
                keys=keys, person=ident(self._person), counts=counts
            )
            self._engine.execute(create_temporary_view(view, query))
            self._views[view_key] = view
        return self._views[view_key].sql(self._engine.dialect)
