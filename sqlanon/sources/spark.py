"""A source in Spark: its rows stay there, and what is counted of them comes here."""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from sqlanon.engines.base import Engine, WorkEngine
from sqlanon.engines.dialects.spark import SPARK
from sqlanon.engines.federated import FederatedEngine
from sqlanon.engines.spark import SparkEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import at_random, ident, named, row_count, select, star, subquery, table, union_all
from sqlanon.frequency.statements import SMALL
from sqlanon.policy import SourceSection, table_parts
from sqlanon.sources.bound import Place, Recodes, Source
from sqlanon.sources.plain import refuse_ambiguous

_Server = TypeVar("_Server")


@dataclass(frozen=True, kw_only=True)
class SparkSource(Source):
    """A source in Spark: its relation is known to the engine of the run, which runs there what reads it.

    Attributes
    ----------
    engine:
        Has it beside us.
    """

    engine: FederatedEngine

    access = "remote"
    where = "Spark"
    measures = False

    def server(self, kind: type[_Server], address: str | None = None) -> _Server | None:
        """The engine that has it; a release beside it goes to the same session, whatever leads there."""
        server = self.engine.there.server
        return server if isinstance(server, kind) else None

    @property
    def workers(self) -> FederatedEngine:
        """Those of Spark."""
        return self.engine

    def release_query(self, recoding: Recodes) -> exp.Select:
        """Not sorted: Spark leaves a sort out that is not the last that it does."""
        return recoding.select(shuffled=False)

    def release_note(self, to: str, note: str) -> str:
        """What a plan says of the statement that makes a release."""
        return f"in Spark, over temporary tables of what is here, in random order, to {to} ({note})"

    def shown(self, engine: Engine, query: exp.Expr) -> str:
        """The text of a statement as it runs there."""
        return self.engine.shown(query)

    @contextmanager
    def recoded(
        self, engine: WorkEngine, recoding: Recodes, types: Mapping[str, str], shuffled: bool = True
    ) -> Iterator[exp.Select]:
        """The rows of a release, made there and fetched."""
        with self.engine.fetched(self.release_query(recoding), types) as relation:
            yield relation.order_by(*at_random(), copy=False) if shuffled else relation

    @contextmanager
    def rows_there(self, engine: WorkEngine, recoding: Recodes) -> Iterator[exp.Query]:
        """The statement that makes the rows of a release there."""
        with self.engine.put_there(self.release_query(recoding)) as query:
            yield query

    def keeps(self, made: exp.Expr) -> bool:
        """Whether a table that was made of it stayed there."""
        return self.engine.is_there(made)

    def sampled(self, engine: Engine) -> None:
        """None: no hash of a row leaves Spark."""

    def drop(self) -> None:
        """Drop what was made there."""
        self.engine.let_go()


def bind_spark(
    engine: FederatedEngine, server: SparkEngine, section: SourceSection, place: Place, wanted: Collection[str]
) -> SparkSource:
    """Bind a source in Spark."""
    found = _found(section)
    if section.query is not None:
        _refuse_functions(section.query, server.functions_replaced)
    with server.told():
        own = server.columns(found)
    columns = _columns(own, wanted)
    plain: list[exp.Expr] = [
        named(SPARK.plain_there(name, kind), name) for name, kind in own.items() if name.lower() in wanted
    ]
    if not plain:
        raise SourceError("source: it has none of the policy's columns")
    relation = subquery(select(plain, found), "source")
    view = place.view("source")
    engine.adopt(view, {name: type_ for name, type_ in columns.items() if name.lower() in wanted}, relation)
    if place.copy is not None:
        with server.told():
            engine.there.most = int(server.rows(row_count(rows=relation))[0][0])
    # A small one is scanned once: then all else is here.
    in_place = (engine.there.most or 0) > SMALL
    return SparkSource(view, columns, _local_files(section.files), in_place, engine=engine)


def _refuse_functions(query: str, replaced: Collection[str]) -> None:
    """Refuse functions of the user's that have the names of Spark's, whose place they would not take here."""
    called = {name.lower() for name in re.findall(r"(\w+)`?\s*\(", query)}
    if found := sorted(called & set(replaced)):
        raise SourceError(
            f"source.query: {', '.join(found)}: the session has a function of that name, and Spark too; "
            "make a temporary view of the query, or give the function another name"
        )


def _found(section: SourceSection) -> exp.Expr:
    """The table, query or files there."""
    if section.files:
        each = [star(table(pattern, "parquet")) for pattern in section.files]
        return subquery(union_all(*each), "files") if len(each) > 1 else table(section.files[0], "parquet")
    if section.query is not None:
        return _of_query(section.query)
    parts = table_parts(section.table or "")
    if not parts:
        raise SourceError(f"source.table: {section.table!r} names no table: write it as schema.name")
    if any(part.startswith("`") and part.endswith("`") for part in parts):
        raise SourceError("source.table: write schema.name without backticks, or in double quotes")
    return table(*reversed(parts))


def _of_query(query: str) -> exp.Expr:
    """The holder's own SQL: reading and writing it again could change what it says. A comment may end it."""
    try:
        is_one = isinstance(parse_one(query, dialect="spark"), exp.Query)
    except SqlglotError:
        raise SourceError("source.query: cannot be read as one SELECT: make a view of it in Spark") from None
    if not is_one:
        raise SourceError("source.query: must be one SELECT statement")
    statement = exp.Var(this=f"{query.strip().rstrip(';')}\n")
    return exp.Subquery(this=statement, alias=exp.TableAlias(this=ident("query")))


def _columns(own: dict[str, str], wanted: Collection[str]) -> dict[str, str]:
    """DuckDB's types by name; of columns that are not wanted Spark's."""
    refuse_ambiguous(list(own), "the source")
    types = {name: SPARK.type_here(kind) for name, kind in own.items()}
    if strange := [f"{name!r} ({own[name]})" for name, it in types.items() if it is None and name.lower() in wanted]:
        raise SourceError(
            f"columns of types that have no equal here: {', '.join(strange)}; cast them with query = ... under [source]"
        )
    return {name: type_ or own[name] for name, type_ in types.items()}


def _local_files(patterns: tuple[str, ...]) -> tuple[Path, ...]:
    """Those files that are on this machine."""
    return tuple(Path(one) for pattern in patterns if "://" not in pattern for one in glob.glob(pattern))  # noqa: PTH207  (it is a whole path, and may be a pattern in any part)
