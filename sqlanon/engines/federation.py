"""DuckDB, and beside it tables that another engine has: a statement runs where what it reads is.

Rows stay there. What is counted of them comes here: a query that reads a table that is there is put to that engine,
with the small tables of ours that it reads shipped as temporary ones; its result comes back if `egress_guard` lets it
pass, and it is small enough. Every other table that is made of such a one stays there, too. DuckDB has a *shadow* of
each of them: a view with its columns and types, so that a query can be bound, which raises an error if it is ever read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from sqlglot import exp

from sqlanon.engines.base import FEATURES, CachesRows, Feature, RemoteEngine, RunsPython, WritesFiles
from sqlanon.engines.dialects.postgres import POSTGRES
from sqlanon.engines.dialects.remote import DUCKDB, RemoteDialect, has_star, name_columns, shadow_query
from sqlanon.engines.dialects.spark import SPARK
from sqlanon.engines.duckdb import DuckDBEngine, group_by_columns
from sqlanon.engines.postgres import egress_guard as guard
from sqlanon.errors import SourceError
from sqlanon.support.expressions import (
    REPEATABLE,
    col,
    column_names,
    create_table,
    create_temporary_view,
    create_view,
    drop_view,
    full_name,
    read_parquet,
    select,
    star,
    subquery,
    table,
    union_all,
)
from sqlanon.support.workdir import private_directory


@dataclass(frozen=True)
class Recursion:
    """A query, and the part of it whose ``WITH`` has a recursion: a union of a first round and of a query that makes
    the next round of the last one."""

    query: exp.Query
    owner: exp.Select

    @property
    def plain(self) -> dict[str, exp.Query]:
        return {one.alias: one.this for one in self._parts[:-1]}

    @property
    def name(self) -> str:
        return self._parts[-1].alias

    def first(self, made: Mapping[str, exp.Table]) -> exp.Query:
        return _over(self._parts[-1].this.left, made)

    def later(self, made: Mapping[str, exp.Table]) -> exp.Query:
        """The next round: with the last one among the tables."""
        return _over(self._parts[-1].this.right, made)

    def rest(self, made: Mapping[str, exp.Table], rounds: Sequence[exp.Table]) -> exp.Query:
        whole = self.query.copy()
        found = _found(whole)
        assert found is not None
        found.set("with_", None)
        all_rounds = subquery(union_all(*(star(one) for one in rounds)))
        rest = _over(found, {**made, self.name: all_rounds})
        if found is whole:
            return rest
        found.replace(rest)
        return whole

    @property
    def _parts(self) -> list[exp.CTE]:
        parts: list[exp.CTE] = self.owner.args["with_"].expressions
        return parts


def find_recursion(query: exp.Query) -> Recursion | None:
    """A recursion in a query; None where there is none.

    >>> from sqlglot import parse_one
    >>> query = "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT SUM(n) FROM r"
    >>> found = find_recursion(parse_one(query))
    >>> found.later({"r": exp.to_table("last")}).sql()
    'SELECT n + 1 FROM last AS r WHERE n < 3'
    >>> found.rest({}, [exp.to_table("a"), exp.to_table("b")]).sql()
    'SELECT SUM(n) FROM (SELECT * FROM a UNION ALL SELECT * FROM b) AS r'
    """
    owner = _found(query)
    return None if owner is None else Recursion(query, owner)


def _found(query: exp.Query) -> exp.Select | None:
    withs = (one for one in query.find_all(exp.With) if one.args.get("recursive"))
    return next((one.parent for one in withs if isinstance(one.parent, exp.Select)), None)


def _over(query: exp.Query, made: Mapping[str, exp.Expr]) -> exp.Query:
    """A query with other relations in the place of some names."""
    whole = subquery(query.copy())
    for found in list(whole.find_all(exp.Table)):
        other = made.get(found.name)
        if other is not None and not found.db:
            new = other.copy()
            new.set("alias", exp.TableAlias(this=exp.to_identifier(found.alias or found.name)))
            found.replace(new)
    result: exp.Query = whole.this.pop()
    return result


FETCH_AT_ONCE = 10_000_000
"""So many rows that count others are fetched at once from an engine that gives no batches; more through files."""

ROWS_AT_ONCE = 1_000_000
"""Likewise of the rows of a release, which are wider."""

FLAT = 500_000
"""And where a folder is shared, so many of either: Python's memory does not grow with them."""

_COUNTED, _ANSWER = "counted", "answer"
"""What is shown as the name of what is counted there, where others are joined to it here; and of what is shipped."""

_SCRATCH = "sqlanon-fetch-"

_DIALECTS = {one.name: one for one in (DUCKDB, POSTGRES, SPARK)}


@dataclass
class RemoteTables:
    """What another engine has."""

    server: RemoteEngine
    fetch_limit: int  # results of more rows than this stay there
    scratch: Path | None = None  # a folder that it and this machine share
    most: int | None = None  # so many rows the source has: no grouped result has more
    tables: dict[str, exp.Expr] = field(default_factory=dict)  # by the text of their names here, what they are there
    kept: dict[str, str] = field(default_factory=dict)  # of those that were made: the views there that keep them
    confined: dict[str, frozenset[str]] = field(default_factory=dict)  # by the same text, columns that never leave it
    numbers: int = 0
    name: str = "Spark"  # what people call it

    @property
    def dialect(self) -> RemoteDialect:
        return _DIALECTS[self.server.dialect]

    def can(self, feature: Feature) -> bool:
        return feature in self.server.features

    def through_files(self, rows: int, at_once: int) -> bool:
        """Whether so many rows are fetched through files: not of an engine that gives them in batches."""
        if not self.can(Feature.FILES) or self.can(Feature.BATCHES):
            return False
        is_shared = self.scratch is not None or (rows > FLAT and cast("WritesFiles", self.server).is_here)
        return rows > at_once or (rows > FLAT and is_shared)

    def next_name(self) -> str:
        self.numbers += 1
        return f"sqlanon_{id(self):x}_{self.numbers}"


class FederatedEngine(DuckDBEngine):
    features = FEATURES["duckdb"] - {Feature.MACROS}
    """Macros would read rows."""

    def __init__(self, own: DuckDBEngine, there: RemoteTables) -> None:
        super().__init__(own.connection)
        self.there = there

    @property
    def place(self) -> str:
        return self.there.server.place

    def adopt(
        self, name: exp.Table, types: Mapping[str, str], relation: exp.Expr, confined: Collection[str] = ()
    ) -> None:
        """Have a relation there be known here; its confined columns never leave that engine."""
        create = create_temporary_view if name.catalog == "temp" else create_view
        super().execute(create(name.copy(), shadow_query(types)))
        self.there.tables[full_name(name)] = relation
        if confined:
            self.there.confined[full_name(name)] = frozenset(column.lower() for column in confined)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        if isinstance(statement, exp.Create) and statement.kind == "TABLE" and self._reads(statement.expression):
            self._make(statement.this, statement.expression)
        elif isinstance(statement, exp.Drop) and any(self.is_there(one) for one in statement.args["tables"]):
            for target in statement.args["tables"]:
                self._forget(target)
        else:
            super().execute(statement, parameters)

    def regrouped(self, query: exp.Select) -> Callable[[Iterable[str]], tuple[Any, ...]]:
        if not self._reads(query):
            return super().regrouped(query)
        return lambda columns: self.rows(group_by_columns(query, columns))[0]

    def rows(self, query: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        if not self._reads(query):
            return super().rows(query, parameters)
        assert isinstance(query, exp.Query)
        guard.refuse_rows(query, self.there.tables, {}, self.there.name)
        guard.refuse_confined(query, self.there.confined, self.there.name)
        query = name_columns(query)
        types = self._types(query)
        guard.refuse_rows(query, self.there.tables, types, self.there.name)
        with self.fetched(query, types) as relation:
            return super().rows(relation)

    @contextmanager
    def fetched(self, query: exp.Query, types: Mapping[str, str], at_most: int | None = None) -> Iterator[exp.Select]:
        """A query that reads a table there, run there: as a relation of ours, which can be read once.

        It fetches whatever it is asked for: rows, too; but no confined column.
        """
        guard.refuse_confined(query, self.there.confined, self.there.name)
        if at_most is None:
            at_most = 0 if guard.is_aggregated(query, self.there.tables) else self.there.most or 0
        large = self.there.through_files(at_most, ROWS_AT_ONCE)
        with self.put_there(query) as query_there, self._brought(query_there, types, large) as relation:
            yield relation

    def map_there(
        self, target: exp.Table, query: exp.Query, function: Callable[..., Any], types: Mapping[str, str]
    ) -> None:
        """Have workers there make a table of a query's rows, by Python; it stays there."""
        name, server = self.there.next_name(), self.there.server
        own = {column: self.there.dialect.type_there(type_) or "" for column, type_ in types.items()}
        with self.put_there(query) as query_there, server.translated_errors():
            cast("RunsPython", server).materialize_mapped(name, query_there, function, own)
        self._stays(target, types, name)

    @contextmanager
    def put_there(self, query: exp.Query) -> Iterator[exp.Query]:
        """A query over tables there and of ours, as it runs there, while what it reads of ours is there."""
        shipped: list[str] = []
        try:
            query = self._in_rounds(query, shipped)
            relations = dict(self.there.tables)
            query, answers = guard.extract_local_queries(
                query, self.there.tables, self.there.next_name(), self._travels
            )
            for name, own in answers.items():
                relations[name] = self._ship(own, self._types(own), shipped)
            used = frozenset[str]() if has_star(query) else column_names(query)
            for name, own_table in self._ours(query).items():
                every = self.columns(own_table)
                types = {one: type_ for one, type_ in every.items() if not used or one in used}
                types = types or dict([next(iter(every.items()))])  # its rows are counted
                relations[name] = self._ship(select([*map(col, types)], own_table.copy()), types, shipped)
            yield self.there.dialect.put_there(query, relations)
        finally:
            for view in shipped:
                with suppress(SourceError):  # the session may be gone
                    self.there.server.forget(view)

    def _in_rounds(self, query: exp.Query, shipped: list[str]) -> exp.Query:
        """A query without ``WITH RECURSIVE``, where that takes no windows: its rounds are run one by one, and kept."""
        while not self.there.can(Feature.RECURSION) and (found := find_recursion(query)) is not None:
            made = {name: self._kept(plain, shipped)[0] for name, plain in found.plain.items()}
            rounds, step = list[exp.Table](), found.first(made)
            while True:
                last, rows = self._kept(step, shipped)
                rounds.append(last)
                if not rows:
                    break
                step = found.later({**made, found.name: last})
            query = found.rest(made, rounds)
        return query

    def _kept(self, query: exp.Query, shipped: list[str]) -> tuple[exp.Table, int]:
        """A query's rows, which stay there, under a name there; and how many they are."""
        name = self.there.next_name()
        with self.put_there(query) as query_there, self.there.server.translated_errors():
            rows = self.there.server.materialize(name, query_there)
        shipped.append(name)
        return table(name), rows

    def shown(self, statement: exp.Expr) -> str:
        """A statement as it would run, where what it reads is, with the names that our tables have here.

        A table that would stay there is known from then on: the next statement may read it.
        """
        query = statement.expression if isinstance(statement, exp.Create) else statement
        if not isinstance(query, exp.Query) or not self._reads(query):
            return super().shown(statement)
        if not isinstance(statement, exp.Create):
            return self._shown_there(query)
        target = statement.this
        # Of what is only shown there are no types.
        confined = guard.confined_columns(query, self.there.confined)
        if confined or not guard.is_aggregated(query, self.there.tables):
            self.there.tables[full_name(target)] = table(target.name)
            self.there.confined |= {full_name(target): confined} if confined else {}
            return self._shown_there(query, target.name)
        counted, whole = guard.split_aggregation(query, self.there.tables)
        if counted is query:
            return self._shown_there(query, target.name)
        own = super().shown(create_table(target, whole(star(table(_COUNTED)))))
        return f"{self._shown_there(counted, _COUNTED)};\n\n{own}"

    def _shown_there(self, query: exp.Query, makes: str = "") -> str:
        """What the other engine is asked, behind what is answered here first."""
        query, answers = guard.extract_local_queries(query, self.there.tables, _ANSWER)
        own = super().shown
        here = [f"-- here, shipped to {self.there.name} as {name}\n{own(one)}" for name, one in answers.items()]
        relations = dict(self.there.tables)
        relations |= {name: table(own.name) for name, own in self._ours(query).items()}
        there = self.there.dialect.shown(query, relations)
        return ";\n\n".join([*here, f"-- in {self.there.name}{f', makes {makes}' if makes else ''}\n{there}"])

    def let_go(self) -> None:
        for view in self.there.kept.values():
            with suppress(SourceError):
                self.there.server.forget(view)
        self.there.kept.clear()
        self.there.tables.clear()
        self.there.confined.clear()

    def _reads(self, query: exp.Expr | None) -> bool:
        return query is not None and any(self.is_there(one) for one in query.find_all(exp.Table))

    def is_there(self, target: exp.Expr) -> bool:
        return isinstance(target, exp.Table) and full_name(target) in self.there.tables

    def _types(self, query: exp.Query) -> dict[str, str]:
        return self.columns(exp.Subquery(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier("q"))))

    def _travels(self, query: exp.Query) -> bool:
        """Whether the columns of a query mean the same there: sums are wider here."""
        return all(self.there.dialect.type_there(type_) and type_ != "HUGEINT" for type_ in self._types(query).values())

    def _ours(self, query: exp.Query) -> dict[str, exp.Table]:
        """The tables of ours that a query reads, by name, each once. (Those of its own WITH have no catalog.)"""
        found = {full_name(one): one for one in query.find_all(exp.Table) if one.catalog}
        return {
            name: table(one.name, one.db, one.catalog) for name, one in found.items() if name not in self.there.tables
        }

    def _ship(self, own: exp.Query, types: Mapping[str, str], shipped: list[str]) -> exp.Expr:
        name = self.there.next_name()
        with self.there.server.translated_errors(), super().stream(self.there.dialect.leaving(own, types)) as reader:
            view = self.there.server.upload(name, reader)
        shipped.append(name)
        return self.there.dialect.landed(view, types)

    def _make(self, target: exp.Table, query: exp.Query) -> None:
        """Make a table of what is there: here if it is counted, and not too large."""
        types = self._types(query)
        if not self._may_come(query, types):
            self._keep(target, types, query)
            return
        counted, whole = self._apart(query)
        columns = types if counted is query else self._types(counted)
        # Hierarchies are made here: the values of one column come home, however many they are.
        is_of_one = guard.is_of_one_column(query)
        limit = None if is_of_one else self.there.fetch_limit
        most = self.there.most
        comes_at_once = most is not None and (most <= FETCH_AT_ONCE or self.there.can(Feature.BATCHES))
        if most is not None and comes_at_once and (limit is None or most <= limit):
            with self.fetched(counted, columns, 0 if is_of_one else most) as relation:
                super().execute(create_table(target, whole(relation)))
            return
        with self._kept_meanwhile(counted) as (name, rows):
            if limit is None or rows <= limit:
                with self._brought(
                    star(table(name)), columns, self.there.through_files(rows, FETCH_AT_ONCE)
                ) as relation:
                    super().execute(create_table(target, whole(relation)))
            elif counted is query:
                self._stays(target, types, name)
            else:
                self._keep(target, types, whole(select([*map(col, columns)], table(name))))

    def _may_come(self, query: exp.Query, types: Mapping[str, str]) -> bool:
        if guard.confined_columns(query, self.there.confined):
            return False
        return guard.may_leave(query, self.there.tables, types)

    def _apart(self, query: exp.Query) -> tuple[exp.Query, Callable[[exp.Query], exp.Query]]:
        """What is counted there, and what makes the whole of that; all that may come here."""
        counted, whole = guard.split_aggregation(query, self.there.tables)
        if counted is not query and self._may_come(counted, self._types(counted)):
            return counted, whole
        return query, lambda rows: rows

    @contextmanager
    def _kept_meanwhile(self, query: exp.Query) -> Iterator[tuple[str, int]]:
        """What keeps the rows of a query there, and how many they are; unless it stays for good, as long as needed."""
        name, server = self.there.next_name(), self.there.server
        cached = query.meta.get(REPEATABLE) and self.there.can(Feature.CACHE)
        keep = cast("CachesRows", server).cache if cached else server.materialize
        with self.put_there(query) as query_there, server.translated_errors():
            rows = keep(name, query_there)
        self.there.tables[full_name(table(name))] = table(name)
        try:
            yield name, rows
        finally:
            self.there.tables.pop(full_name(table(name)), None)
            if name not in self.there.kept.values():
                server.forget(name)

    def _keep(self, target: exp.Table, types: Mapping[str, str], query: exp.Query) -> None:
        confined = guard.confined_columns(query, self.there.confined)
        with self._kept_meanwhile(query) as (name, _):
            self._stays(target, types, name)
        if confined:
            self.there.confined[full_name(target)] = confined

    @contextmanager
    def _brought(self, query_there: exp.Query, types: Mapping[str, str], large: bool) -> Iterator[exp.Select]:
        dialect, server = self.there.dialect, self.there.server
        query = dialect.leaving(query_there, types, dialect.text)
        if not large:
            with server.translated_errors(), server.stream(query) as reader, self.registered(reader) as relation:
                yield dialect.arriving(relation, types)
            return
        with self._through_files(query) as files:
            yield dialect.arriving(read_parquet(files), types)

    @contextmanager
    def _through_files(self, query: exp.Expr) -> Iterator[list[str]]:
        """The Parquet files to which the rows of a query are written there, as long as they are needed."""
        server, scratch = cast("WritesFiles", self.there.server), self.there.scratch
        if scratch is None and not server.is_here:
            # Each executor would write to a folder of its own machine, and nobody would remove that.
            raise SourceError(
                f"{server.place}: so much is fetched through files: give a folder that {self.there.name} and this "
                "machine share, as [source] scratch"
            )
        with private_directory(scratch or Path(tempfile.gettempdir()), _SCRATCH) as folder:
            with server.translated_errors():
                server.write_parquet(query, str(folder / "rows"))
            files = sorted(str(one) for one in (folder / "rows").glob("*.parquet"))
            if not files:
                raise SourceError(
                    f"{server.place}: so much is fetched through files, and what {self.there.name} wrote to {folder} "
                    "is not here: give a folder that both share as [source] scratch"
                )
            yield files

    def _stays(self, target: exp.Table, types: Mapping[str, str], name: str) -> None:
        """Know what is kept there under a name as a table of ours."""
        self.adopt(target, types, table(name))
        self.there.kept[full_name(target)] = name

    def _forget(self, target: exp.Table) -> None:
        super().execute(drop_view(target.copy()))
        del self.there.tables[full_name(target)]
        self.there.confined.pop(full_name(target), None)
        if (view := self.there.kept.pop(full_name(target), None)) is not None:
            self.there.server.forget(view)
