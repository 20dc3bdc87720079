"""`Database`: what a user holds. Its methods are the verbs, each a few lines over the pipeline and its neighbours."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import duckdb

from sqlanon import pipeline
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import PolicyError, Problem, ReleaseError
from sqlanon.policy import Policy, is_server
from sqlanon.release.target import Verification, place_of
from sqlanon.result import Comparison, Result
from sqlanon.search.lattice import silent
from sqlanon.sources import source_errors
from sqlanon.sources.workspace import Workspace

if TYPE_CHECKING:
    import polars
    import pyarrow

    from sqlanon.engines.statement_runner import Plan
    from sqlanon.ledger.extend import Extension
    from sqlanon.live import LiveView
    from sqlanon.pipeline import StageProgress
    from sqlanon.risk import Risk, UniquesMatrix
    from sqlanon.risk.suda import Suda
    from sqlanon.search.compare import ComparisonProgress
    from sqlanon.suggest import Trial


class ArrowStream(Protocol):
    """What has the Arrow C stream interface: data frames, Arrow tables and streams, relations of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Give an Arrow stream, as a PyCapsule."""


Frame: TypeAlias = "ArrowStream | pyarrow.Table | pyarrow.RecordBatchReader | polars.LazyFrame"
Given: TypeAlias = "str | os.PathLike[str] | duckdb.DuckDBPyConnection | Frame | None"


def connect(
    source: Given = None,
    *,
    memory_limit: str | None = None,
    threads: int | None = None,
) -> Database:
    """Open a source: a database, files, or a data frame.

    Parameters
    ----------
    source:
        One of these; without one, the policy's ``[source]`` names the source:

        - a DuckDB file, opened read-only;
        - a Parquet or CSV file, or a pattern of them;
        - a DuckDB connection: sqlanon opens a second one beside it, so that temporary macros and settings count for the
          user's own queries alone;
        - a data frame, copied once to a private table: pandas (without its index; NaN, NaT and NA are NULL), polars,
          also lazy (NaN stays NaN), narwhals, an Arrow table or reader, a DuckDB relation, or any object with
          ``__arrow_c_stream__``;
        - a Spark session, classic or Connect; or where Spark is: ``"sc://host:port"``, or a master such as
          ``"local[2]"``.

        It takes the place of ``database`` and ``files`` in the ``[source]`` of policies; Spark, of ``database``. A
        policy for a data frame needs no ``[source]``.
    memory_limit:
        What each engine may hold in memory, such as ``"2GB"``; what does not fit is spilled to a private directory.
        By default the engine's own limit. An answer does not depend on it.
    threads:
        How many threads each engine may use. Default: all cores.

    Raises
    ------
    SourceError
        The source cannot be opened, or is none of these; a column of a data frame has a type that cannot be read; a
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
    """A source, and the private work database of sqlanon beside it. Made by `connect`; a context manager."""

    def __init__(
        self,
        source: Given = None,
        limits: Limits = NO_LIMITS,
    ) -> None:
        self._space = Workspace(source, limits)

    def anonymize(self, policy: Policy, progress: StageProgress | None = None, record: bool = True) -> Result:
        """Find the version of a table that meets the policy and loses the least.

        Parameters
        ----------
        policy:
            The policy.
        progress:
            Called as the work goes on.
        record:
            Whether the run is recorded in the policy's catalog now; else once the result is published.

        Raises
        ------
        SourceError
            The source cannot be read, or does not fit the policy.
        HierarchyError
            Hierarchies are no trees over the source's values; with all problems.
        InfeasibleError
            Nothing meets the policy; with the generalization that comes nearest.
        """
        result = Result(pipeline.anonymize(self._space, policy, progress or silent))
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
        """Run several strategies for one policy: a relation, one row a strategy. Notebooks show it as a table.

        Nothing is published, and nothing is written to the catalog.

        Parameters
        ----------
        policy:
            The policy; its own strategy is ignored.
        strategies:
            The names of the strategies. Default: all that the policy allows; ``iab`` only with a ``time_limit`` or
            ``max_checks`` in the policy, which holds for each strategy.
        progress:
            Called with the strategy, generalizations open and checked, and its best score so far.
        seconds:
            What each strategy may take; default: no limit, and on a large table some take days. One whose search is
            not done in time shows the best it found, or an error if it found nothing yet.

        Returns
        -------
        relation
            With the columns ``strategy``, ``score`` (by the policy's measure), ``loss`` (by the measure of that name,
            whatever the policy's is), ``classes``, ``suppressed_rows``, ``checked``, ``optimal`` (among full-domain
            generalizations), ``guarantees_k`` (of all quasi-identifiers together), ``stopped``, ``seconds``, and
            ``error``: why a strategy found nothing or does not support the policy; else NULL.

        Raises
        ------
        PolicyError
            A name is no strategy.
        SourceError, HierarchyError
            As of `anonymize`.
        """
        # (So are the others here: `anonymize` does not wait for them.)
        from sqlanon.search.compare import policies_of, relation_of  # noqa: PLC0415

        found = list(pipeline.compare(self._space, policies_of(policy, strategies), progress or silent, seconds))
        return Comparison(self._space.engine.relation(relation_of(found)), policy.search.measure)

    def try_strategies(
        self, policy: Policy, candidates: Mapping[str, Mapping[str, str]] | None = None, seconds: float | None = None
    ) -> list[Trial]:
        """Try several strategies on a sample of a policy's source: at most 100,000 rows, the same ones on every run.

        Nothing is published, and nothing is written to the catalog. `compare` runs strategies on the whole source.

        Parameters
        ----------
        policy:
            The policy; its own strategy is ignored, and the suppression limit is the same share of the sample.
        candidates:
            The keys of ``[search]`` of each strategy, by a name of your own; default: ``optimal``, ``mondrian`` with
            ranges and with sets, ``subtree``, ``local``, and ``optimal`` with cells.
        seconds:
            What all of them together may take, by default 20; a strategy whose share of it is over is interrupted.

        Returns
        -------
        list of Trial
            In the order of the candidates: ``name``, ``search``, ``loss`` (the measure of that name),
            ``fully_suppressed`` (the attributes of which nothing is left), ``rows`` and ``suppressed_rows`` of the
            sample, ``seconds``, and ``error``: why a strategy found nothing, or None.

        Raises
        ------
        SourceError
            The source cannot be read, or does not fit the policy.
        """
        from sqlanon.suggest import try_strategies  # noqa: PLC0415
        from sqlanon.suggest.trials import CANDIDATES  # noqa: PLC0415

        begin = partial(self._space.run, counted=True)
        return try_strategies(begin, policy, CANDIDATES if candidates is None else candidates, seconds)

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
            There is no release to extend, or another policy made it.
        SourceError, HierarchyError
            The source does not fit the policy; or its values would be labelled in another way than in the release.
        """
        return pipeline.extend(self._space, policy)

    def plan(self, policy: Policy, dialect: str | None = None) -> Plan:
        """The stages of `anonymize` and their SQL, from the schema and the hierarchy files alone: reads no rows.

        Parameters
        ----------
        policy:
            The policy.
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
            from sqlanon.warehouse import plan_for_warehouse  # noqa: PLC0415

            return plan_for_warehouse(policy, dialect, self._space.engine)
        return pipeline.plan(self._space, policy)

    def verify(self, release: Any, policy: Policy, table: str | None = None, sha256: str | None = None) -> Verification:
        """Check a release by itself, and against its source: recoded again, the source must give the same rows.

        The catalog has the SHA-256 of the files that were published: a file in the catalog must be unchanged.

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
            There is no release at that place; or it has noise or decoys and is not a file; or ``sha256`` is not a
            SHA-256.
        SourceError, HierarchyError, InfeasibleError
            The source does not fit the policy.
        """
        return pipeline.verify(self._space, policy, place_of(release, table), sha256)

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
            Of a private page: those to compare; None: all that fit the policy.
        progress:
            Called as the work goes on, if it is a policy.

        Returns
        -------
        bool
            Whether no check failed.

        Raises
        ------
        MissingLibraryError
            The libraries that draw are missing.
        PolicyError
            Options do not go together.
        ReleaseError
            There is no release, or it is in PostgreSQL or in Spark; or the page cannot be written.
        SourceError, HierarchyError, InfeasibleError
            As of `anonymize`.
        """
        from sqlanon.report import refuse_without_charts, report_of_release, target_of  # noqa: PLC0415

        _refuse_report(of, private, policy, strategies)
        if not isinstance(of, Policy) and is_server(os.fspath(of)):
            raise ReleaseError("a page is made of a file: publish the release to one, too, or give its policy")
        target = target_of(path)
        refuse_without_charts()
        if not isinstance(of, Policy):
            release = Path(of).absolute()
            found = None if policy is None else self.verify(release, policy)
            about = None if policy is None else policy.about
            return report_of_release(release, target, found, self._space.limits, about)
        result = self.anonymize(of, progress)
        compared = self.compare(of, strategies).relation if strategies is None or strategies else None
        return result.report(target, private, compared)

    def risk(self, policy: Policy, epsilons: Sequence[float] = (), leakage: int = 3) -> Risk:
        """How risky the policy's source is as it stands: its classes, and what breaks each requirement of the policy.

        What each figure means, and its source: docs/explanation/risk.md. Nothing is generalized or left out.
        The hierarchies of the quasi-identifiers are not looked at; but for a policy with noise, the search is made, so
        that the errors are known that noise would make in the classes that it finds.

        Parameters
        ----------
        policy:
            The policy.
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
            A requirement needs the hierarchy of a sensitive attribute, and it is not a tree over its values.
        """
        from sqlanon.risk import refuse_epsilons  # noqa: PLC0415

        refuse_epsilons(policy, epsilons)
        found = pipeline.risk(self._space, policy, epsilons, leakage)
        return replace(found, _relate=self._space.engine.table_of)

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

        Where the policy gives the size of the population, the source's rows (or persons) are counted now.

        Returns
        -------
        relation
            The source's columns, and ``class_size`` (rows), ``prosecutor`` (1 / rows, or persons), with weights or a
            population's size (or the sampling fraction) ``individual``, and with households ``household_risk``.

        Raises
        ------
        SourceError
            As of `risk`.
        """
        from sqlanon.risk import row_risks  # noqa: PLC0415

        run = self._space.run(policy)  # it stays: the relation reads its views and tables
        with source_errors():
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

        with self._space.run(policy) as run, source_errors():
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

    def suda(self, policy: Policy, size: int | None = None, fraction: float | None = None) -> Suda:
        """Which rows of the policy's source are alone with few of their quasi-identifiers: special uniques.

        Parameters
        ----------
        policy:
            The policy; only its source, its quasi-identifiers and what it says of the population count here.
        size:
            The greatest number of attributes of a minimal sample unique; by default all of them. The work grows with
            the sets of attributes of up to that size.
        fraction:
            The sampling fraction, for DIS; by default the policy's (``[risk]``, else that of
            ``privacy.population_uniqueness``: ``sampling_fraction``, or the rows by ``population``), and where it has
            none 0.01, as in sdcMicro.

        Raises
        ------
        PolicyError
            The size or the fraction is none, or there are too many sets of up to that size.
        SourceError
            The source cannot be read, does not fit the policy, or has more than the population.
        """
        from sqlanon.risk.suda import (  # noqa: PLC0415
            find_special_uniques,
            refuse_settings,
        )

        refuse_settings(policy, size, fraction)
        run = self._space.run(policy)  # it stays: the relations read its tables
        with source_errors():
            return find_special_uniques(run, policy, size, fraction)

    def suda_sql(self, policy: Policy, size: int | None = None, fraction: float | None = None) -> str:
        """The statements behind `suda`, each with a semicolon; they are not run.

        Raises
        ------
        PolicyError, SourceError
            As of `suda`, as far as the schema tells.
        """
        from sqlanon.risk.suda import (  # noqa: PLC0415
            refuse_settings,
            suda_statements,
        )

        refuse_settings(policy, size, fraction)
        run = self._space.run(policy, read=False)  # its views stay: the statements name them
        return suda_statements(run, policy, size, fraction)

    def distinction(self, table: str | Policy | None = None, size: int = 3) -> duckdb.DuckDBPyRelation:
        """How well sets of columns tell rows apart: a relation, one row a set. It finds quasi-identifiers.

        Parameters
        ----------
        table:
            The table (its columns that are not nested), or a policy (its quasi-identifiers); None where the source is
            files or Arrow.
        size:
            The greatest number of columns of a set.

        Returns
        -------
        relation
            With the columns ``attributes`` (a list of names), ``size``, ``distinct`` (combinations of their values),
            ``rows``, ``distinction`` (distinct by rows; NULL without rows) and ``separation`` (the share of the pairs
            of rows that differ in them; NULL of fewer than two rows). Source: R. Motwani, Y. Xu, "Efficient algorithms
            for masking and finding quasi-identifiers" (2007).

        Raises
        ------
        PolicyError
            The size is less than 1, or there are too many sets of up to that size.
        SourceError
            The source cannot be read, or does not fit the policy.

        Examples
        --------
        >>> import duckdb, sqlanon
        >>> connection = duckdb.connect()
        >>> _ = connection.execute("CREATE TABLE people AS SELECT i % 2 AS sex, i % 3 AS ward FROM range(6) AS t(i)")
        >>> with sqlanon.connect(connection) as db:
        ...     db.distinction("people", size=2).project("attributes, distinction, separation").fetchall()
        [(['sex'], 0.3333333333333333, 0.6), (['ward'], 0.5, 0.8), (['sex', 'ward'], 1.0, 1.0)]
        """
        from sqlanon.suggest import (  # noqa: PLC0415
            asks_nothing,
            find_distinction,
            refuse_size,
        )

        refuse_size(size)
        policy = table if isinstance(table, Policy) else None
        run = self._space.run(asks_nothing(table) if not isinstance(table, Policy) else table)  # it stays
        with source_errors():
            return run.engine.relation(find_distinction(run, policy, size))

    def distinction_sql(self, table: str | Policy | None = None, size: int = 3) -> str:
        """The statements behind `distinction`, each with a semicolon; they are not run.

        Raises
        ------
        PolicyError, SourceError
            As of `distinction`, as far as the schema tells.
        """
        from sqlanon.suggest import (  # noqa: PLC0415
            asks_nothing,
            distinction_statements,
            refuse_size,
        )

        refuse_size(size)
        policy = table if isinstance(table, Policy) else None
        run = self._space.run(asks_nothing(table) if not isinstance(table, Policy) else table, read=False)
        return distinction_statements(run, policy, size)

    def suggest(
        self,
        table: str | None = None,
        files: Sequence[str | os.PathLike[str]] = (),
        folder: str | os.PathLike[str] | None = None,
        hierarchies: str | os.PathLike[str] | None = None,
    ) -> str:
        """A policy to start from: the commented text of a TOML file.

        Each column gets a role, and a quasi-identifier a hierarchy that fits its type, by its name, its type and
        figures of its values; the comments say why. Several strategies are tried on a sample (see `try_strategies`),
        and the policy names the one that keeps the most.

        Parameters
        ----------
        table:
            The table; None where the source is files or Arrow.
        files:
            Files of one table, or patterns of them, where `connect` was given no source.
        folder:
            Where the policy file will be: its paths are relative to it. Default: they are absolute.
        hierarchies:
            A folder for hierarchy files that you can edit: ``hierarchy_COLUMN.csv`` for each column of texts. It is
            made where it is missing; files that are there are used, and never replaced. They are private: they have
            the values of the table.

        Raises
        ------
        SourceError
            The table cannot be found or read.
        """
        from sqlanon.suggest import Place, suggest  # noqa: PLC0415

        given = self._space.given
        paths = tuple(str(Path(one).absolute()) for one in files) or given.get("files", ())
        here, files_in = (None if one is None else Path(one).absolute() for one in (folder, hierarchies))
        place = Place(table, given.get("database"), paths, here, files_in)
        with source_errors():
            return suggest(self._space.run, place)

    def live(
        self,
        policy: Policy,
        name: str | None = None,
        progress: StageProgress | None = None,
    ) -> LiveView:
        """Make a view in the source's database that shows its table as the policy asks, whenever it is read.

        The best generalization is searched as by `anonymize`. The view shows it of the rows that are there when it is
        read, without the classes that break a requirement then, and without values that are new to a hierarchy. A
        suppression limit cannot be promised of what will be there: the view ``sqlanon.live_views`` tells when more
        than that is left out. Where a column has got another type since, nothing is shown. The database is opened for
        writing for this, and only while it is written.

        Parameters
        ----------
        policy:
            The policy. Requirements on the whole table, populations, noise, decoys, masks, earlier releases, and
            strategies below the full domain are no matter for a view. ``[release]`` and ``[catalog]`` do not count.
        name:
            The name of the view, in the schema of the table; by default the table's with ``_live``. A live view of
            that name is replaced, in one transaction.
        progress:
            Called as by `anonymize`.

        Raises
        ------
        PolicyError
            The policy asks for what a view cannot keep; with all of that.
        SourceError
            The source is in no database, does not fit the policy, or cannot be written to; or something else has the
            name of the view.
        HierarchyError, InfeasibleError
            As of `anonymize`.

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
        from sqlanon.live import live  # noqa: PLC0415

        report_progress = progress or silent
        report_progress("scan", 0, 0, None)
        return live(self._space, policy, name, partial(report_progress, "search"))

    def live_sql(self, policy: Policy, name: str | None = None) -> str:
        """The statements that `live` would run on the database, each with a semicolon; they are not run.

        The search is made, which reads the source: what is found is in them. The rows of the hierarchies are read from
        tables of this `Database`, on its connection.

        Raises
        ------
        PolicyError, SourceError, HierarchyError, InfeasibleError
            As of `live`.
        """
        from sqlanon.live import live_statements  # noqa: PLC0415

        return live_statements(self._space, policy, name)

    def drop_live(self, policy: Policy, name: str | None = None) -> str:
        """Remove a live view and its tables from the database; its name. The table that it shows need not be there.

        Parameters
        ----------
        policy:
            Says which database and table.
        name:
            As of `live`.

        Raises
        ------
        SourceError
            There is none of that name, or the database cannot be written to.
        """
        from sqlanon.live import drop_live  # noqa: PLC0415

        return drop_live(self._space, policy, name)

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
