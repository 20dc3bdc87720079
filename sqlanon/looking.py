"""The verbs of a `Database` that look at a private table before anything of it is released."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlanon.policy import Policy
from sqlanon.sources import readable
from sqlanon.sources.workspace import Workspace

if TYPE_CHECKING:
    import duckdb

    from sqlanon.risk import Risk, UniquesMatrix
    from sqlanon.risk.suda import Suda


class Looking:
    """What `Database` tells of a source as it stands."""

    _space: Workspace

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
        from sqlanon.risk import assess, assess_noise, refuse_epsilons  # noqa: PLC0415  (who does not ask for it does not wait for it)

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
        from sqlanon.risk import risk_statements  # noqa: PLC0415  (who does not ask for it does not wait for it)

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
        from sqlanon.risk import row_risks  # noqa: PLC0415  (who does not ask for it does not wait for it)

        run = self._space.run(policy)  # it stays: the relation reads its views and tables
        with readable():
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
        from sqlanon.risk import uniques_matrix  # noqa: PLC0415  (who does not ask for it does not wait for it)

        with self._space.run(policy) as run, readable():
            return uniques_matrix(run, policy, first, second)

    def uniques_matrix_sql(self, policy: Policy, first: str, second: str) -> str:
        """The statements behind `uniques_matrix`, each with a semicolon; they are not run.

        Raises
        ------
        PolicyError, SourceError, HierarchyError
            As of `uniques_matrix`, as far as the schema and hierarchy files tell.
        """
        from sqlanon.risk import uniques_matrix  # noqa: PLC0415  (who does not ask for it does not wait for it)

        run, shown = self._space.run(policy, read=False), list[str]()
        uniques_matrix(run, policy, first, second, shown)
        return "\n\n".join(f"{statement};" for statement in shown)

    def suda(self, policy: Policy, size: int | None = None, fraction: float | None = None) -> Suda:
        """Which rows of the policy's source are alone with few of their quasi-identifiers: special uniques.

        Parameters
        ----------
        policy:
            What is asked; only its source, its quasi-identifiers and what it says of the population count here.
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
        from sqlanon.risk.suda import (  # noqa: PLC0415  (who does not ask for it does not wait for it)
            find_special_uniques,
            refuse_settings,
        )

        refuse_settings(policy, size, fraction)
        run = self._space.run(policy)  # it stays: the relations read its tables
        with readable():
            return find_special_uniques(run, policy, size, fraction)

    def suda_sql(self, policy: Policy, size: int | None = None, fraction: float | None = None) -> str:
        """The statements behind `suda`, each with a semicolon; they are not run.

        Raises
        ------
        PolicyError, SourceError
            As of `suda`, as far as the schema tells.
        """
        from sqlanon.risk.suda import (  # noqa: PLC0415  (who does not ask for it does not wait for it)
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
        from sqlanon.suggest import (  # noqa: PLC0415  (who does not ask for it does not wait for it)
            asks_nothing,
            find_distinction,
            refuse_size,
        )

        refuse_size(size)
        policy = table if isinstance(table, Policy) else None
        run = self._space.run(asks_nothing(table) if not isinstance(table, Policy) else table)  # it stays
        with readable():
            return run.engine.relation(find_distinction(run, policy, size))

    def distinction_sql(self, table: str | Policy | None = None, size: int = 3) -> str:
        """The statements behind `distinction`, each with a semicolon; they are not run.

        Raises
        ------
        PolicyError, SourceError
            As of `distinction`, as far as the schema tells.
        """
        from sqlanon.suggest import (  # noqa: PLC0415  (who does not ask for it does not wait for it)
            asks_nothing,
            distinction_statements,
            refuse_size,
        )

        refuse_size(size)
        policy = table if isinstance(table, Policy) else None
        run = self._space.run(asks_nothing(table) if not isinstance(table, Policy) else table, read=False)
        return distinction_statements(run, policy, size)

    def suggest(self, table: str | None = None) -> str:
        """A policy to start from: the commented text of a TOML file.

        Each column gets a role, and a quasi-identifier a hierarchy that fits its type, by its name, its type and
        figures of its values; the comments say why. No value of the table is in it.

        Parameters
        ----------
        table:
            The table; None where the source is files or Arrow.

        Raises
        ------
        SourceError
            The table cannot be found or read.
        """
        from sqlanon.suggest import suggest  # noqa: PLC0415  (who does not ask for it does not wait for it)

        given = self._space.given
        with readable():
            return suggest(self._space.run, table, given.get("database"), given.get("files", ()))
