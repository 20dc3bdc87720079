"""Random linked databases in the schema ``clinic`` of a server."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import pyarrow as pa

import sqlanon
from properties.linked_cases import LinkedCase
from support.postgres_cases import HERE
from support.servers.postgres import Server


@dataclass(frozen=True)
class LinkedServer(ABC):
    """A server with the schema ``clinic``, and the size of the cases that it runs in short time."""

    handle: Any
    source: ClassVar[Mapping[str, str]]
    """The section of the policies; empty if `sqlanon.connect` is given the server."""
    most_generalizations: ClassVar[int]
    cases_of_optimum: ClassVar[tuple[int, int]]
    """The most generalizations of a case, and the number of cases."""
    cases_of_feature: ClassVar[int]

    @abstractmethod
    def connect(self) -> sqlanon.Database: ...
    @abstractmethod
    def load_table(self, name: str, rows: pa.Table) -> None:
        """Create a table of the schema, in place of an earlier one."""


class InPostgres(LinkedServer):
    source: ClassVar[Mapping[str, str]] = {"postgres": HERE}
    most_generalizations, cases_of_optimum, cases_of_feature = 6, (12, 40), 10
    handle: Server

    def connect(self) -> sqlanon.Database:
        return sqlanon.connect()

    def load_table(self, name: str, rows: pa.Table) -> None:
        types = {"int32": "integer", "string": "text"}
        columns = {column.name: types[str(column.type)] for column in rows.schema}
        self.handle.run(f"DROP TABLE IF EXISTS {name}")
        self.handle.load(name, columns, [tuple(row.values()) for row in rows.to_pylist()])


class InSpark(LinkedServer):
    source: ClassVar[Mapping[str, str]] = {}
    most_generalizations, cases_of_optimum, cases_of_feature = 4, (6, 10), 4

    def connect(self) -> sqlanon.Database:
        return sqlanon.connect(self.handle)

    def load_table(self, name: str, rows: pa.Table) -> None:
        load_spark_table(self.handle, name, rows)


def load_spark_table(spark: Any, name: str, rows: pa.Table) -> None:
    """Create a table of a schema in Spark, in place of an earlier one."""
    spark.createDataFrame(rows).createOrReplaceTempView("drawn")
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} USING PARQUET AS SELECT * FROM drawn")
    spark.catalog.dropTempView("drawn")


def load_case(server: LinkedServer, case: LinkedCase, folder: Path) -> tuple[duckdb.DuckDBPyConnection, dict[str, Any]]:
    """Create the tables of a case on a server and in DuckDB, and write its hierarchies to files; the sections of the
    policy, without the source.

    The first two tables have a sensitive attribute, ``s``.
    """
    tree, draw, connection = case.policy(), random.Random(1), duckdb.connect()
    connection.execute("CREATE SCHEMA clinic")
    for t, (table, section) in enumerate(zip(case.database.tables, tree["table"], strict=True)):
        section["table"] = f"clinic.{table.name}"
        columns = {f"id_{t}": pa.int32(), **({f"parent_{t}": pa.int32()} if table.parent is not None else {})}
        columns |= dict.fromkeys([*table.names, *(["s"] if t < 2 else [])], pa.string())
        rows = []
        for row in table.rows:
            keys = [row.number + 100, *([] if row.parent is None else [row.parent + 100])]
            rows.append([*keys, *row.values, *([draw.choice(["a", "a", "b", "c", None])] if t < 2 else [])])
        arrow = pa.table(
            {name: pa.array([row[i] for row in rows], type_) for i, (name, type_) in enumerate(columns.items())}
        )
        server.load_table(section["table"], arrow)
        connection.from_arrow(arrow).create(section["table"])
        section["attributes"] |= {"s": {"role": "sensitive"}} if t < 2 else {}
        for name, hierarchy in zip(table.names, table.hierarchies, strict=True):
            file = folder / f"{name}.csv"
            file.write_text("".join(f"{';'.join(map(str, path))}\n" for path in hierarchy.paths.values()))
            section["attributes"][name]["hierarchy"] = {"file": str(file)}
    return connection, tree
