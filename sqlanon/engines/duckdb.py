"""DuckDB: it executes sqlglot expressions on one connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import WeakSet

import duckdb
from duckdb.sqltypes import DuckDBPyType
from sqlglot import Dialect, exp

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.queries.names import create_table, ident, star, table, text, values_query

_LIVE: WeakSet[DuckDBEngine] = WeakSet()


def interrupt_all() -> None:
    """End what all engines are about, from another thread: they raise an error."""
    for engine in list(_LIVE):
        with suppress(duckdb.Error):  # it may be closed
            engine.connection.interrupt()


class DuckDBEngine:
    """Runs sqlglot expressions on a DuckDB connection.

    Parameters
    ----------
    connection:
        The connection. A user's own one is used as it is: its temporary tables are visible, its settings stay.
    """

    dialect = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self._generator = Dialect.get_or_raise(self.dialect).generator()
        _LIVE.add(self)

    @classmethod
    def private(cls, spill: Path, limits: Limits = NO_LIMITS) -> DuckDBEngine:
        """An engine with a fresh in-memory database of its own, which spills to a directory and nowhere else.

        Parameters
        ----------
        spill:
            A private directory of the run.
        limits:
            What it may take.
        """
        config: dict[str, str | bool | int | float | list[str]] = {
            "temp_directory": str(spill),
            "python_enable_replacements": False,
        }
        config |= {name: value for name, value in asdict(limits).items() if value is not None}
        return cls(duckdb.connect(":memory:", config=config)).in_utc()

    def in_utc(self) -> DuckDBEngine:
        """The same engine, with texts of times that are the same everywhere."""
        with suppress(duckdb.Error):  # time zones are an extension, which every usual build has
            self._set("TimeZone", "UTC")
        return self

    @property
    def limits(self) -> Limits:
        """What it may take, for engines that work for it beside it. DuckDB shows sizes with one digit, rounded down."""
        names = [exp.func("current_setting", text(name)) for name in ("memory_limit", "threads")]
        memory, threads = self.rows(exp.select(*names))[0]
        return Limits(None if memory.endswith("PiB") else memory, threads)  # a limit of petabytes is none

    @property
    def version(self) -> str:
        """Name and version of the engine."""
        return f"duckdb {duckdb.__version__}"

    def files(self) -> list[Path]:
        """The database files that are attached."""
        paths = self.rows(exp.select("path").from_("duckdb_databases()").where("path IS NOT NULL"))
        return [Path(path) for (path,) in paths]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def in_transaction(self) -> bool:
        """Whether a transaction is open: outside of one, each statement has one of its own."""
        transaction = exp.select(exp.func("txid_current"))
        return self.rows(transaction) == self.rows(transaction)

    def sql(self, expression: exp.Expr) -> str:
        """The text of an expression. It is made without a copy: the expression may be used up."""
        return self._generator.generate(expression, copy=False)

    def shown(self, statement: exp.Expr) -> str:
        """The text of a statement, for people."""
        return statement.sql(self.dialect, pretty=True)

    def execute(self, statement: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> None:
        """Run a statement."""
        self.connection.execute(self.sql(statement), parameters or None)

    def rows(self, query: exp.Expr, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """Run a query and bring its rows to Python."""
        return self.connection.execute(self.sql(query), parameters or None).fetchall()

    def columns(self, relation: exp.Expr) -> dict[str, str]:
        """Name and type text of a relation's columns; reads no rows."""
        return {name: str(type_) for name, type_ in self.types(relation).items()}

    def types(self, relation: exp.Expr) -> dict[str, DuckDBPyType]:
        """Name and type object of a relation's columns; reads no rows."""
        query = exp.select("*").from_(relation.copy()).limit(0)
        description = self.connection.execute(self.sql(query)).description or []
        return {column[0]: column[1] for column in description}

    def relation(self, query: exp.Query) -> duckdb.DuckDBPyRelation:
        """A lazy relation over a query."""
        return self.connection.sql(self.sql(query))

    def table_of(self, table: tuple[Mapping[str, str], Sequence[Sequence[Any]]]) -> duckdb.DuckDBPyRelation:
        """A relation of columns, by name with their types, and rows of plain values."""
        return self.relation(values_query(*table))

    def copy_arrow(self, target: exp.Table, arrow: Any, query: Callable[[exp.Table], exp.Query] = star) -> None:
        """Make a table of an Arrow table or stream; of a stream, as it comes. By default of all of it as it is."""
        with self.registered(arrow) as relation:
            self.execute(create_table(target, query(relation)))

    @contextmanager
    def registered(self, arrow: Any) -> Iterator[exp.Table]:
        """An Arrow table or stream as a relation, for a while; a stream can be read once."""
        name = f"sqlanon_arrow_{id(arrow)}"
        self.connection.register(name, arrow)
        try:
            yield table(name)
        finally:
            self.connection.unregister(name)

    @contextmanager
    def stream(self, query: exp.Query) -> Iterator[Any]:
        """The rows of a query as an Arrow stream; as long as it is open, the engine does nothing else."""
        yield self.relation(query).to_arrow_reader()

    def script(self, statements: str) -> None:
        """Run a file of our own SQL."""
        self.connection.execute(statements)

    def attach(self, path: Path | str, alias: str, **options: str | bool) -> None:
        """Attach a database file under an alias; options as ``read_only=True``, ``storage_version="v1.0.0"``."""
        self.execute(
            exp.Attach(
                this=exp.Alias(this=text(str(path)), alias=ident(alias)),
                expressions=[
                    exp.AttachOption(
                        this=exp.Var(this=name.upper()),
                        expression=None if value is True else text(str(value)),
                    )
                    for name, value in options.items()
                ],
            )
        )

    def detach(self, alias: str) -> None:
        """Detach a database file."""
        self.execute(exp.Detach(this=ident(alias), exists=True))

    def use(self, alias: str) -> None:
        """Make an attached database the one where unqualified names are looked up."""
        self.execute(exp.Use(this=exp.Table(this=ident(alias))))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: what is done meanwhile is done as a whole, or not at all."""
        self.connection.begin()
        try:
            yield
        except BaseException:
            with suppress(duckdb.Error):  # an error may have ended it
                self.connection.rollback()
            raise
        self.connection.commit()

    @contextmanager
    def using(self, alias: str) -> Iterator[None]:
        """`use` for a while."""
        with self.setting("search_path", self.sql(ident(alias))):
            yield

    @contextmanager
    def setting(self, name: str, value: str | bool) -> Iterator[None]:
        """A setting of the connection, put back afterwards."""
        before = self.rows(exp.select(exp.func("current_setting", text(name))))[0][0]
        self._set(name, value)
        try:
            yield
        finally:
            self._set(name, before)

    def _set(self, name: str, value: str | bool) -> None:
        assignment = exp.EQ(this=exp.Var(this=name), expression=exp.convert(value))
        self.execute(exp.Set(expressions=[exp.SetItem(this=assignment)]))
