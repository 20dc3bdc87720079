"""The workspace of runs: the engine that reads the source, and a private work database.

Relations of a run are in a separate schema or in temporary views, and are dropped with the run. The database of the
source is only read; `sqlanon live` alone writes to it (`Workspace.writing`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from sqlglot import exp

from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import PolicyError, SourceError
from sqlanon.places.addresses import SESSION, database_path_flaw, format_spark_address, is_session
from sqlanon.places.databases import KNOWN_ENDINGS, OTHER_WORKBOOKS, file_kind, format_database, is_attached
from sqlanon.policy import Policy, SourceSection, TableRule
from sqlanon.policy.compatibility import REMOTE_SOURCES, collect_sections, find_conflicts
from sqlanon.sources.arrow import copy_arrow, describe_type
from sqlanon.sources.duckdb import bind_source
from sqlanon.sources.kinds import (
    Binding,
    Linking,
    Servers,
    find_kind_for_object,
    find_section_kind,
    lower,
    parse_connect_argument,
)
from sqlanon.sources.persons import trim_person_ids
from sqlanon.sources.queries import bring_temporary, refuse_functions
from sqlanon.sources.relation import source_errors
from sqlanon.sources.run import Copies, Run
from sqlanon.sources.source import Population, WorkNames
from sqlanon.support.expressions import create_schema, quote_name, table, template
from sqlanon.support.names import CATALOG, STAGED, VERIFIED, table_parts
from sqlanon.support.workdir import spill_directory


class Workspace:
    def __init__(self, source: Any, limits: Limits = NO_LIMITS) -> None:
        self.description = str(source) if isinstance(source, (str, os.PathLike)) else "the policy's source"
        self._stack = ExitStack()
        self.servers = Servers(self._stack)
        self._source, self._is_live = source, isinstance(source, duckdb.DuckDBPyConnection)
        self._is_session, self._kind = is_session(source), find_kind_for_object(source)
        self._connected: dict[str, Any] = {}  # keys of ``[source]``
        self._arrow: exp.Table | None = None
        self._readers: dict[Path, DuckDBEngine] = {}
        self._runs = 0
        self._spill: Path | None = None  # the private directory; a live connection has its own
        # A live connection may have several workspaces.
        self._name = f"sqlanon_work_{uuid4().hex[:12]}" if self._is_live else "sqlanon_work"
        try:
            self.engine = self._open_live(source, limits) if self._is_live else self._open_private(limits)
            if self._kind is not None:
                self.description = self._kind.name
            elif (section := parse_connect_argument(source)) is not None:
                self._connected = dict(section)
                self.description = format_spark_address(self.description)
                if (database := _database_file(section.get("database"))) is not None:
                    self._reader(database)
            elif self._is_session:
                self.description = "a Spark session"
            elif source is not None and not self._is_live:
                self.description = describe_type(source)
                self._arrow = copy_arrow(self.engine, source, table("arrow", "main", self._name))
        except BaseException:
            self._stack.close()
            raise

    def _open_live(self, connection: duckdb.DuckDBPyConnection, limits: Limits) -> DuckDBEngine:
        self.description = "a duckdb connection"
        if limits != NO_LIMITS:
            raise SourceError(
                "memory_limit, threads: a live connection has its own settings; leave these out and use SET in the "
                "connection"
            )
        holder = DuckDBEngine(connection)
        if holder.in_transaction():
            # A transaction writes to one database only: writing to the work database would abort it.
            raise SourceError("the connection has an open transaction; commit it or roll it back first")
        # A second connection does not see temporary macros of the user, which could replace functions.
        engine = holder.connect_beside(holder)
        self._stack.callback(engine.close)
        try:
            engine.use_default_settings()
        except duckdb.InvalidInputException as error:
            raise SourceError(
                "the connection has a locked configuration with settings that change what queries mean: "
                f"{str(error).splitlines()[0]}"
            ) from error
        refuse_functions(engine)
        engine.attach(":memory:", self._name, read_write=True)  # even if the connection is read-only

        def detach() -> None:
            with suppress(duckdb.Error):  # closed already, or in a transaction of its user
                engine.detach(self._name)

        self._stack.callback(detach)
        return engine

    def _open_private(self, limits: Limits) -> DuckDBEngine:
        self._spill = self._stack.enter_context(spill_directory())
        engine = DuckDBEngine.open_private(self._spill, limits)
        self._stack.callback(engine.close)
        engine.attach(":memory:", self._name)
        return engine

    @property
    def limits(self) -> Limits:
        return self.engine.limits

    @property
    def has_source(self) -> bool:
        """Whether it was given a source; otherwise each policy names one."""
        return self._source is not None

    @property
    def connected_section(self) -> Mapping[str, Any]:
        """The keys of ``[source]`` for the given source; empty if only the policy names it."""
        return self._connected

    def shared_engines(self) -> Servers:
        """Engines that linked tables share, opened at first use and closed with the workspace."""
        return Servers(self._stack)

    def run(self, policy: Policy, read: bool = True, counted: bool = False, linking: Linking | None = None) -> Run:
        """Bind the source of a policy.

        Parameters
        ----------
        read:
            Whether rows are read; a plan reads only the schema.
        counted:
            Whether counts of the rows are enough; otherwise a source on a server is refused.
        linking:
            For one of several tables; without it, a source in PostgreSQL is counted at once.
        """
        self._runs += 1
        schema = f"run_{self._runs}"
        self.engine.execute(create_schema(schema, self._name))

        views = ("main", "temp")
        if self._is_live:
            views = (f"{schema}_views", self._name)  # visible to the user's connection, too
            self._look_up_as_user(policy, *views)

        def work(name: str) -> exp.Table:
            return table(name, schema, self._name)

        section = self._section(policy)
        kind = self._kind or find_section_kind(section, self._arrow is not None)
        if kind.without_rows is not None and not counted:
            raise SourceError(f"the source is {kind.without_rows}. These need only counts: {kind.verbs}")
        is_connected = self._is_live or self._arrow is not None or bool(self._connected.get("files"))
        database = None if kind.name != "database" or is_connected else _database_file(section.database)
        engine = self.engine if database is None else self._reader(database)
        name = f"{self._name}_{schema}"
        copies = None  # a live connection has none
        if self._spill is not None:
            copies = Copies(self.engine, self._spill, f"{name}_copies_{uuid4().hex[:8]}")  # an unused name
        on_disk = None if copies is None else partial(copies.table, "source_copy")
        work_names = WorkNames(name, work("source_copy"), read, views, on_disk)
        home = self._home(section)
        binding = Binding(engine, policy, section, work_names, self.servers, self._source, self._arrow, home, linking)
        if binding.readings and not kind.reads_texts:
            names = ", ".join(f"attributes.{reading.name}" for reading in binding.readings.values())
            raise SourceError(
                f"{names}: applies to texts of files and data frames, and this source is neither: cast the "
                "column in the source, and remove type, format, pivot and missing"
            )
        engine, source = kind.bind(binding)
        source = trim_person_ids(engine, source, work_names, section.person_column)
        population_names = replace(
            work_names,
            name=f"{name}_population",
            table=work("population_copy"),
            on_disk=None if copies is None else partial(copies.table, "population_copy"),
        )
        population = self._population(engine, binding, population_names)
        run = Run(engine, work, work_names, source, population, kind.identity(section, source, self._is_live), copies)
        if self._is_live:
            self._stack.callback(run.drop)
        return run

    def _home(self, section: SourceSection) -> str | None:
        """Identify the DuckDB database of the source in the ledger."""
        if not self._is_live:
            return None if section.database is None else format_database(section.database)
        path = self.engine.rows(
            template("SELECT path FROM duckdb_databases() WHERE database_name = :database")(
                database=self.engine.holder.database
            )
        )[0][0]
        return ":memory:" if path is None else format_database(Path(path))

    def _look_up_as_user(self, policy: Policy, schema: str, database: str) -> None:
        """Resolve names as the user's connection does now, with the temporary tables of hierarchies."""
        engine = self.engine
        rules = (rule for attribute in policy.attributes.values() for rule in attribute.hierarchy or ())
        names = [rule.table for rule in rules if isinstance(rule, TableRule) and len(table_parts(rule.table)) == 1]
        engine.copy_time_zone(engine.holder)
        engine.execute(create_schema(schema, database))
        with source_errors():
            bring_temporary(engine, [table_parts(name)[0] for name in dict.fromkeys(names)], schema, database)
        engine.follow_search_path(quote_name(database, schema))

    def _section(self, policy: Policy) -> SourceSection:
        """The ``[source]`` of the policy, or of the given source."""
        keys, in_spark = dict(self._connected), self._is_session or "spark" in self._connected
        if in_spark:
            keys = {"database": None, "spark": SESSION, **keys}
        elif self._kind is not None:
            keys = {"database": None, "files": ()}
        elif not (keys or self._is_live or self._arrow is not None):
            return policy.source
        elif self._is_live and is_attached(policy.source.database):
            keys = {"database": None}
        section = policy.source.model_copy(update={"postgres": None, "spark": None, "frequency_set": (), **keys})
        # The policy did not name Spark, so that its validation did not refuse features that Spark lacks.
        if in_spark:
            sections = collect_sections({**dict(policy), "source": section})
            if conflicts := list(find_conflicts(REMOTE_SOURCES, sections)):
                raise PolicyError(conflicts)
        return section

    def _population(self, engine: DuckDBEngine, binding: Binding, work_names: WorkNames) -> Population | None:
        """Bind the population: a table or query of the source's database, or of another file."""
        policy, section = binding.policy, binding.policy.population
        if section is None:
            return None
        if (database := _database_file(section.database)) is not None:
            engine = self._reader(database)
        try:
            wanted = lower(*policy.generalized_attributes, section.person)
            readings = binding.readings if section.files else {}
            source = bind_source(engine, section, work_names, binding.text_attributes, wanted, readings=readings)
            return Population(engine, source, work_names)
        except SourceError as error:  # its message names the source
            message = re.sub(r"^(the )?source\b", r"\1population", str(error))
            raise SourceError(message.replace("[source.csv]", "[population.csv]")) from error

    def _reader(self, database: Path) -> DuckDBEngine:
        """An engine that uses a database file: runs on several files do not interfere."""
        if database not in self._readers:
            if not database.is_file():
                raise SourceError(f"{database}: the database does not exist")
            alias = self._free_alias(database.stem)
            try:
                self.engine.attach(database, alias, read_only=True)
            except duckdb.Error as error:
                if file_kind(database.name) is not None:
                    wrong = f'{database} is not a database; use files = "{database.name}" under [source] instead'
                    raise SourceError(wrong) from error
                first = str(error).splitlines()[0]
                if "not a valid DuckDB" in first:
                    wrong = f"{database} is not a DuckDB database; data files end in {KNOWN_ENDINGS}"
                    if database.suffix.lower() in OTHER_WORKBOOKS:
                        wrong = f"{database} is a workbook of a format that is not read: save it as .xlsx or CSV"
                    raise SourceError(wrong) from error
                advice = "; a process that has it open for writing must close it first" if "lock" in first else ""
                raise SourceError(f"{database} cannot be opened for reading: {first}{advice}") from error
            holder = self.engine.connect_beside()
            self._stack.callback(holder.close)
            holder.use_utc().use(alias)
            reader = self.engine.connect_beside(holder)
            self._stack.callback(reader.close)
            reader.use_utc()
            reader.follow_search_path()
            self._readers[database] = reader
        return self._readers[database]

    @contextmanager
    def writing(self, policy: Policy) -> Iterator[DuckDBEngine]:
        """Open the database of the policy's source for writing, exclusively, for the block."""
        database = self.database_file(policy)
        if database is None:
            yield self.engine
            return
        if reason := database_path_flaw(database):
            raise SourceError(f"{database} {reason}")
        reader = self._reader(database)
        alias = reader.holder.database
        self.engine.detach(alias)
        try:
            try:
                self.engine.attach(database, alias, read_write=True)
            except duckdb.Error as error:
                raise SourceError(
                    f"{database} cannot be opened for writing: {str(error).splitlines()[0]}; "
                    "other processes that have it open must close it first"
                ) from error
            yield reader
        finally:
            self.engine.detach(alias)
            # The database keeps its name, so that relations that refer to it stay valid.
            self.engine.attach(database, alias, read_only=True)

    def database_file(self, policy: Policy) -> Path | None:
        """The database file of the policy's source; None for a live connection."""
        section = self._section(policy)
        database = _database_file(section.database)
        if self._arrow is not None or section.files or not (self._is_live or database):
            raise SourceError(
                "source: a live view needs a table in a DuckDB database; load the source into one and connect to it"
            )
        return None if self._is_live else database

    def _free_alias(self, stem: str) -> str:
        names = self.engine.rows(template("SELECT database_name FROM duckdb_databases()")())
        reserved = {"main", "system", "temp", "memory", "sqlanon", CATALOG, STAGED, VERIFIED}
        taken = {name.lower() for (name,) in names} | reserved
        number, alias = 1, stem
        while alias.lower() in taken:
            number, alias = number + 1, f"{stem}_{number}"
        return alias

    def close(self) -> None:
        self._stack.close()


def _database_file(database: Path | str | None) -> Path | None:
    """The file of a DuckDB database; None for databases that DuckDB attaches through an extension."""
    return database if isinstance(database, Path) and not is_attached(database) else None
