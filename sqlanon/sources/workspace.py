"""Where runs work: the engine that reads the source, and the private work database beside it.

Everything that a run makes stands in a schema of its own, or in temporary views, and goes with it. The source's own
database is only read: `sqlanon live` alone writes there, a view and what that reads (`Workspace.writing`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
from sqlglot import exp

from sqlanon import catalog
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.federated import FederatedEngine, There
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.spark import is_session
from sqlanon.errors import PolicyError, SourceError
from sqlanon.expressions import Namer, create_schema, qualified, table, text
from sqlanon.policy import (
    FileRule,
    MaskRule,
    Policy,
    SourceSection,
    TableRule,
    address_of,
    is_postgres,
    is_spark,
    spark_address_of,
    table_parts,
    why_not_written,
)
from sqlanon.policy.checks import spark_check
from sqlanon.policy.names import STAGED, VERIFIED
from sqlanon.policy.spark import SESSION, shown_spark
from sqlanon.requirements import looked_at_sensitive
from sqlanon.sources import (
    Place,
    Source,
    bind_frequency_set,
    bind_postgres,
    bind_source,
    bind_spark,
    bring_temporary,
    copy_arrow,
    file_kind,
    identity_of,
    readable,
    refuse_functions,
)
from sqlanon.sources.connections import Servers
from sqlanon.sources.run import Population, Run
from sqlanon.workdir import spill_directory


class Workspace:
    """The engines and the work database of one `Database`."""

    def __init__(self, source: Any, limits: Limits = NO_LIMITS) -> None:
        self.described = "the policy's source" if source is None else str(source)
        self._stack = ExitStack()
        self._is_live = isinstance(source, duckdb.DuckDBPyConnection)
        self._given: dict[str, Any] = {}
        self._arrow: exp.Table | None = None
        self._readers: dict[Path, DuckDBEngine] = {}
        self.servers = Servers(self._stack, source if is_session(source) else None)
        self._runs = 0
        # In a live connection there may be others of us.
        self._name = f"sqlanon_work_{uuid4().hex[:12]}" if self._is_live else "sqlanon_work"
        try:
            self._engine = self._open_live(source, limits) if self._is_live else self._open_private(limits)
            if isinstance(source, str) and is_postgres(source):
                raise SourceError("a source in PostgreSQL is named by the policy: [source] postgres = ..., table = ...")
            elif isinstance(source, str) and is_spark(source):
                self._given = {"spark": source}
                self.described = shown_spark(source)
            elif isinstance(source, (str, os.PathLike)):
                path = Path(source).absolute()
                self._given = {"files": (str(path),)} if file_kind(path.name) else {"database": path}
                if "database" in self._given:
                    self._reader(path)
            elif self.servers.session is not None:
                self.described = "a Spark session"
            elif source is not None and not self._is_live:
                self.described = type(source).__name__
                self._arrow = copy_arrow(self._engine, source, table("arrow", "main", self._name))
        except BaseException:
            self._stack.close()
            raise

    def _open_live(self, connection: duckdb.DuckDBPyConnection, limits: Limits) -> DuckDBEngine:
        self.described = "a duckdb connection"
        if limits != NO_LIMITS:
            raise SourceError(
                "memory_limit, threads: the settings of a live connection are its own: "
                "leave them out, and SET them in the connection"
            )
        holder = DuckDBEngine(connection)
        if holder.in_transaction():
            # A transaction writes to one database only, and ours is another: going on would abort it.
            raise SourceError("the connection has an open transaction: commit it or roll it back first")
        # Statements of ours run on a connection beside the user's: there no temporary macro is in their way.
        engine = holder.beside(holder)
        self._stack.callback(engine.close)
        try:
            engine.with_settings_of_a_new_engine()
        except duckdb.InvalidInputException as error:
            raise SourceError(
                "the connection's configuration is locked, and has settings that change what queries mean: "
                f"{str(error).splitlines()[0]}"
            ) from error
        refuse_functions(engine)
        engine.attach(":memory:", self._name, read_write=True)  # even where the connection itself may only read
        self._stack.callback(self._detach, engine)
        return engine

    def _detach(self, engine: DuckDBEngine) -> None:
        with suppress(duckdb.Error):  # closed already, or in a transaction that its user began
            engine.detach(self._name)

    def _open_private(self, limits: Limits) -> DuckDBEngine:
        engine = DuckDBEngine.private(self._stack.enter_context(spill_directory()), limits)
        self._stack.callback(engine.close)
        engine.attach(":memory:", self._name)
        return engine

    @property
    def engine(self) -> DuckDBEngine:
        """The engine beside which the work database is."""
        return self._engine

    @property
    def limits(self) -> Limits:
        """What the engines may take; a live connection's own settings."""
        return self._engine.limits

    @property
    def given(self) -> Mapping[str, Any]:
        """Where the source is, as ``[source]`` of a policy has it: nothing, if that is known to the policy alone."""
        return self._given

    def run(self, policy: Policy, read: bool = True, counted: bool = False) -> Run:
        """Begin a run: bind the policy's source."""
        self._runs += 1
        schema = f"run_{self._runs}"
        self._engine.execute(create_schema(schema, self._name))

        views = ("main", "temp")
        if self._is_live:
            views = (f"{schema}_views", self._name)  # there the user's connection sees them, too
            self._look_up_as_user(policy, *views)

        def work(name: str) -> exp.Table:
            return table(name, schema, self._name)

        section = self._section(policy)
        elsewhere = "PostgreSQL" if section.postgres is not None else "Spark" if section.spark is not None else None
        if elsewhere is not None and not counted:
            raise SourceError(
                f"the source is in {elsewhere}, and its rows never leave it: this looks at rows; what needs counts "
                "alone is anonymize, plan, compare and verify"
            )
        if section.frequency_set and not counted:
            raise SourceError(
                "the source is a frequency set, and this looks at rows: they are in the warehouse; what needs counts "
                "alone is anonymize, compare and plan"
            )
        is_given = self._is_live or self._arrow is not None or bool(self._given.get("files"))
        engine = self._engine if is_given or section.database is None else self._reader(section.database)
        place = Place(f"{self._name}_{schema}", work("source_copy"), read, views)
        as_text = frozenset(
            name.lower()
            for name, attribute in policy.attributes.items()
            if any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
        )
        wanted = [name for name, attribute in policy.attributes.items() if attribute.role != "identifying"]
        wanted += [*policy.source.key, *(policy.risk.columns.values() if policy.risk else ())]
        if section.postgres is not None:
            source = self._bind_postgres(policy, section, place, work("source_copy"))
        elif section.spark is not None:
            engine, source = self._bind_spark(policy, section, place)
        elif section.frequency_set:
            looked_at = (*policy.generalized, *looked_at_sensitive(policy.privacy, policy.with_role("sensitive")))
            source = bind_frequency_set(
                engine, section, place, work("source_copy"), tuple(policy.attributes), looked_at
            )
        else:
            source = bind_source(engine, section, place, self._arrow, as_text, _lower(*wanted, section.person))
        population = self._population(policy, engine, place, work, as_text)
        run = Run(engine, work, place, source, population, self._identity(section, source))
        if self._is_live:
            self._stack.callback(run.drop)
        return run

    def _look_up_as_user(self, policy: Policy, schema: str, database: str) -> None:
        """Know what the user's connection knows now, with the temporary tables that hierarchies are in."""
        engine, rules = self._engine, (rule for one in policy.attributes.values() for rule in one.hierarchy or ())
        names = [rule.table for rule in rules if isinstance(rule, TableRule) and len(table_parts(rule.table)) == 1]
        engine.in_time_zone_of(engine.holder)
        engine.execute(create_schema(schema, database))
        with readable():
            bring_temporary(engine, [table_parts(name)[0] for name in dict.fromkeys(names)], schema, database)
        engine.look_up_as_holder(qualified(database, schema))

    def _section(self, policy: Policy) -> SourceSection:
        """Where the source is: as the policy has it, unless it was given."""
        if self.servers.session is not None or "spark" in self._given:
            given = {"spark": SESSION, **self._given}
            section = policy.source.model_copy(
                update={"postgres": None, "database": None, "frequency_set": (), **given}
            )
            # The policy may not have known that it is in Spark: what cannot be had there was not refused.
            if problems := list(spark_check({**dict(policy), "source": section})):
                raise PolicyError(problems)
            return section
        if self._is_live or self._arrow is not None or self._given:
            return policy.source.model_copy(
                update={"postgres": None, "spark": None, "frequency_set": (), **self._given}
            )
        return policy.source

    def _bind_postgres(self, policy: Policy, section: SourceSection, place: Place, combinations: exp.Table) -> Source:
        """Count a source in PostgreSQL."""
        assert section.postgres is not None
        address = address_of(section.postgres)
        looked_at = (*policy.generalized, *looked_at_sensitive(policy.privacy, policy.with_role("sensitive")))
        wanted = _lower(*(name for name, attribute in policy.attributes.items() if attribute.role != "identifying"))
        server = self.servers.postgres(address, "source.postgres")
        source = bind_postgres(self._engine, server, address, section, place, combinations, looked_at, wanted)
        release = policy.release
        if release is not None and release.postgres is not None:
            source.refuse_release(release.postgres, table_parts(release.table)[0])
        return source

    def _bind_spark(self, policy: Policy, section: SourceSection, place: Place) -> tuple[FederatedEngine, Source]:
        """Bind a source in Spark; and the engine that has it beside ours."""
        assert section.spark is not None
        address = _address_in(section)
        wanted = _lower(*(name for name, attribute in policy.attributes.items() if attribute.role != "identifying"))
        server = self.servers.spark(address, "source.spark")
        engine = FederatedEngine(self._engine, There(server, section.fetch_limit, section.scratch))
        source = bind_spark(engine, server, section, place, wanted)
        return engine, source

    def _identity(self, section: SourceSection, source: Source) -> str:
        """What the source is, for the ledger."""
        place = "arrow" if self._arrow is not None else None
        if section.spark is not None and not section.files:  # files are the same, whoever reads them
            place = self.servers.spark(_address_in(section), "source.spark").catalog
        if self._is_live:
            here = exp.column("database_name").eq(text(self._engine.holder.database))
            path = self._engine.rows(exp.select("path").from_("duckdb_databases()").where(here))[0][0]
            place = ":memory:" if path is None else os.path.realpath(path)
        return identity_of(section, place, self._is_live, source)

    def _population(
        self,
        policy: Policy,
        engine: DuckDBEngine,
        own: Place,
        work: Namer,
        as_text: frozenset[str],
    ) -> Population | None:
        """Bind the policy's population: a table or query of the source's own database, or of another file."""
        section = policy.population
        if section is None:
            return None
        if section.database is not None:
            engine = self._reader(section.database)
        place = replace(own, name=f"{own.name}_population", table=work("population_copy"))
        try:
            wanted = _lower(*policy.generalized, section.person)
            return Population(engine, bind_source(engine, section, place, None, as_text, wanted), place)
        except SourceError as error:  # it speaks of a source
            raise SourceError(re.sub(r"^(the )?source\b", r"\1population", str(error))) from error

    def _reader(self, database: Path) -> DuckDBEngine:
        """An engine in which a database file is the one in use: runs on several files do not mix."""
        if database not in self._readers:
            if not database.is_file():
                raise SourceError(f"there is no database at {database}")
            alias = self._free_alias(database.stem)
            try:
                self._engine.attach(database, alias, read_only=True)
            except duckdb.Error as error:
                raise SourceError(
                    f"{database} cannot be opened for reading: {str(error).splitlines()[0]}; "
                    "a process that holds it for writing must close it first"
                ) from error
            holder = self._engine.beside()
            self._stack.callback(holder.close)
            holder.in_utc().use(alias)
            reader = self._engine.beside(holder)
            self._stack.callback(reader.close)
            reader.in_utc()
            reader.look_up_as_holder()
            self._readers[database] = reader
        return self._readers[database]

    @contextmanager
    def writing(self, policy: Policy) -> Iterator[DuckDBEngine]:
        """The database that the policy's source is in, for a moment open for writing: nobody else has it meanwhile."""
        database = self.home(policy)
        if database is None:
            yield self._engine
            return
        if reason := why_not_written(database):
            raise SourceError(f"{database} {reason}")
        reader = self._reader(database)
        alias = reader.holder.database
        self._engine.detach(alias)
        try:
            try:
                self._engine.attach(database, alias, read_write=True)
            except duckdb.Error as error:
                raise SourceError(
                    f"{database} cannot be opened for writing: {str(error).splitlines()[0]}; "
                    "whoever else has it open must close it first"
                ) from error
            yield reader
        finally:
            self._engine.detach(alias)
            self._engine.attach(database, alias, read_only=True)  # under its own name: what was made of it stays good

    def home(self, policy: Policy) -> Path | None:
        """The file of the database that the policy's source is in; None: that of a live connection."""
        section = self._section(policy)
        if self._arrow is not None or section.files or not (self._is_live or section.database is not None):
            raise SourceError("source: it is in no DuckDB database: load it into one, and connect to that")
        return None if self._is_live else section.database

    def _free_alias(self, stem: str) -> str:
        """The file's own name, which views in it may use, unless it is taken."""
        names = self._engine.rows(exp.select("database_name").from_("duckdb_databases()"))
        ours = {"main", "system", "temp", "memory", "sqlanon", catalog.ATTACHED, STAGED, VERIFIED}
        taken = {name.lower() for (name,) in names} | ours
        number, alias = 1, stem
        while alias.lower() in taken:
            number, alias = number + 1, f"{stem}_{number}"
        return alias

    def close(self) -> None:
        """Let go of the source, and drop everything that was made beside it."""
        self._stack.close()


def _address_in(section: SourceSection) -> str | None:
    """Where Spark is; None: in the session that was given."""
    return None if section.spark in (None, SESSION) else spark_address_of(section.spark)


def _lower(*names: str | None) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name)
