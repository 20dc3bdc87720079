"""The charts of a result, for notebooks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from sqlanon.errors import PolicyError, Problem
from sqlanon.frequency.class_sizes import ClassSizes
from sqlanon.report import refuse_without_charts
from sqlanon.report.facts import PrivateFacts, ReportFacts, UnpublishedResult

if TYPE_CHECKING:
    from sqlanon.report.charts import Chart


class Charts:
    """The charts of a result, as Altair charts: a notebook shows them, and ``.save("chart.svg")`` writes them.

    `classes`, `risk` and `distribution` show figures of the release, without values of fewer than k rows; with
    ``private=True`` also figures of the source. `frontier`, `lattice` and `attributes` are for internal use only: other
    generalizations than the released one reveal something about the source. Figures are counted once.
    """

    def __init__(self, result: UnpublishedResult) -> None:
        self._result = result

    def classes(self, private: bool = False) -> Chart:
        """The number of equivalence classes by size, in ranges."""
        from sqlanon.report import charts

        return charts.classes(self._sizes, self._facts.few, self._private.sizes if private else None)

    def risk(self, private: bool = False) -> Chart:
        """The share of rows by re-identification risk: 1 / the size of the row's class."""
        from sqlanon.report import charts

        return charts.risk(self._sizes, self._facts.few, self._private.sizes if private else None)

    def distribution(self, name: str, private: bool = False) -> Chart:
        """The rows of each value of a released column; of many numbers or dates, of each range.

        Raises
        ------
        PolicyError
            No column of that name is released; or the source is in PostgreSQL and the column was not counted there.
        """
        from sqlanon.report import charts

        columns = {column.name: column.after for column in self._facts.columns}
        if name not in columns:
            message = f"no column {name!r} is released; released columns: {', '.join(columns)}"
            raise PolicyError([Problem("attributes", message)])
        source = self._private.before.get(name) if private else None
        if private and source is None:
            message = f"{name!r} was not counted in the source, which is in PostgreSQL; leave out private=True"
            raise PolicyError([Problem("attributes", message)])
        return charts.distribution(name, columns[name], source)

    def attributes(self) -> Chart:
        """The loss of each quasi-identifier, its level and the height of its hierarchy."""
        from sqlanon.report import charts

        private = self._private
        return charts.attributes(private.heights, private.result.generalization, private.losses)

    def frontier(self) -> Chart:
        """The evaluated generalizations: ``score`` against ``suppressed_rows`` of `Result.lattice`.

        One that does not meet the policy is drawn at its ``bound``. A large lattice is drawn as the frontier, the
        chosen generalization and a sample, which is the same on every run.

        Raises
        ------
        PolicyError
            The strategy does not search the lattice.
        """
        from sqlanon.report import charts

        private = self._searched_facts
        return charts.frontier(private.checked, list(private.heights), private.measure, private.allowed_rows)

    def lattice(self) -> Chart:
        """The lattice: ``levels`` and ``status`` of `Result.lattice`; of a large one, counts by ``height``.

        Raises
        ------
        PolicyError
            The strategy does not search the lattice.
        """
        from sqlanon.report import charts

        private = self._searched_facts
        if private.lattice:
            return charts.lattice(private.lattice, list(private.heights))
        return charts.statuses(private.statuses)

    @cached_property
    def _facts(self) -> ReportFacts:
        refuse_without_charts(page=False)
        return self._result.facts()

    @cached_property
    def _private(self) -> PrivateFacts:
        refuse_without_charts(page=False)
        return self._result.private_facts(with_explorer=False)

    @property
    def _searched_facts(self) -> PrivateFacts:
        """The private facts of a strategy that searches the lattice."""
        if not self._private.statuses:
            raise PolicyError([Problem("search.strategy", "does not search the lattice, which the chart shows")])
        return self._private

    @property
    def _sizes(self) -> ClassSizes:
        sizes = self._facts.sizes
        assert sizes is not None  # they are missing only for broken files
        return sizes
