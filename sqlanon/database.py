"""`Database`: what a user holds. Its methods are the verbs, each a few lines over the parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
from sqlglot import exp

from sqlanon import anonymization, catalog
from sqlanon.against_source import check_against_source
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import SourceError
from sqlanon.plan import Plan, plan
from sqlanon.policy import FileRule, MaskRule, Policy, SourceSection
from sqlanon.preparation import Namer, Prepared, match_columns, prepare
from sqlanon.queries.lattice import create_lattice, insert_lattice
from sqlanon.queries.names import create_schema, table
from sqlanon.queries.unique import distinct_counts, nearly_unique
from sqlanon.release.publish import utc_now
from sqlanon.release.verify import Verification, verify_file
from sqlanon.resources import sql_text
from sqlanon.result import Result, lattice_rows
from sqlanon.risk import Risk, risk_of, risk_query
from sqlanon.sources import Source, bind_source, copy_arrow
from sqlanon.workdir import spill_directory

if TYPE_CHECKING:
    import pyarrow

ArrowSource: TypeAlias = "pyarrow.Table | pyarrow.RecordBatchReader"
StageProgress = Callable[[str, int, int, "float | None"], None]
"""Told the stage (``scan``, ``search``, ``write``), generalizations open and checked, and the best score so far."""


def connect(
    source: str | os.PathLike[str] | duckdb.DuckDBPyConnection | ArrowSource | None = None,
) -> Database:
    """Open a database to anonymize tables of.

    Parameters
    ----------
    source:
        A DuckDB file, opened read-only; a Parquet or CSV file or a pattern of them; a live duckdb connection, used as
        it is; an Arrow table or stream. Without one, each policy's ``[source]`` says where.
        With one, it takes the place of the ``database`` and ``files`` of the policies.

    Raises
    ------
    SourceError
        It cannot be opened.

    Examples
    --------
    >>> import duckdb
    >>> connection = duckdb.connect()
    >>> _ = connection.execute("CREATE TABLE people AS SELECT i % 3 AS ward, i AS age FROM range(9) AS t(i)")
    >>> with connect(connection) as db:
    ...     result = db.anonymize(Policy(
    ...         source={"table": "people"},
    ...         attributes={"ward": {"role": "quasi", "hierarchy": "suppress"},
    ...                     "age": {"role": "quasi", "hierarchy": {"intervals": [3]}}},
    ...         privacy={"k": 3},
    ...     ))
    >>> result.generalization
    {'ward': 1, 'age': 1}
    """
    return Database(source)


class Database:
    """A source, and the private work database of sqlanon beside it. Made by `connect`; a context manager."""

    def __init__(self, source: str | os.PathLike[str] | duckdb.DuckDBPyConnection | ArrowSource | None = None) -> None:
        self._stack = ExitStack()
        self._runs = 0
        self._attached: dict[Path, str] = {}
        self._is_live = isinstance(source, duckdb.DuckDBPyConnection)
        self._arrow: exp.Table | None = None
        self._section: SourceSection | None = None
        self._described = "the policy's source"
        try:
            self._open(source)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, source: Any) -> None:
        if isinstance(source, duckdb.DuckDBPyConnection):
            self._engine = DuckDBEngine(source)
            self._described = "a duckdb connection"
            self._stack.enter_context(self._engine.setting("python_enable_replacements", False))
            self._stack.enter_context(self._engine.setting("default_collation", ""))
        else:
            spill = self._stack.enter_context(spill_directory())
            self._engine = DuckDBEngine.private(spill)
            self._stack.callback(self._engine.close)
            if isinstance(source, (str, os.PathLike)):
                self._section = _section(Path(source))
                self._described = str(source)
                if self._section.database is not None:
                    self._attach(self._section.database)
        # In a live connection there may be others of us.
        self._work_name = f"sqlanon_work_{id(self):x}" if self._is_live else "sqlanon_work"
        self._engine.attach(":memory:", self._work_name)
        self._stack.callback(self._engine.detach, self._work_name)
        if not self._is_live and source is not None and self._section is None:
            self._described = type(source).__name__
            self._arrow = copy_arrow(self._engine, source, table("arrow", "main", self._work_name))

    def anonymize(self, policy: Policy, progress: StageProgress | None = None) -> Result:
        """Find the version of a table that meets the policy and loses the least.

        Parameters
        ----------
        policy:
            What is asked.
        progress:
            Told what is going on.

        Raises
        ------
        SourceError
            The source cannot be read, or does not fit the policy.
        HierarchyError
            Hierarchies are no trees over the source's values; with all problems.
        InfeasibleError
            Nothing meets the policy; with the generalization that comes nearest.
        """
        tell = progress or (lambda stage, open_, checked, best: None)
        started, seconds = time.perf_counter(), {}
        tell("scan", 0, 0, None)
        work = self._new_run()
        prepared = prepare(self._engine, policy, self._bind(policy, work), work)
        warnings = self._warnings(prepared)
        seconds["load"] = time.perf_counter() - started
        started = time.perf_counter()
        search, outcome = anonymization.find(
            self._engine, prepared, lambda open_, checked, best: tell("search", open_, checked, best)
        )
        levels = outcome.levels
        assert levels is not None, "a search that starts from a satisfying top finds something"
        chosen = anonymization.choose(self._engine, prepared, levels, search.figures[levels], work)
        self._engine.execute(create_lattice(work("lattice")))
        self._engine.execute(insert_lattice(work("lattice")), lattice_rows(search))
        seconds["search"] = time.perf_counter() - started
        result = Result(self._engine, work, prepared, search, outcome, chosen, warnings + chosen.warnings, seconds)
        if policy.catalog is not None:
            self._record(policy.catalog.database, prepared, result, work("lattice"))
        return result

    def risk(self, policy: Policy) -> Risk:
        """How risky the policy's source is as it stands: class sizes over its quasi-identifiers.

        Raises
        ------
        SourceError
            The source cannot be read, or does not fit the policy.
        """
        rows = self._engine.rows(self._risk_query(policy))
        return risk_of(rows[0], policy.privacy.k)

    def risk_sql(self, policy: Policy) -> str:
        """The statement behind `risk`; it is not run."""
        return self._risk_query(policy).sql(self._engine.dialect, pretty=True)

    def plan(self, policy: Policy) -> Plan:
        """The stages of `anonymize` and their SQL, from the schema and the hierarchy files alone: reads no rows.

        Raises
        ------
        SourceError
            The source's schema cannot be read, or does not fit the policy.
        """
        work = self._new_run()
        return plan(self._engine, policy, self._bind(policy, work), work)

    def verify(self, release: str | os.PathLike[str], policy: Policy) -> Verification:
        """Check a release by itself, and against its source: recoded again, the source must give the same rows.

        Raises
        ------
        ReleaseError
            There is no release at that path.
        SourceError, HierarchyError, InfeasibleError
            The source does not fit the policy.
        """
        found = verify_file(Path(release).absolute())
        work = self._new_run()
        prepared = prepare(self._engine, policy, self._bind(policy, work), work)
        self._install_macros()
        checks = check_against_source(self._engine, prepared, found.manifest, work)
        return replace(found, checks=(*found.checks, *checks))

    def close(self) -> None:
        """Let go of the source, and of everything that was made beside it."""
        self._stack.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self._described!r})"

    def _attach(self, database: Path) -> None:
        if database in self._attached:
            self._engine.use(self._attached[database])
            return
        if not database.is_file():
            raise SourceError(f"there is no database at {database}")
        alias = database.stem
        taken = {name for (name,) in self._engine.rows(exp.select("database_name").from_("duckdb_databases()"))}
        if alias.lower() in {name.lower() for name in taken} | {"system", "temp", "memory"}:
            alias = f"source_{alias}"
        try:
            self._engine.attach(database, alias, read_only=True)
        except duckdb.Error as error:
            raise SourceError(
                f"{database} cannot be opened for reading: {str(error).splitlines()[0]}; "
                "a process that holds it for writing must close it first"
            ) from error
        self._attached[database] = alias
        self._engine.use(alias)

    def _new_run(self) -> Namer:
        """A schema of its own in the work database, for each run."""
        self._runs += 1
        schema = f"run_{self._runs}"
        self._engine.execute(create_schema(schema, self._work_name))
        return lambda name: table(name, schema, self._work_name)

    def _bind(self, policy: Policy, work: Namer) -> Source:
        section = policy.source
        if self._section is not None:
            given = {"database": self._section.database, "files": self._section.files}
            section = section.model_copy(update=given)
        elif self._arrow is None and not self._is_live and section.database is not None:
            self._attach(section.database)
        as_text = frozenset(
            name.lower()
            for name, attribute in policy.attributes.items()
            if any(isinstance(rule, (MaskRule, FileRule)) for rule in attribute.hierarchy or ())
        )
        return bind_source(self._engine, section, work("source"), self._arrow, as_text)

    def _install_macros(self) -> None:
        with self._engine.using(self._work_name):
            self._engine.script(sql_text("macros.sql"))

    def _risk_query(self, policy: Policy) -> exp.Select:
        work = self._new_run()
        source = self._bind(policy, work)
        columns = match_columns(policy, source)
        return risk_query(source.relation, [columns[name] for name in policy.quasi], policy.privacy.k)

    def _warnings(self, prepared: Prepared) -> tuple[str, ...]:
        names = [column.name for column in prepared.columns if column.quasi is None]
        if not names:
            return ()
        counts = self._engine.rows(distinct_counts(prepared.source.relation, names))[0]
        return tuple(
            f"column {name!r} is nearly unique: its values re-identify people by themselves; make it identifying, "
            "or a quasi-identifier"
            for name in nearly_unique(names, counts, prepared.marginals.rows)
        )

    def _record(self, path: Path, prepared: Prepared, result: Result, lattice: exp.Table) -> None:
        policy_hash, now = prepared.policy.fingerprint(), utc_now()
        tree = prepared.policy.model_dump(mode="json")
        rules = {name: attribute["hierarchy"] for name, attribute in tree["attributes"].items()}
        with catalog.open_catalog(self._engine, path):
            catalog.insert(self._engine, "runs", result.to_catalog())
            catalog.store_lattice(self._engine, result.run_id, lattice)
            catalog.store_hierarchies(self._engine, policy_hash, rules, prepared.hierarchies, now)


def _section(path: Path) -> SourceSection:
    """A path as a policy's source: data files by their ending, else a database."""
    if path.name.lower().endswith((".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")):
        return SourceSection(files=(str(path),))
    return SourceSection.model_construct(database=path.absolute())
