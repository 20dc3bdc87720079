"""The audit of persons of a source whose rows stay elsewhere.

The release is made once more there, with the person of each row; the persons of each class, and of each sensitive value
in it, are counted there by their ids. What comes here are counts: of them relations are made in which the persons of
each class are numbered from 0, for the macros that check requirements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from sqlglot import exp

from sqlanon.audit.check import Check
from sqlanon.engines.base import Queries
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.frequency.statements import count_persons
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.sources.source import Source
from sqlanon.strategies.recoding import ReleaseStatement
from sqlanon.support.coding import Column
from sqlanon.support.expressions import Namer, col, create_temporary_view, drop_view, table, template

_PERSONS_OF = template("SELECT :keys, count(*) AS persons FROM (SELECT DISTINCT :keys, :person FROM :rows) AS p")
_NUMBERED = template("SELECT :keys, unnest(range(persons)) AS :person FROM :counts")
_ROWS_OF = template("SELECT :keys, count(*) AS n FROM :rows GROUP BY :keys")
_DIFFERENCES = template("""
    SELECT count(*)
    FROM (
        (SELECT * FROM :theirs AS t EXCEPT ALL SELECT * FROM :ours AS o)
        UNION ALL
        (SELECT * FROM :ours AS o EXCEPT ALL SELECT * FROM :theirs AS t)
    ) AS d
""")


class RemotePersonCounts:
    """Counts of a release's persons, as `requirements.audit.PersonCounts`; `close` drops what it makes."""

    def __init__(
        self, engine: Queries, source: Source, work: Namer, recoding: ReleaseStatement, person: str, mark: str
    ) -> None:
        assert source.persons is not None
        persons = source.persons
        self._engine, self._persons, self._work = engine, persons, work
        self._person, self._mark, self._numbers = person, mark, count()
        self._views: dict[tuple[str, ...], exp.Table] = {}
        self._by_lower = {column.name.lower(): column.name for column in recoding.columns}
        persons.open()
        self._there = StatementRunner(persons.engine)
        if source.relation != persons.relation:  # of a source in PostgreSQL, which has no other recodings
            assert isinstance(recoding, FullDomainRecoding)
            recoding = recoding.with_source(persons.relation)
        with_persons = recoding.with_column(Column(person)).select(shuffled=False)
        self._audited = self._there.make(work(f"audited_{mark}"), with_persons)

    def release_relation(self, keys: Sequence[str], attribute: str | None = None) -> str:
        """A relation with the persons of each class, or of each value of a sensitive attribute in it."""
        return self._numbered(self._audited, [*keys, *([attribute] if attribute is not None else [])], "released")

    def source_relation(self, attribute: str) -> str:
        """A relation with the persons of each value of a sensitive attribute in the source."""
        return self._numbered(self._persons.relation, [attribute], "source")

    def count_source_persons(self) -> int:
        """The persons of the source."""
        query = count_persons(self._persons.relation, self._person)
        return int(self._persons.engine.rows(query)[0][0])

    def same_rows(self, relation: str, columns: Sequence[str]) -> Check:
        """Whether the rows whose persons are counted are those of the release, as far as requirements look at them."""
        keys = [col(self._by_lower[name.lower()]) for name in columns]
        ours = self._there.make(self._work(f"audited_rows_{self._mark}"), _ROWS_OF(keys=keys, rows=self._audited))
        theirs = _ROWS_OF(keys=keys, rows=exp.to_table(relation, dialect="duckdb"))
        query = _DIFFERENCES(theirs=exp.Subquery(this=theirs), ours=ours)
        same = self._engine.rows(query)[0][0] == 0
        message = "the rows whose persons are counted match the release"
        return Check("rows with persons", same, message if same else f"not true: {message}")

    def close(self) -> None:
        for view in self._views.values():
            self._engine.execute(drop_view(view.copy()))
        self._there.drop_all_but([])
        self._persons.close()

    def _numbered(self, rows: exp.Table, names: Sequence[str], which: str) -> str:
        own = [self._by_lower[name.lower()] for name in names]
        name = (which, *own)
        if name not in self._views:
            number, keys = next(self._numbers), [col(name) for name in own]
            query = _PERSONS_OF(keys=keys, person=col(self._person), rows=rows)
            query = query.group_by(*(key.copy() for key in keys), copy=False)
            counts = self._there.make(self._work(f"persons_{self._mark}_{number}"), query)
            view = table(f"sqlanon_persons_{self._mark}_{number}", "main", "temp")
            person = exp.to_identifier(self._person, quoted=True)
            self._engine.execute(create_temporary_view(view, _NUMBERED(keys=keys, person=person, counts=counts)))
            self._views[name] = view
        return self._views[name].sql(self._engine.dialect)
