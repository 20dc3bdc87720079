"""A source that is bound: one relation that queries can name, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.federated import FederatedEngine
from sqlanon.engines.postgres import PostgresEngine
from sqlanon.errors import SourceError
from sqlanon.expressions import table

SMALL = 500_000
"""A table of so many rows has one frequency set, at the lowest levels."""


@dataclass(frozen=True)
class Place:
    """Where a source's relations are made.

    Attributes
    ----------
    name:
        The names of views begin with it.
    table:
        The table that is made of rows that are copied.
    reads:
        Whether rows may be read.
    views:
        The schema of views, and its database. It has little else: a view looks names up in its own schema first.
    """

    name: str
    table: exp.Table
    reads: bool = True
    views: tuple[str, str] = ("main", "temp")

    @property
    def copy(self) -> exp.Table | None:
        """The table that CSV files are copied to; None where no row may be read."""
        return self.table if self.reads else None

    def view(self, suffix: str) -> exp.Table:
        """The name of a view."""
        return table(f"{self.name}_{suffix}", *self.views)


@dataclass(frozen=True)
class InPostgres:
    """A source in PostgreSQL.

    Attributes
    ----------
    engine:
        A connection to it.
    address:
        Where it is; it may hold a password.
    relation:
        The source there: its columns that are looked at or released, each plain.
    statement:
        What was asked of it.
    schema:
        Of the table there; None of a query, which may read many.
    name, query:
        The table with its schema, or the query with the schemas of its tables, as the user's own path found them.
    """

    engine: PostgresEngine
    address: str = field(repr=False)
    relation: exp.Subquery
    statement: exp.Select
    schema: str | None = None
    name: str | None = None
    query: str | None = None


@dataclass(frozen=True)
class InSpark:
    """A source in Spark.

    Attributes
    ----------
    address:
        Where that is; it may hold a token. None: the user's own session.
    engine:
        Has it beside us, and puts to Spark what reads the source.
    relation:
        The source there: its columns that are looked at or released, each plain.
    """

    address: str | None = field(repr=False)
    engine: FederatedEngine
    relation: exp.Subquery


@dataclass(frozen=True)
class Counted:
    """What was counted of a source: the distinct combinations of its columns, and the column of their counts."""

    table: exp.Table
    count: str


@dataclass(frozen=True)
class Source:
    """The private table, bound.

    Attributes
    ----------
    relation:
        What queries select from.
    columns:
        Name and type text of each column, in order; of a CSV file, those that were not wanted, too.
    files:
        The data files that it is read from.
    in_place:
        Whether it is a table, or files: some of its columns can be read at little cost. A query or a view cannot.
    counted:
        Of a source whose rows are not at hand: the combinations that were counted. Then the relation has nothing but
        their columns.
    postgres:
        Where PostgreSQL has its rows. Counted and without it: in a warehouse, out of reach.
    spark:
        Where Spark has its rows. Then the relation is known to its engine, which runs there what reads it.
    """

    relation: exp.Table
    columns: Mapping[str, str]
    files: tuple[Path, ...] = ()
    in_place: bool = True
    counted: Counted | None = None
    postgres: InPostgres | None = None
    spark: InSpark | None = None

    @property
    def rows_at_hand(self) -> bool:
        """Whether the rows themselves, with all columns, are here: not only what was counted of them."""
        return self.counted is None and self.spark is None

    @property
    def out_of_reach(self) -> bool:
        """Whether its rows are where no engine of ours is: a frequency set is all there is of it."""
        return self.counted is not None and self.postgres is None and self.spark is None

    @property
    def in_postgres(self) -> InPostgres:
        """Where its rows are, if they are not at hand."""
        if self.postgres is None:
            raise SourceError(
                "the source is a frequency set, and this needs rows: they are in the warehouse; export what makes the "
                "release there: sqlanon anonymize POLICY.toml --export FOLDER --dialect ..., or Result.export()"
            )
        return self.postgres
