"""The verbs of a `Database` for live views: views in the private database itself, for a gateway that serves them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlanon.policy import Policy
from sqlanon.sources.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlanon.live import LiveView


class Viewing:
    """What `Database` leaves in the source's own database. docs/live.md says what it protects from, and what not."""

    _space: Workspace

    def live(
        self,
        policy: Policy,
        name: str | None = None,
        progress: Callable[[str, int, int, float | None], None] | None = None,
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
            What is asked. Requirements on the whole table, populations, noise, decoys, masks, earlier releases, and
            strategies below the full domain are no matter for a view. ``[release]`` and ``[catalog]`` do not count.
        name:
            The name of the view, in the schema of the table; by default the table's with ``_live``. A live view of
            that name is replaced, in one transaction.
        progress:
            Told what is going on, as by `anonymize`.

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
        from sqlanon.live import live  # noqa: PLC0415  (who does not ask for it does not wait for it)

        tell = progress or (lambda stage, open_, checked, best: None)
        tell("scan", 0, 0, None)
        return live(self._space, policy, name, partial(tell, "search"))

    def live_sql(self, policy: Policy, name: str | None = None) -> str:
        """The statements that `live` would run on the database, each with a semicolon; they are not run.

        The search is made, which reads the source: what is found is in them. The rows of the hierarchies are read from
        tables of this `Database`, on its connection.

        Raises
        ------
        PolicyError, SourceError, HierarchyError, InfeasibleError
            As of `live`.
        """
        from sqlanon.live import live_statements  # noqa: PLC0415  (who does not ask for it does not wait for it)

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
        from sqlanon.live import drop_live  # noqa: PLC0415  (who does not ask for it does not wait for it)

        return drop_live(self._space, policy, name)
