"""`Database`: what a user holds. Its methods are the verbs, each a few lines over the parts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb
from sqlglot import exp

from sqlanon import catalog
from sqlanon import pipeline as anonymization
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import PolicyError, Problem, ReleaseError
from sqlanon.ledger import based_on_earlier, check_against_ledger, publication_of
from sqlanon.looking import Looking
from sqlanon.policy import Policy, is_server
from sqlanon.publishing import refuse_types_of
from sqlanon.release.anywhere import spot_of, verify_anywhere
from sqlanon.release.targets.file import utc_now
from sqlanon.release.verify import Verification
from sqlanon.result import Result
from sqlanon.risk.narrowing import narrowing_columns, refused
from sqlanon.search.lattice_rows import create_lattice, insert_lattice
from sqlanon.search.preparation import Prepared, unique_columns, unique_warnings
from sqlanon.sources import readable
from sqlanon.sources.workspace import Workspace
from sqlanon.statement_runner import Steps
from sqlanon.viewing import Viewing

if TYPE_CHECKING:
    import pyarrow

    from sqlanon.compare import ComparisonProgress
    from sqlanon.extend import Extension
    from sqlanon.stages import Plan

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
        A DuckDB file, opened read-only; a Parquet or CSV file or a pattern of them; a live duckdb connection, beside
        which another is opened to the same databases: temporary macros and settings count for the user's own queries
        alone; an Arrow table or stream; a Spark session, classic or Connect, or where Spark is, ``"sc://host:port"`` or
        a master such as ``"local[2]"``. Without one, each policy's ``[source]`` says where.
        With one, it takes the place of the ``database`` and ``files`` of the policies; Spark, of ``database``.
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


class Database(Looking, Viewing):
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
        run = self._space.run(policy, counted=True)
        refuse_types_of(policy, run.source)
        engine, work = run.engine, run.work
        with readable():
            noise = None
            if policy.noisy:  # what needs no noise does not wait for what draws it
                from sqlanon.noise.drawer import drawer  # noqa: PLC0415  (who does not ask for it does not wait for it)

                noise = drawer(run, policy)
            prepared = based_on_earlier(run, policy)
            unique = unique_columns(engine, prepared)
            warnings = unique_warnings(prepared, unique)
        seconds["load"] = time.perf_counter() - started
        started = time.perf_counter()
        found = anonymization.anonymize(engine, prepared, work, partial(tell, "search"))
        engine.execute(create_lattice(work("lattice")))
        if (rows := found.lattice_rows()) is not None:
            engine.execute(insert_lattice(work("lattice")), rows)
        levels = found.chosen.generalization
        dependencies, narrowed = narrowing_columns(engine, work, prepared, found.chosen.recoding, levels)
        refusals = refused(prepared, levels, dependencies, unique)
        seconds["search"] = time.perf_counter() - started
        noised = None
        if noise is not None:
            started = time.perf_counter()
            noised = noise(prepared, found.chosen, lambda open_, done: tell("noise", open_, done, None))
            seconds["noise"] = time.perf_counter() - started
            found = replace(found, chosen=noised.chosen)
        filled = None
        if policy.decoys:
            from sqlanon.decoys import fill  # noqa: PLC0415  (who does not ask for it does not wait for it)

            started = time.perf_counter()
            filled = fill(Steps(engine), prepared, found, work)
            seconds["decoys"] = time.perf_counter() - started
            found = filled.found
        warnings += (*found.chosen.warnings, *narrowed)
        result = Result(run, prepared, found, noised, warnings, seconds, filled, dependencies, refusals)
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
        from sqlanon.compare import compare, policies_of, relation_of  # noqa: PLC0415  (who does not ask for it does not wait for it)

        tell = progress or (lambda strategy, open_, checked, best: None)
        found = list(compare(partial(self._space.run, counted=True), policies_of(policy, strategies), tell))
        return self._space.engine.relation(relation_of(found))

    def extend(self, policy: Policy) -> Extension:
        """What can be added to the policy's release of the rows that its source has got since.

        Released rows keep their values. New rows are generalized as they are; those of a class are added if they
        meet the policy by themselves, and wait otherwise.

        Parameters
        ----------
        policy:
            The one that the release was made by, with ``[source] key``.

        Raises
        ------
        PolicyError
            The policy has no key, or asks for what an extended release cannot keep.
        ReleaseError
            There is no release to be extended, or it was made by another policy.
        SourceError, HierarchyError
            The source does not fit the policy; or its values would be labelled in another way than in the release.
        """
        from sqlanon.extend import extend  # noqa: PLC0415  (who does not ask for it does not wait for it)

        run = self._space.run(policy)  # what is found publishes from it
        with readable():
            return extend(run, policy)

    def plan(self, policy: Policy, dialect: str | None = None) -> Plan:
        """The stages of `anonymize` and their SQL, from the schema and the hierarchy files alone: reads no rows.

        Parameters
        ----------
        policy:
            What is asked.
        dialect:
            Of a warehouse that has the policy's table: ``bigquery``, ``databricks``, ``duckdb``, ``postgres``,
            ``snowflake``, ``spark`` or ``trino``. Then the stages are what is run there, from the policy and the
            hierarchy files alone: the source is not looked for.

        Raises
        ------
        SourceError
            The source's schema cannot be read, or does not fit the policy.
        PolicyError
            There is no such dialect; or the policy asks for what cannot be done in a warehouse.
        """
        if dialect is not None:
            from sqlanon.warehouse import plan_for_warehouse  # noqa: PLC0415  (who does not ask for it does not wait for it)

            return plan_for_warehouse(policy, dialect, self._space.engine)
        from sqlanon.plan import plan  # noqa: PLC0415  (who does not ask for it does not wait for it)

        run = self._space.run(policy, read=False, counted=True)  # its views stay: the statements name them
        return plan(run, policy)

    def verify(self, release: Any, policy: Policy, table: str | None = None, sha256: str | None = None) -> Verification:
        """Check a release by itself, and against its source: recoded again, the source must give the same rows.

        The catalog has the SHA-256 of the files that were published: a file that it knows must be as it was.

        Parameters
        ----------
        release:
            Its file; or where it is in PostgreSQL or in Spark: ``postgresql://...``, an address such as
            ``sc://host:port``, ``env:NAME``, or a session of Spark.
        policy:
            The one that it was made by.
        table:
            Where it is no file its name, ``schema.name``.
        sha256:
            What the SHA-256 of its file should be, such as `Release.sha256`.

        Raises
        ------
        ReleaseError
            There is no release at that place; or it has noise or decoys, and is no file; or ``sha256`` is no SHA-256.
        SourceError, HierarchyError, InfeasibleError
            The source does not fit the policy.
        """
        from sqlanon.against_source import check_against_source, check_extended  # noqa: PLC0415  (who does not ask for it does not wait for it)

        spot = spot_of(release, table)
        found = verify_anywhere(release, table, self._space.limits, sha256)
        if not found.is_file and (policy.noisy or policy.decoys):
            raise ReleaseError("a release with noise or decoys is held against its source as a file: publish it to one")
        with self._space.run(policy, counted=True) as run, readable():
            recorded = check_against_ledger(run.engine, policy, found)
            known = publication_of(run.engine, policy, found)
            if known is not None and known.extends is not None:
                checks = check_extended(run, policy, found, known, spot)
            else:
                prepared = based_on_earlier(run, policy, None if known is None else known.after)
                checks = check_against_source(run, prepared, found, spot)
            checks += recorded
        return replace(found, checks=(*found.checks, *checks))

    def report(
        self,
        of: Policy | str | os.PathLike[str],
        path: str | os.PathLike[str],
        private: bool = False,
        policy: Policy | None = None,
        strategies: Sequence[str] | None = (),
        progress: StageProgress | None = None,
    ) -> bool:
        """Write a page for people: what was asked, whether it holds, and what happened to each column.

        One HTML file that needs nothing else; it needs ``pip install 'sqlanon[report]'``. It shows no more than the
        release does, and what is in fewer than k rows not at all; unless it is private.

        Parameters
        ----------
        of:
            A release file; or a policy: then what would be released is found, and nothing is published.
        path:
            The page; it ends in ``.html``.
        private:
            Of a policy: whether the page shows the source and the search, too. It says so on every page.
        policy:
            Of a release: its policy, so that what needs the source is checked as well.
        strategies:
            Of a private page: those to compare; None: all that can do what is asked.
        progress:
            Told what is going on, of a policy.

        Returns
        -------
        bool
            Whether no check failed.

        Raises
        ------
        MissingLibraryError
            The libraries that draw are missing.
        PolicyError
            What is asked does not fit together.
        ReleaseError
            There is no release, or it is in PostgreSQL or in Spark; or the page cannot be written.
        SourceError, HierarchyError, InfeasibleError
            As of `anonymize`.
        """
        from sqlanon.report import refuse_without_charts, report_of_release, target_of  # noqa: PLC0415  (who does not ask for it does not wait for it)

        _refuse_report(of, private, policy, strategies)
        if not isinstance(of, Policy) and is_server(os.fspath(of)):
            raise ReleaseError("a page is made of a file: publish the release to one, too, or give its policy")
        target = target_of(path)
        refuse_without_charts()
        if not isinstance(of, Policy):
            release = Path(of).absolute()
            found = None if policy is None else self.verify(release, policy)
            return report_of_release(release, target, found, self._space.limits)
        result = self.anonymize(of, progress)
        compared = self.compare(of, strategies) if strategies is None or strategies else None
        return result.report(target, private, compared)

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
    def _record(path: Path, engine: DuckDBEngine, prepared: Prepared, result: Result, lattice: exp.Table) -> None:
        policy_hash, now = prepared.policy.fingerprint(), utc_now()
        tree = prepared.policy.model_dump(mode="json")
        rules = {name: attribute["hierarchy"] for name, attribute in tree["attributes"].items()}
        with catalog.open_catalog(engine, path):
            catalog.insert(engine, "runs", result.to_catalog())
            catalog.store_lattice(engine, result.run_id, lattice)
            own = [one for one in prepared.hierarchies if one.attribute in rules]
            catalog.store_hierarchies(engine, policy_hash, rules, own, now)
            if (decoys := result.decoy_query()) is not None:
                catalog.store_decoys(engine, result.run_id, decoys, now)


def _refuse_report(
    of: Policy | str | os.PathLike[str], private: bool, policy: Policy | None, strategies: Sequence[str] | None
) -> None:
    """Refuse what does not fit together.

    Raises
    ------
    PolicyError
        With all of it.
    """
    compares, problems = strategies is None or bool(strategies), []
    if isinstance(of, Policy):
        if policy is not None:
            problems.append(Problem("policy", "is for a release: of a policy, leave it out"))
        if compares and not private:
            problems.append(Problem("compare", "tells of the source: only a private page shows it"))
    else:
        if private:
            problems.append(Problem("private", "a release alone shows nothing private: give its policy in its place"))
        if compares:
            problems.append(Problem("compare", "is for a policy: a release does not tell how it was found"))
    if problems:
        raise PolicyError(problems)
