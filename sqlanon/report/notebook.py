"""The charts of a result, for notebooks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from sqlanon.disclosure.class_sizes import ClassSizes
from sqlanon.errors import PolicyError, Problem
from sqlanon.report import refuse_without_charts
from sqlanon.report.facts import Inside, ReportFacts, Unpublished

if TYPE_CHECKING:
    from sqlanon.report.charts import Chart


class Charts:
    """The charts of a result, as Altair charts: a notebook shows them, and ``.save("chart.svg")`` writes them.

    `classes`, `risk` and `distribution` show figures of the release, without values of fewer than k rows; with
    ``private=True`` also figures of the source. `frontier`, `lattice` and `attributes` are for internal use only: other
    generalizations than the released one reveal something about the source. Figures are counted once.
    """

    def __init__(self, found: Unpublished) -> None:
        self._found = found

    def classes(self, private: bool = False) -> Chart:
        """The number of equivalence classes by size, in ranges."""
        from sqlanon.report import charts

        return charts.classes(self._sizes, self._facts.few, self._inside.sizes if private else None)

    def risk(self, private: bool = False) -> Chart:
        """The share of rows by re-identification risk: 1 / the size of the row's class."""
        from sqlanon.report import charts

        return charts.risk(self._sizes, self._facts.few, self._inside.sizes if private else None)

    def distribution(self, name: str, private: bool = False) -> Chart:
        """The rows of each value of a released column; of many numbers or dates, of each range.

        Raises
        ------
        PolicyError
            No column of that name is released; or the source is in PostgreSQL and the column was not counted there.
        """
        from sqlanon.report import charts

        columns = {column.name: column for column in self._facts.columns}
        if name not in columns:
            message = f"no column {name!r} is released; released columns: {', '.join(columns)}"
            raise PolicyError([Problem("attributes", message)])
        before = self._inside.before.get(name) if private else None
        if private and before is None:
            message = f"{name!r} was not counted in the source, which is in PostgreSQL; leave out private=True"
            raise PolicyError([Problem("attributes", message)])
        return charts.distribution(name, columns[name].after, before)

    def attributes(self) -> Chart:
        """The loss of each quasi-identifier, its level and the height of its hierarchy."""
        from sqlanon.report import charts

        return charts.attributes(self._inside.heights, self._inside.generalization, self._inside.losses)

    def frontier(self) -> Chart:
        """The generalizations that were counted: ``score`` against ``suppressed_rows`` of `Result.lattice`.

        One that does not meet the policy is drawn at its ``bound``. Of many, the chart has the frontier, the chosen one
        and a sample, the same on every run.

        Raises
        ------
        PolicyError
            The strategy does not search the lattice.
        """
        from sqlanon.report import charts

        self._refuse_without_lattice()
        inside = self._inside
        return charts.frontier(inside.counted, list(inside.heights), inside.measure, inside.allowed_rows)

    def lattice(self) -> Chart:
        """The lattice: ``levels`` and ``status`` of `Result.lattice`; of a large one, counts by ``height``.

        Raises
        ------
        PolicyError
            The strategy does not search the lattice.
        """
        from sqlanon.report import charts

        self._refuse_without_lattice()
        inside = self._inside
        if inside.lattice:
            return charts.lattice(inside.lattice, list(inside.heights))
        return charts.statuses(inside.statuses)

    def _refuse_without_lattice(self) -> None:
        if not self._inside.statuses:
            raise PolicyError([Problem("search.strategy", "does not search the lattice, so there is no chart of it")])

    @cached_property
    def _facts(self) -> ReportFacts:
        refuse_without_charts(page=False)
        return self._found.facts()

    @cached_property
    def _inside(self) -> Inside:
        refuse_without_charts(page=False)
        return self._found.inside(whole=False)

    @property
    def _sizes(self) -> ClassSizes:
        sizes = self._facts.sizes
        assert sizes is not None  # of what is not published yet, they are always there
        return sizes
