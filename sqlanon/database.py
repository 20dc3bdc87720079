"""`connect` and `Database`: a source, and the verbs that read it. Each is a few lines over the pipeline."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, overload

import duckdb
from sqlglot import exp

from sqlanon import pipeline
from sqlanon.audit.verification import Verification
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import PolicyError, Problem, ReleaseError, SourceError
from sqlanon.places.addresses import is_server
from sqlanon.policy import Policy
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.settings import read_csv_keys
from sqlanon.publish.targets.base import release_location
from sqlanon.result import Comparison, Result
from sqlanon.sources import source_errors
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice.lattice import ignore_progress
from sqlanon.support.toml import toml_value

if TYPE_CHECKING:
    import polars
    import pyarrow

    from sqlanon.engines.statement_runner import Plan
    from sqlanon.ledger.growth.extend import Extension
    from sqlanon.linked.anonymize import LinkedResult
    from sqlanon.linked.attacks.risk import LinkedRisk
    from sqlanon.linked.release.verification import LinkedVerification
    from sqlanon.live import LiveView
    from sqlanon.pipeline import StageProgress
    from sqlanon.report.facts import ReportFacts
    from sqlanon.risk import Risk, UniquesMatrix, ValueLeakage
    from sqlanon.risk.suda import Suda
    from sqlanon.sources.files.inspection import Inspection
    from sqlanon.strategies.compare import ComparisonProgress
    from sqlanon.suggest import Suggestion, Trial
    from sqlanon.withdrawal import Withdrawal


class ArrowStream(Protocol):
    """The Arrow C stream interface of data frames, Arrow tables and streams, and relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return an Arrow stream, as a PyCapsule."""


Frame: TypeAlias = "ArrowStream | pyarrow.Table | pyarrow.RecordBatchReader | polars.LazyFrame"
Connectable: TypeAlias = "str | os.PathLike[str] | duckdb.DuckDBPyConnection | Frame | None"


def connect(source: Connectable = None, *, memory_limit: str | None = None, threads: int | None = None) -> Database:
    """Open a source: a database, files, or a data frame.

    - A DuckDB file is opened read-only.
    - A Parquet, CSV, JSON, Excel, SPSS, Stata or SAS file, or a pattern, is read in place or copied once. See
      docs/how-to/sources.md for what else DuckDB reads, such as SQLite, ``https://`` or DuckLake.
    - For a DuckDB connection, sqlanon opens a second one to the same database: temporary macros and settings of the
      given connection apply only to the user's own queries.
    - A data frame is copied once to the work database: pandas (without its index; NaN, NaT and NA are NULL), polars,
      also lazy (NaN stays NaN), narwhals, an Arrow table or reader, a DuckDB relation, or any object with
      ``__arrow_c_stream__``.
    - Spark is a session, classic or Connect, or an address: ``"sc://host:port"``, or a master such as ``"local[2]"``.

    Parameters
    ----------
    source:
        One of these. It replaces ``database`` and ``files`` in the ``[source]`` of policies; a Spark session replaces
        ``database``. A policy for a data frame needs no ``[source]``. Default: the ``[source]`` of each policy.
    memory_limit:
        Memory of each engine, such as ``"2GB"``. What does not fit is spilled to a private directory. Results do not
        depend on it. Default: the engine's own limit.
    threads:
        Threads of each engine. Default: all cores.

    Raises
    ------
    SourceError
        The source cannot be opened, or is not one of these; a column of a data frame has a type that cannot be read; a
        setting is invalid; or settings are given with a connection, which has its own.

    Examples
    --------
    >>> import pyarrow
    >>> people = pyarrow.table({"ward": [0, 1, 2] * 3, "age": list(range(9))})
    >>> with connect(people) as db:
    ...     result = db.anonymize(Policy(
    ...         attributes={"ward": {"role": "quasi", "hierarchy": "suppress"},
    ...                     "age": {"role": "quasi", "hierarchy": {"intervals": [3]}}},
    ...         privacy={"k": 3},
    ...     ))
    >>> result.generalization
    {'ward': 0, 'age': 2}
    """
    return Database(source, Limits(memory_limit, threads))


class Database:
    """A source with a private work database. `connect` returns one; it is a context manager.

    Errors of all methods that take a policy: `SourceError` if the source or its population cannot be read or does not
    fit the policy; `HierarchyError`, with all problems, if a hierarchy that the method reads is not a tree over its
    values; and, if the method searches, `InfeasibleError`, with the closest generalization, if no release meets the
    policy. The sections "Raises" list other errors.
    """

    def __init__(self, source: Connectable = None, limits: Limits = NO_LIMITS) -> None:
        self._workspace = Workspace(source, limits)
        self._recorded: list[str] | None = None  # the statements of a dry run

    @overload
    def anonymize(self, policy: LinkedPolicy, progress: StageProgress | None = None) -> LinkedResult: ...

    @overload
    def anonymize(
        self,
        policy: Policy,
        progress: StageProgress | None = None,
        record: bool = True,
        keep_work: str | os.PathLike[str] | None = None,
    ) -> Result: ...

    def anonymize(
        self,
        policy: Policy | LinkedPolicy,
        progress: StageProgress | None = None,
        record: bool = True,
        keep_work: str | os.PathLike[str] | None = None,
    ) -> Result | LinkedResult:
        """Find a version of the source that meets the policy with little loss. Nothing is published.

        The default strategy, ``optimal``, finds the full-domain generalization with the least loss. Before the search
        for several tables, a location of the policy that cannot take their release is refused.

        Parameters
        ----------
        progress:
            Called with the stage (``scan``, ``search``, ``noise``), the numbers of open and checked generalizations,
            and the best score so far.
        record:
            Record the run in the policy's catalog now. Otherwise `Result.publish` records it.
        keep_work:
            A new DuckDB file that keeps the intermediate tables, for queries while debugging: hierarchies, frequency
            sets, the lattice, the suppressed classes. CONTRIBUTING.md lists them. The file is private.
            For policies of one table.

        Raises
        ------
        SourceError
            The file of ``keep_work`` exists.
        ReleaseError
            The policy of several tables names a location that cannot take a release.
        """
        if isinstance(policy, LinkedPolicy):
            if keep_work is not None:
                raise PolicyError([Problem("keep_work", "is for policies of one table: leave it out")], "the arguments")
            from sqlanon.linked.anonymize import anonymize_linked

            return anonymize_linked(self._workspace, policy, progress or ignore_progress)
        _require_policy(policy)
        result = Result(pipeline.anonymize(self._workspace, policy, progress or ignore_progress, keep_work))
        if record:
            result.record()
        return result

    def compare(
        self,
        policy: Policy,
        strategies: Sequence[str] | None = None,
        progress: ComparisonProgress | None = None,
        seconds: float | None = None,
    ) -> Comparison:
        """Run several strategies for one policy: a relation with one row per strategy. Notebooks show it as a table.

        Nothing is published, and nothing is written to the catalog.

        Parameters
        ----------
        policy:
            The policy; its own strategy is ignored.
        strategies:
            The names of the strategies. Default: all that the policy allows; ``iab`` only with a ``time_limit`` or
            ``max_checks`` in the policy, which holds for each strategy.
        progress:
            Called with the strategy, the numbers of open and checked generalizations, and the best score so far.
        seconds:
            The time limit of each strategy. It then shows the best result so far, or an error if it has none. Default:
            no limit; on a large table some strategies take days.

        Returns
        -------
        relation
            With the columns ``strategy``, ``score`` (by the policy's measure), ``loss`` (by the measure of that name,
            whatever the policy's measure is), ``classes``, ``suppressed_rows``, ``checked``, ``optimal`` (among
            full-domain generalizations), ``guarantees_k`` (of all quasi-identifiers together), ``stopped``,
            ``seconds``, ``error`` (the reason if a strategy found nothing or does not support the policy; else NULL),
            and ``suppressed_persons`` (NULL if rows are counted).

        Raises
        ------
        PolicyError
            A name is not a strategy.
        """
        _require_policy(policy)
        if isinstance(strategies, str):
            message = f"must be a list of names, such as [{strategies!r}]"
            raise PolicyError([Problem("strategies", message)], "the arguments")
        from sqlanon.strategies.compare import comparison_query, policies_by_strategy

        policies = policies_by_strategy(policy, strategies)
        rows = list(pipeline.compare(self._workspace, policies, progress or ignore_progress, seconds))
        undecided = next((row.undecided_person for row in rows if row.undecided_person is not None), None)
        relation = self._workspace.engine.relation(comparison_query(rows))
        return Comparison(relation, policy.search.measure, undecided)

    def try_strategies(
        self, policy: Policy, candidates: Mapping[str, Mapping[str, str]] | None = None, seconds: float | None = None
    ) -> list[Trial]:
        """Try several strategies on a sample of a policy's source: at most 25,000 rows, the same ones on every run.

        Nothing is published, and nothing is written to the catalog. `compare` runs strategies on the whole source.

        Parameters
        ----------
        policy:
            The policy; its own strategy is ignored, and the suppression limit is the same share of the sample.
        candidates:
            The keys of ``[search]`` of each candidate, by a name that you choose; default: ``optimal``, ``mondrian``
            with ranges and with sets, ``subtree``, ``local``, and ``optimal`` with cells.
        seconds:
            The time limit of all candidates together, by default 30; each may use an equal share of it.

        Returns
        -------
        list of Trial
            In the order of the candidates: ``name``, ``search``, ``loss`` (the measure of that name), ``count_error``
            (the average error of typical counts from the release), ``fully_suppressed`` (attributes), ``rows`` and
            ``suppressed_rows`` of the sample, ``seconds``, and ``error``: the reason if a strategy found nothing, or
            None.
        """
        _require_policy(policy)
        from sqlanon.policy.strategies import SUGGESTED_SEARCHES
        from sqlanon.suggest import try_strategies

        begin = partial(self._workspace.run, counted=True)
        return try_strategies(begin, policy, SUGGESTED_SEARCHES if candidates is None else candidates, seconds)

    def extend(self, policy: Policy) -> Extension:
        """Find the new rows of the source that can be added to the policy's release.

        Released rows keep their values. New rows are generalized in the same way. The new rows of a class are added if
        they meet the policy by themselves; otherwise they wait.

        Parameters
        ----------
        policy:
            The policy of the release, with ``[source] key``.

        Raises
        ------
        PolicyError
            The policy has no key, or has parts that an extended release does not support.
        ReleaseError
            There is no release to extend, or it has another policy.
        SourceError, HierarchyError
            The source does not fit the policy, or its values would get other labels than in the release.
        """
        _require_policy(policy)
        return pipeline.extend(self._workspace, policy)

    def withdraw(self, policy: Policy, progress: StageProgress | None = None) -> Withdrawal:
        """Make the policy's release again without the rows that have left its source, such as those of erased persons.

        The rows that stay have the same generalization, and classes that are too small without the others are
        suppressed. If that does not meet the policy, a coarser generalization is searched. Rows that are new in the
        source are left to `extend`. Nothing is published.

        Parameters
        ----------
        policy:
            The policy of the release.
        progress:
            Called as in `anonymize`.

        Raises
        ------
        PolicyError
            The policy has no catalog or no release location.
        ReleaseError
            There is no release at that location, it was changed, or it has another policy.
        SourceError, HierarchyError
            The source does not fit the policy, or its values would get other labels than in the release.
        """
        _require_policy(policy)
        from sqlanon.withdrawal import withdraw

        return withdraw(self._workspace, policy, progress or ignore_progress)

    def plan(self, policy: Policy | LinkedPolicy, dialect: str | None = None) -> Plan:
        """List the stages of `anonymize` with their SQL. It reads the schema and the hierarchy files, and no rows.

        Parameters
        ----------
        dialect:
            The dialect of a warehouse: ``bigquery``, ``databricks``, ``duckdb``, ``postgres``, ``snowflake``, ``spark``
            or ``trino``. The plan then has the statements for the warehouse, and reads only the policy and the
            hierarchy files.

        Raises
        ------
        PolicyError
            The dialect is unknown, or the policy has parts that a warehouse does not support.
        """
        if isinstance(policy, LinkedPolicy):
            from sqlanon.linked.plan import plan_linked

            if dialect is not None:
                raise PolicyError([Problem("dialect", "is for policies of one table: leave it out")], "the arguments")
            return plan_linked(self._workspace, policy)
        _require_policy(policy)
        if dialect is not None:
            from sqlanon.warehouse import plan_for_warehouse

            return plan_for_warehouse(policy, dialect, self._workspace.engine)
        return pipeline.plan(self._workspace, policy)

    @overload
    def verify(self, release: Any, policy: LinkedPolicy, table: str | None = None) -> LinkedVerification: ...

    @overload
    def verify(
        self, release: Any, policy: Policy, table: str | None = None, sha256: str | None = None
    ) -> Verification: ...

    def verify(
        self, release: Any, policy: Policy | LinkedPolicy, table: str | None = None, sha256: str | None = None
    ) -> Verification | LinkedVerification:
        """Verify a release by itself and against its source: the source, recoded again, must give the same rows.

        If the catalog has the SHA-256 of the file, the file must be unchanged.

        Parameters
        ----------
        release:
            A file; or the location of a release in PostgreSQL or Spark: ``postgresql://...``, ``sc://host:port``,
            ``env:NAME``, or a Spark session.
        policy:
            The policy of the release.
        table:
            The name of a release that is not a file, as ``schema.name``; the schema of a release of several tables.
        sha256:
            The SHA-256 that the file should have, such as `Release.sha256`. For releases of one table.

        Raises
        ------
        ReleaseError
            There is no release of the policy's kind at that location; it has noise or decoys and is not a file; or
            ``sha256`` is not a SHA-256.
        """
        if isinstance(policy, LinkedPolicy):
            from sqlanon.linked.source_verification import verify_named

            return verify_named(self._workspace, policy, release, table)
        _require_policy(policy)
        from sqlanon.source_verification import verify

        return verify(self._workspace, policy, release_location(release, table), sha256)

    def report(
        self,
        of: Policy | str | os.PathLike[str],
        path: str | os.PathLike[str],
        private: bool = False,
        policy: Policy | None = None,
        strategies: Sequence[str] | None = (),
        progress: StageProgress | None = None,
    ) -> bool:
        """Write a report for people: residual risks, whether the policy holds, and the transformation of each column.

        The report is one HTML file without links to others. It shows no more than the release does, and no value of
        fewer than k rows, unless it is private. It needs ``pip install '.[report]'``.

        Parameters
        ----------
        of:
            A release file; or a policy, for a report before anything is published.
        path:
            The file of the report, ending in ``.html``.
        private:
            With a policy: show the source and the search, too. Every page says so.
        policy:
            With a release: its policy, for the checks that need the source.
        strategies:
            In a private report: the strategies to compare. None: all that the policy allows.
        progress:
            With a policy: called as in `anonymize`.

        Returns
        -------
        bool
            Whether all checks passed.

        Raises
        ------
        MissingLibraryError
            ``pip install '.[report]'`` is needed.
        PolicyError
            Options cannot be combined.
        ReleaseError
            There is no release, or it is in PostgreSQL or Spark; or the report cannot be written.
        """
        return self._write_report(of, path, private, policy, strategies, progress).is_verified

    def _write_report(
        self,
        of: Policy | str | os.PathLike[str],
        path: str | os.PathLike[str],
        private: bool,
        policy: Policy | None,
        strategies: Sequence[str] | None,
        progress: StageProgress | None,
    ) -> ReportFacts:
        from sqlanon.report import check_target, refuse_without_charts, report_release

        _refuse_report(of, private, policy, strategies)
        if not isinstance(of, Policy) and is_server(os.fspath(of)):
            raise ReleaseError("a report needs a release file: publish the release to a file, too, or give its policy")
        target = check_target(path)
        refuse_without_charts()
        if not isinstance(of, Policy):
            release = Path(of).absolute()
            verification = None if policy is None else self.verify(release, policy)
            about = None if policy is None else policy.about
            return report_release(release, target, verification, self._workspace.limits, about)
        result = self.anonymize(of, progress, record=False)
        comparison = self.compare(of, strategies).relation if strategies is None or strategies else None
        return result._write_report(target, private, comparison)

    @overload
    def risk(self, policy: LinkedPolicy) -> LinkedRisk: ...

    @overload
    def risk(
        self, policy: Policy, epsilons: Sequence[float] = (), leakage: int = 3, leakage_seconds: float | None = None
    ) -> Risk: ...

    def risk(
        self,
        policy: Policy | LinkedPolicy,
        epsilons: Sequence[float] = (),
        leakage: int = 3,
        leakage_seconds: float | None = None,
    ) -> Risk | LinkedRisk:
        """Measure the risk of the unprotected source: its classes, and the rows that break each requirement.

        Nothing is generalized or suppressed, and hierarchies of quasi-identifiers are not read. With noise in the
        policy, the search runs, to estimate the errors of noise in its classes. docs/explanation/risk.md explains each
        figure.

        With a policy of several tables, the figures count the persons who are singled out by their quasi-identifiers
        and 1, 2 or all of their rows in each child table. The other parameters do not apply then.

        Parameters
        ----------
        epsilons:
            Values of ε to estimate the errors of noise for, each more than 0. Default: 0.1 to 4.
        leakage:
            The size of the largest sets of quasi-identifiers to measure leakage for; 0: none.
        leakage_seconds:
            Seconds to measure larger sets for, once all sets of up to that size are measured: highest leakage first.
            `Risk.leakage_search` says how many sets there are, and how many were measured. Default: no larger sets.

        Raises
        ------
        PolicyError
            An ε, `leakage` or `leakage_seconds` is out of range, the policy has no noise, or a prior is wrong. The
            error lists all mistakes.
        """
        if isinstance(policy, LinkedPolicy):
            from sqlanon.linked.attacks.risk import assess_linked_risk

            with source_errors():
                return assess_linked_risk(self._workspace, policy)
        _require_policy(policy)
        from sqlanon.risk import refuse_epsilons

        refuse_epsilons(policy, epsilons)
        _refuse_leakage(leakage, leakage_seconds)
        risk = pipeline.risk(self._workspace, policy, epsilons, leakage, leakage_seconds)
        return replace(risk, _relate=self._workspace.engine.table_of)

    def risk_sql(self, policy: Policy, leakage: int = 3) -> str:
        """The statements that `risk` runs, each with a semicolon. They are not run, and no row is read.

        Statements that depend on results of earlier ones have an example: a sensitive attribute with two values. With
        noise in the policy, the statements of the search are those of `plan`, and are omitted.
        """
        from sqlanon.risk import assess_risk

        return self._record(lambda: assess_risk(*self._begin(policy), policy, leakage))

    def row_risks(self, policy: Policy) -> duckdb.DuckDBPyRelation:
        """The rows of the source with their risks, as a lazy relation: it is computed when it is read.

        If the policy has the size of the population, the rows (or persons) of the source are counted now.

        Returns
        -------
        relation
            The columns of the source, ``class_size`` (rows) and ``prosecutor`` (1 / rows, or persons); ``individual``
            with weights, the population's size or the sampling fraction; ``household_risk`` with households.
        """
        from sqlanon.risk import row_risks

        _, run = self._begin(policy)
        with source_errors():
            return run.engine.relation(row_risks(run, policy))

    def uniques_matrix(self, policy: Policy, first: str, second: str) -> UniquesMatrix:
        """Count the unique rows at each pair of levels of two quasi-identifiers, with the others at level 0.

        With ``[population]``, it also counts the combinations of quasi-identifiers that a single row (or person) of the
        population has, and the rows of the source with such a combination.

        Raises
        ------
        PolicyError
            One of the two is not a quasi-identifier with a hierarchy.
        """
        from sqlanon.risk import count_uniques_by_level

        runner, run = self._begin(policy)
        with nullcontext() if runner.dry else run, source_errors():
            return count_uniques_by_level(runner, run, policy, first, second)

    def uniques_matrix_sql(self, policy: Policy, first: str, second: str) -> str:
        """The statements that `uniques_matrix` runs, each with a semicolon. They are not run, and no row is read."""
        return self._record(lambda: self.uniques_matrix(policy, first, second))

    def value_leakage(self, policy: Policy, attribute: str) -> ValueLeakage:
        """Measure how much each value of a quasi-identifier reveals to an attacker, at each level of its hierarchy.

        Parameters
        ----------
        policy:
            The policy. Only its source, this attribute and the priors matter.
        attribute:
            A quasi-identifier with a hierarchy.

        Returns
        -------
        ValueLeakage
            With ``bits`` (needed to find a row); ``levels``: for each, its ``level``, the number of ``values``,
            the mean ``gain`` in bits and ``normalized``, the ``highest`` gain, and the ten ``most_leaking`` values; and
            ``values``, a relation of all values of all levels: ``level``, ``value``, ``count``, ``share``, ``gain``.

        Raises
        ------
        PolicyError
            It is not a quasi-identifier with a hierarchy, or a prior is wrong.

        Examples
        --------
        >>> import duckdb, sqlanon
        >>> connection = duckdb.connect()
        >>> _ = connection.execute("CREATE TABLE people AS SELECT if(i < 27, 'F', 'M') AS sex FROM range(60) AS t(i)")
        >>> policy = sqlanon.Policy(
        ...     source={"table": "people"},
        ...     attributes={"sex": {"role": "quasi", "hierarchy": "suppress"}},
        ...     privacy={"k": 2},
        ... )
        >>> with sqlanon.connect(connection) as db:
        ...     leakage = db.value_leakage(policy, "sex")
        ...     leakage.values.project("level, value, count, round(gain, 4)").fetchall()
        [(0, 'F', 27, 1.152), (0, 'M', 33, 0.8625), (1, '*', 60, 0.0)]
        >>> [round(level.gain, 4) for level in leakage.levels]
        [0.9928, 0.0]
        """
        from sqlanon.risk import measure_value_leakage

        runner, run = self._begin(policy)
        with source_errors():
            return measure_value_leakage(runner, run, policy, attribute)

    def value_leakage_sql(self, policy: Policy, attribute: str) -> str:
        """The statements that `value_leakage` runs, each with a semicolon. They are not run, and no row is read."""
        return self._record(lambda: self.value_leakage(policy, attribute))

    def suda(self, policy: Policy, size: int | None = None, fraction: float | None = None) -> Suda:
        """Find special uniques (SUDA): rows that a few of their quasi-identifiers single out.

        Parameters
        ----------
        policy:
            The policy. Only its source, quasi-identifiers and population matter.
        size:
            The maximum number of attributes of a minimal sample unique. The work grows with the number of sets of that
            size. Default: all attributes.
        fraction:
            The sampling fraction, for DIS. Default: the policy's (``[risk]``, else that of
            ``privacy.population_uniqueness``: ``sampling_fraction``, or rows / ``population``); without one 0.01, as in
            sdcMicro.

        Raises
        ------
        PolicyError
            The size or the fraction is out of range, or there are too many sets of that size.
        SourceError
            The source has more than the population.
        """
        _require_policy(policy)
        from sqlanon.risk.suda import find_special_uniques, refuse_suda_settings

        refuse_suda_settings(policy, size, fraction)
        runner, run = self._begin(policy)
        with source_errors():
            return find_special_uniques(runner, run, policy, size, fraction)

    def suda_sql(self, policy: Policy, size: int | None = None, fraction: float | None = None) -> str:
        """The statements that `suda` runs, each with a semicolon. They are not run, and no row is read."""
        return self._record(lambda: self.suda(policy, size, fraction))

    def distinction(self, table: str | Policy | None = None, size: int = 3) -> duckdb.DuckDBPyRelation:
        """Measure how well sets of columns distinguish rows, to find quasi-identifiers; a relation with a row per set.

        Parameters
        ----------
        table:
            A table (its columns that are not nested), or a policy (its quasi-identifiers). Not needed for files and
            data frames.
        size:
            The maximum number of columns of a set.

        Returns
        -------
        relation
            With the columns ``attributes`` (a list of names), ``size``, ``distinct`` (combinations of their values),
            ``rows``, ``distinction`` (distinct / rows; NULL without rows) and ``separation`` (the share of pairs of
            rows that differ in them; NULL with fewer than two rows). Source: R. Motwani, Y. Xu, "Efficient algorithms
            for masking and finding quasi-identifiers" (2007).

        Raises
        ------
        PolicyError
            The size is less than 1, or there are too many sets of that size.

        Examples
        --------
        >>> import duckdb, sqlanon
        >>> connection = duckdb.connect()
        >>> _ = connection.execute("CREATE TABLE people AS SELECT i % 2 AS sex, i % 3 AS ward FROM range(6) AS t(i)")
        >>> with sqlanon.connect(connection) as db:
        ...     db.distinction("people", size=2).project("attributes, distinction, separation").fetchall()
        [(['sex'], 0.3333333333333333, 0.6), (['ward'], 0.5, 0.8), (['sex', 'ward'], 1.0, 1.0)]
        """
        run, query = self._find_distinction(table, size)
        return run.engine.relation(query)

    def distinction_sql(self, table: str | Policy | None = None, size: int = 3) -> str:
        """The statements that `distinction` runs, each with a semicolon. They are not run, and no row is read."""
        return self._record(lambda: self._find_distinction(table, size))

    def _find_distinction(self, table: str | Policy | None, size: int) -> tuple[Run, exp.Select]:
        from sqlanon.suggest import Location, find_distinction, refuse_size

        refuse_size(size)
        policy = table if isinstance(table, Policy) else None
        runner, run = self._begin(Location(table).binding_policy() if not isinstance(table, Policy) else table)
        with source_errors():
            return run, find_distinction(runner, run, policy, size)

    def _begin(self, policy: Policy) -> tuple[StatementRunner, Run]:
        """Begin a run that stays open, because relations read its tables and recorded statements name its views."""
        _require_policy(policy)
        run = self._workspace.run(policy, read=self._recorded is None)
        return StatementRunner(run.engine, self._recorded), run

    def _record(self, measure: Callable[[], object]) -> str:
        """The statements of a measurement, from a dry run."""
        self._recorded = []
        try:
            measure()
            return "\n\n".join(f"{statement};" for statement in self._recorded)
        finally:
            self._recorded = None

    def inspect(
        self,
        table: str | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        csv: Mapping[str, object] | None = None,
    ) -> Inspection:
        """Show how `anonymize` reads files. Nothing is written.

        Parameters
        ----------
        table:
            A sheet of an Excel file, or a range of cells, ``Patients!A3:F``. Default: its only sheet with values.
        files:
            Files of one table, or patterns of them, if `connect` was given no source.
        csv:
            The format of CSV files: keys of ``[source.csv]``. Default: it is detected.

        Returns
        -------
        Inspection
            The format of each CSV file, the rows, the columns with their types, and keys for a policy. For files that
            are refused, the ``refusal`` and what their first lines show.

        Raises
        ------
        PolicyError
            ``csv`` has an unknown key or a wrong value.
        SourceError
            The source has no files, or files other than CSV that cannot be read.

        Examples
        --------
        >>> import pathlib, sqlanon, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> file = pathlib.Path(folder.name, "people.csv")
        >>> _ = file.write_text("age;sex\\n21;m\\n53;w\\n")
        >>> with sqlanon.connect(file) as db:
        ...     inspection = db.inspect()
        >>> inspection.rows, [column.type for column in inspection.columns], inspection.files[0].delimiter
        (2, ['BIGINT', 'VARCHAR'], ';')
        >>> folder.cleanup()
        """
        from sqlanon.sources.files.binding import find_csv_files
        from sqlanon.sources.files.inspection import inspect_refused, inspect_source
        from sqlanon.sources.files.statistics_files import UndecidedReadingError
        from sqlanon.suggest import Location

        paths = self._resolve_files(files)
        if not paths:
            raise SourceError(
                f"{self._workspace.description}: only files can be inspected, but this is not a file; see `suggest`"
            )
        reading: dict[str, object] = {} if csv is None else {"csv": read_csv_keys(csv)}
        undecided: list[str] = []
        while True:
            location = Location(None, files=paths, reading=reading | ({} if table is None else {"table": table}))
            policy = location.binding_policy()
            try:
                with source_errors(), self._workspace.run(policy) as run:
                    inspection = inspect_source(run.engine, run.source, policy.source.csv)
                return replace(inspection, undecided=(*undecided, *inspection.undecided))
            except UndecidedReadingError as error:
                assumed = ", ".join(f"{key} = {toml_value(value)}" for key, value in error.proposal.items())
                undecided.append(f"{error}. Assumed for this inspection: {assumed}")
                reading = {**reading, **error.proposal}
            except SourceError as error:
                csv_files = find_csv_files(self._workspace.engine, policy.source)
                if not csv_files:
                    raise
                return inspect_refused(csv_files, policy.source.csv, str(error))

    def _resolve_files(self, files: Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
        """The absolute paths of these files, or those of `connect`."""
        if files and self._workspace.has_source:
            raise SourceError(
                f"files are given, but {self!r} already has a source: connect without one, or leave out files"
            )
        return tuple(str(Path(file).absolute()) for file in files) or self._workspace.connected_section.get("files", ())

    def suggest(
        self,
        table: str | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        folder: str | os.PathLike[str] | None = None,
        hierarchies: str | os.PathLike[str] | None = None,
        csv: Mapping[str, object] | None = None,
        person: str | None = None,
    ) -> str:
        """A policy to start from: the commented text of a TOML file.

        Each column gets a role, and each quasi-identifier a hierarchy for its type, from the name, type and values of
        the column; comments give the reasons. Several strategies are tried on a sample (see `try_strategies`), and the
        policy names the best one.

        Parameters
        ----------
        table:
            A table. Not needed for files and data frames. Without it, a DuckDB file gets a policy of all its tables
            about the same persons, as `LinkedPolicy` reads it.
        files:
            Files of one table, or patterns of them, if `connect` was given no source; or a folder whose files are
            tables about the same persons.
        folder:
            The folder of the policy file; its paths are relative to it. Default: they are absolute.
        hierarchies:
            A folder for hierarchy files that you can edit: ``hierarchy_COLUMN.csv`` for each column of texts. It is
            created if missing; existing files are used and never replaced. The files are private: they have the values
            of the table.
        csv:
            The format of CSV files: keys of ``[source.csv]``, which the policy has, too. Default: it is detected.
        person:
            The table with one row for each person, if there are several tables. Default: it is detected.

        Raises
        ------
        PolicyError
            ``csv`` has an unknown key or a wrong value, or ``person`` is not a table.
        SourceError
            The table cannot be found or read; files are given although there is a source; or several tables have no
            column in common that links them.
        """
        return self._suggest(table, files, folder, hierarchies, csv, person).text

    def _suggest(
        self,
        table: str | None,
        files: Sequence[str | os.PathLike[str]],
        folder: str | os.PathLike[str] | None,
        hierarchies: str | os.PathLike[str] | None,
        csv: Mapping[str, object] | None,
        person: str | None = None,
    ) -> Suggestion:
        from sqlanon.suggest import Location, is_of_tables, suggest, suggest_tables

        database, paths = self._workspace.connected_section.get("database"), self._resolve_files(files)
        policy_folder, files_folder = (
            None if path is None else Path(path).absolute() for path in (folder, hierarchies)
        )
        reading = {} if csv is None else {"csv": read_csv_keys(csv)}
        if reading and not paths:
            raise SourceError("source.csv: applies to CSV files, and the source is none: leave it out")
        with source_errors():
            location = Location(table, database, paths, policy_folder, files_folder, reading=reading)
            if is_of_tables(location):
                return suggest_tables(self._workspace.run, location, person)
            if person is not None:
                message = "is for a database or folder of several tables, and this is one table: leave it out"
                raise PolicyError([Problem("person", message)])
            return suggest(self._workspace.run, location)

    def live(self, policy: Policy, name: str | None = None, progress: StageProgress | None = None) -> LiveView:
        """Create a live view in the source's database: it anonymizes the current rows whenever it is read.

        The search is that of `anonymize`. The view generalizes the rows at the time of reading. It suppresses classes
        that then violate a requirement, and values that a hierarchy lacks. A view cannot guarantee a suppression
        limit for future rows: ``sqlanon.live_views`` shows whether more rows are suppressed. If the type of a column
        has changed, the view shows nothing. The database is open for writing only while the view is written.

        Parameters
        ----------
        policy:
            The policy. A view does not support requirements on the whole table, populations, noise, decoys, masks,
            earlier releases, and local strategies. ``[release]`` and ``[catalog]`` are ignored.
        name:
            The name of the view, in the schema of the table. A live view of that name is replaced, in one transaction.
            Default: the name of the table with ``_live``.
        progress:
            Called as in `anonymize`.

        Raises
        ------
        PolicyError
            The policy has parts that a view does not support. The error has all of them.
        SourceError
            The source is not in a database, or cannot be written to; or the name of the view is taken.

        Examples
        --------
        >>> import duckdb, sqlanon
        >>> connection = duckdb.connect()
        >>> _ = connection.execute("CREATE TABLE people AS SELECT i % 3 AS ward, i AS age FROM range(9) AS t(i)")
        >>> policy = sqlanon.Policy(
        ...     source={"table": "people"},
        ...     attributes={"ward": {"role": "quasi", "hierarchy": "suppress"}, "age": {"role": "insensitive"}},
        ...     privacy={"k": 3},
        ... )
        >>> with sqlanon.connect(connection) as db:
        ...     db.live(policy).view
        'people_live'
        >>> _ = connection.execute("DELETE FROM people WHERE ward = 2 AND age < 5")
        >>> connection.sql("SELECT ward, count(*) FROM people_live GROUP BY ward ORDER BY ward").fetchall()
        [(0, 3), (1, 3)]
        """
        _require_policy(policy)
        from sqlanon.live import live

        report_progress = progress or ignore_progress
        report_progress("scan", 0, 0, None)
        return live(self._workspace, policy, name, partial(report_progress, "search"))

    def live_sql(self, policy: Policy, name: str | None = None) -> str:
        """The statements that `live` would run on the database, each with a semicolon. They are not run.

        The search runs, and reads the source: the statements have its result. They read the hierarchies from tables of
        this `Database`, on its connection. The errors are those of `live`.
        """
        _require_policy(policy)
        from sqlanon.live import live_statements

        return live_statements(self._workspace, policy, name)

    def drop_live(self, policy: Policy, name: str | None = None) -> str:
        """Remove a live view and its tables from the database, even if its table is gone. Returns the view's name.

        Parameters
        ----------
        policy:
            A policy for the database and table.
        name:
            The name of the view, as in `live`.

        Raises
        ------
        SourceError
            There is no live view of that name, or the database cannot be written to.
        """
        _require_policy(policy)
        from sqlanon.live import drop_live

        return drop_live(self._workspace, policy, name)

    def close(self) -> None:
        """Close the source and remove the work database. Relations of results can no longer be read."""
        self._workspace.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Database({self._workspace.description!r})"


def _require_policy(policy: object) -> None:
    """Refuse anything but a `Policy`, such as the path of one."""
    if not isinstance(policy, Policy):
        path = f"{os.fspath(policy)!r}" if isinstance(policy, str | os.PathLike) else "path"
        message = f"must be a Policy, not a {type(policy).__name__}: use Policy.load({path})"
        raise PolicyError([Problem("policy", message)], "the arguments")


def _refuse_leakage(size: object, seconds: object) -> None:
    problems = []
    if not isinstance(size, int) or size < 0:
        problems.append(Problem("leakage", f"must be a whole number of 0 or more, not {size!r}"))
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds < math.inf):
        problems.append(Problem("leakage_seconds", f"must be a number of seconds above 0, not {seconds!r}"))
    if problems:
        raise PolicyError(problems, "the arguments")


def _refuse_report(
    of: Policy | str | os.PathLike[str], private: bool, policy: Policy | None, strategies: Sequence[str] | None
) -> None:
    """Refuse incompatible arguments, all in one error."""
    compares, problems = strategies is None or bool(strategies), []
    if isinstance(of, Policy):
        if policy is not None:
            problems.append(Problem("policy", "is for a report of a release; leave it out for a policy"))
        if compares and not private:
            problems.append(Problem("compare", "needs a private report: it shows figures of the source"))
    else:
        if not isinstance(of, str | os.PathLike) or os.fspath(of).lower().endswith(".toml"):
            _require_policy(of)
        if private:
            problems.append(Problem("private", "is for a report of a policy: give the policy instead of the release"))
        if compares:
            problems.append(Problem("compare", "is for a report of a policy: give the policy instead of the release"))
    if problems:
        raise PolicyError(problems, "the arguments")
