"""`Database`: what a user holds. Its methods are the verbs, each a few lines over the parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

import duckdb
from sqlglot import exp

from sqlanon import anonymization, catalog
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.policy import Policy
from sqlanon.preparation import Prepared, prepare
from sqlanon.queries.lattice import create_lattice, insert_lattice
from sqlanon.queries.unique import distinct_counts, nearly_unique
from sqlanon.release.publish import utc_now
from sqlanon.release.verify import Verification, verify_file
from sqlanon.result import Result
from sqlanon.sources import readable
from sqlanon.workspace import Workspace

if TYPE_CHECKING:
    import pyarrow

    from sqlanon.compare import ComparisonProgress
    from sqlanon.plan import Plan
    from sqlanon.risk import Risk, UniquesMatrix

ArrowSource: TypeAlias = "pyarrow.Table | pyarrow.RecordBatchReader"
StageProgress = Callable[[str, int, int, "float | None"], None]
"""Told the stage (``scan``, ``search``, ``noise``, ``write``), generalizations open and checked (of noise: records that
wait for it, and that have it), and the best score so far."""


def connect(
    source: str | os.PathLike[str] | duckdb.DuckDBPyConnection | ArrowSource | None = None,
    *,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Database:
    """Open a database to anonymize tables of.

    Parameters
    ----------
    source:
        A DuckDB file, opened read-only; a Parquet or CSV file or a pattern of them; a live duckdb connection, used as
        it is; an Arrow table or stream. Without one, each policy's ``[source]`` says where.
        With one, it takes the place of the ``database`` and ``files`` of the policies.
    memory_limit:
        What each engine may hold in memory, such as ``"2GB"``; what does not fit is spilled to a private directory.
        By default the engine's own limit. An answer does not depend on it.
    threads:
        How many threads each engine may use; by default as many as the machine has.

    Raises
    ------
    SourceError
        It cannot be opened, or a setting is no such thing; or there is one with a live connection, which has its own.

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
    {'ward': 0, 'age': 2}
    """
    return Database(source, Limits(memory_limit, threads))


class Database:
    """A source, and the private work database of sqlanon beside it. Made by `connect`; a context manager."""

    def __init__(
        self,
        source: str | os.PathLike[str] | duckdb.DuckDBPyConnection | ArrowSource | None = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self._space = Workspace(source, limits)

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
        run = self._space.run(policy)
        engine, work = run.engine, run.work
        with readable():
            noise = None
            if policy.noisy:  # what needs no noise does not wait for what draws it
                from sqlanon.noise.drawer import drawer  # noqa: PLC0415

                noise = drawer(run, policy)
            prepared = prepare(engine, policy, run.source, work, run.population)
            warnings = self._warnings(engine, prepared)
        seconds["load"] = time.perf_counter() - started
        started = time.perf_counter()
        found = anonymization.anonymize(engine, prepared, work, partial(tell, "search"))
        engine.execute(create_lattice(work("lattice")))
        if (rows := found.lattice_rows()) is not None:
            engine.execute(insert_lattice(work("lattice")), rows)
        seconds["search"] = time.perf_counter() - started
        noised = None
        if noise is not None:
            started = time.perf_counter()
            noised = noise(prepared, found.chosen, lambda open_, done: tell("noise", open_, done, None))
            seconds["noise"] = time.perf_counter() - started
            found = replace(found, chosen=noised.chosen)
        result = Result(run, prepared, found, noised, warnings + found.chosen.warnings, seconds)
        if policy.catalog is not None:
            self._record(policy.catalog.database, engine, prepared, result, work("lattice"))
        return result

    def compare(
        self,
        policy: Policy,
        strategies: Sequence[str] | None = None,
        progress: ComparisonProgress | None = None,
    ) -> duckdb.DuckDBPyRelation:
        """What several strategies find for one policy: a relation, one row a strategy.

        Nothing is published, and nothing is written to the catalog.

        Parameters
        ----------
        policy:
            What is asked; its own strategy counts for nothing.
        strategies:
            The names of the strategies; by default all that can do what the policy asks, ``iab`` only with a
            ``time_limit`` or ``max_checks`` in the policy. Such a limit holds for each of them.
        progress:
            Told the strategy, generalizations open and checked, and its best score so far.

        Returns
        -------
        relation
            With the columns ``strategy``, ``score`` (by the policy's measure), ``loss`` (by the measure of that name,
            whatever the policy's is), ``classes``, ``suppressed_rows``, ``checked``, ``optimal``, ``seconds``, and
            ``error``: why a strategy found nothing, or cannot do what the policy asks; else NULL.

        Raises
        ------
        PolicyError
            A name is no strategy.
        SourceError, HierarchyError
            As of `anonymize`.
        """
        # (So are the others here: `anonymize` does not wait for them.)
        from sqlanon.compare import compare, policies_of, relation_of  # noqa: PLC0415

        tell = progress or (lambda strategy, open_, checked, best: None)
        found = list(compare(self._space.run, policies_of(policy, strategies), tell))
        return self._space.engine.relation(relation_of(found))

    def risk(self, policy: Policy, epsilons: Sequence[float] = (), leakage: int = 3) -> Risk:
        """How risky the policy's source is as it stands: its classes, and what breaks each requirement of the policy.

        What each figure means, and its source: docs/risk.md. Nothing is generalized or left out. The hierarchies of the
        quasi-identifiers are not looked at; but for a policy with noise, the search is made, so that the errors are
        known that noise would make in the classes that it finds.

        Parameters
        ----------
        policy:
            What is asked.
        epsilons:
            The ε, each more than 0, to tell the errors of noise for; default: 0.1 to 4.
        leakage:
            Of sets of up to so many quasi-identifiers; 0 for none.

        Raises
        ------
        PolicyError
            An ε is none, or the policy has no noise.
        SourceError
            The source or the population cannot be read, or does not fit the policy.
        HierarchyError
            The hierarchy of a sensitive attribute, where a requirement needs it, is no tree over its values.
        """
        from sqlanon.risk import assess, assess_noise, refuse_epsilons  # noqa: PLC0415

        refuse_epsilons(policy, epsilons)
        with self._space.run(policy) as run, readable():
            found = assess(run, policy, leakage)
        found = replace(found, _relate=self._space.engine.table_of)
        if not policy.noisy:
            return found
        with self._space.run(policy) as run, readable():
            return replace(found, noise=assess_noise(run, policy, epsilons))

    def risk_sql(self, policy: Policy, leakage: int = 3) -> str:
        """The statements behind `risk`, each with a semicolon; they are not run.

        What one of them needs of the answers before it is shown with an example: a sensitive attribute of two values.
        Of a policy with noise, the search is that of `plan`, and only what comes after it is shown here.

        Raises
        ------
        SourceError, HierarchyError
            As of `risk`, as far as the schema and hierarchy files tell.
        """
        from sqlanon.risk import risk_statements  # noqa: PLC0415

        run = self._space.run(policy, read=False)  # its views stay: the statements name them
        return risk_statements(run, policy, leakage)

    def row_risks(self, policy: Policy) -> duckdb.DuckDBPyRelation:
        """The rows of the source with their risks, as a lazy relation: it is worked out when it is read.

        Returns
        -------
        relation
            The source's columns, and ``class_size`` (rows), ``prosecutor`` (1 / rows, or persons), with weights or a
            sampling fraction ``individual``, and with households ``household_risk``.

        Raises
        ------
        SourceError
            As of `risk`.
        """
        from sqlanon.risk import row_risks  # noqa: PLC0415

        run = self._space.run(policy, read=False)  # its views stay: the relation names them
        return run.engine.relation(row_risks(run, policy))

    def uniques_matrix(self, policy: Policy, first: str, second: str) -> UniquesMatrix:
        """How many rows are unique at each level of the hierarchies of two quasi-identifiers, the others at level 0.

        Raises
        ------
        PolicyError
            One of the two is no quasi-identifier with a hierarchy.
        SourceError, HierarchyError
            As of `anonymize`, for the hierarchies of these two.
        """
        from sqlanon.risk import uniques_matrix  # noqa: PLC0415

        with self._space.run(policy) as run, readable():
            return uniques_matrix(run, policy, first, second)

    def uniques_matrix_sql(self, policy: Policy, first: str, second: str) -> str:
        """The statements behind `uniques_matrix`, each with a semicolon; they are not run.

        Raises
        ------
        PolicyError, SourceError, HierarchyError
            As of `uniques_matrix`, as far as the schema and hierarchy files tell.
        """
        from sqlanon.risk import uniques_matrix  # noqa: PLC0415

        run, shown = self._space.run(policy, read=False), list[str]()
        uniques_matrix(run, policy, first, second, shown)
        return "\n\n".join(f"{statement};" for statement in shown)

    def plan(self, policy: Policy) -> Plan:
        """The stages of `anonymize` and their SQL, from the schema and the hierarchy files alone: reads no rows.

        Raises
        ------
        SourceError
            The source's schema cannot be read, or does not fit the policy.
        """
        from sqlanon.plan import plan  # noqa: PLC0415

        run = self._space.run(policy, read=False)  # its views stay: the statements name them
        return plan(run, policy)

    def verify(self, release: str | os.PathLike[str], policy: Policy) -> Verification:
        """Check a release by itself, and against its source: recoded again, the source must give the same rows.

        Raises
        ------
        ReleaseError
            There is no release at that path.
        SourceError, HierarchyError, InfeasibleError
            The source does not fit the policy.
        """
        from sqlanon.against_source import check_against_source  # noqa: PLC0415

        found = verify_file(Path(release).absolute(), limits=self._space.limits)
        with self._space.run(policy) as run, readable():
            prepared = prepare(run.engine, policy, run.source, run.work, run.population)
            checks = check_against_source(run, prepared, found)
        return replace(found, checks=(*found.checks, *checks))

    def close(self) -> None:
        """Let go of the source, and of everything that was made beside it."""
        self._space.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self._space.described!r})"

    @staticmethod
    def _warnings(engine: DuckDBEngine, prepared: Prepared) -> tuple[str, ...]:
        noisy = prepared.columns.noisy
        names = [column.name for column in prepared.released if column.quasi is None and column.name not in noisy]
        if not names:
            return ()
        counts = engine.rows(distinct_counts(prepared.source.relation, names))[0]
        return tuple(
            f"column {name!r} is nearly unique: its values re-identify people by themselves; make it identifying, "
            "or a quasi-identifier"
            for name in nearly_unique(names, counts)
        )

    @staticmethod
    def _record(path: Path, engine: DuckDBEngine, prepared: Prepared, result: Result, lattice: exp.Table) -> None:
        policy_hash, now = prepared.policy.fingerprint(), utc_now()
        tree = prepared.policy.model_dump(mode="json")
        rules = {name: attribute["hierarchy"] for name, attribute in tree["attributes"].items()}
        with catalog.open_catalog(engine, path):
            catalog.insert(engine, "runs", result.to_catalog())
            catalog.store_lattice(engine, result.run_id, lattice)
            catalog.store_hierarchies(engine, policy_hash, rules, prepared.hierarchies, now)
