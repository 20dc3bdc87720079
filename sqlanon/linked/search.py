"""The search for the best generalization of linked tables: one lattice over the quasi-identifiers of all of them.

The persons who can stay grow with generalization: a combination at a higher generalization has all the persons of the
combinations below it. So the searches of one table carry over, with their pruning and their proof; only the check, the
measure and the verdict are others. Suppressed persons take the place of suppressed rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from sqlanon.linked.check.kept_rows import KeptRows, StoredRows
from sqlanon.linked.check.peeling import Peeling
from sqlanon.linked.records import LinkedRecords
from sqlanon.measures import Figures, Marginals, Measure
from sqlanon.strategies.lattice.lattice import Progress
from sqlanon.strategies.lattice.limits import Budget
from sqlanon.strategies.lattice.search import LatticeSearch, SourceFacts, Verdict
from sqlanon.support.coding import Levels, code_column, level_leaves
from sqlanon.support.expressions import as_column, col, subquery, template, total

_STOPPED_SHARE = 0.5
"""The share of the classes that a stopped peeling is taken to have counted: the search estimates by it."""


@dataclass(frozen=True)
class LinkedFigures(Figures):
    """The figures of a checked generalization: ``suppressed_rows`` counts persons."""

    suppressed_by_table: tuple[int, ...] = ()
    """The number of rows that are not released, by table."""
    is_monotone: bool = True
    """Whether the released persons and rows can stay at every higher generalization."""


class LinkedLoss(Measure):
    """The mean over the quasi-identifiers of all tables of the mean loss over the rows of their table."""

    name = "loss"
    needs_leaves = True

    def __init__(self, records: LinkedRecords) -> None:
        heights = tuple(attribute.height for attribute in records.attributes)
        leaves = tuple(hierarchy.leaves for hierarchy in records.hierarchies)
        unknown = (0,) * len(heights)
        super().__init__(Marginals(records.persons, heights, leaves, unknown, records.leaf_sums), records.weights)
        self._records = records
        self._rows = [records.tables[t].rows for t in records.owners]
        orphans = [records.tables[t].orphans for t in records.owners]
        self._spans = [max(count - 1, 1) for count in leaves]
        weight = math.fsum(self.weights)
        self._shares = [attribute_weight / weight for attribute_weight in self.weights]
        self._bounds = [
            [share * (leaf_sum / span + lost) / max(rows, 1) for leaf_sum in leaf_sums]
            for share, leaf_sums, span, lost, rows in zip(
                self._shares, records.leaf_sums, self._spans, orphans, self._rows, strict=True
            )
        ]
        self._person_share = math.fsum(share for share, t in zip(self._shares, records.owners, strict=True) if t == 0)

    def bound(self, levels: Levels) -> float:
        """The score without suppressed persons."""
        return math.fsum([row[level] for row, level in zip(self._bounds, levels, strict=True)])

    def bound_with(self, levels: Levels, suppressed_rows: int) -> float:
        """No quasi-identifier of the person table loses less than the share of suppressed persons."""
        least = suppressed_rows / self.marginals.rows
        rows = zip(self._bounds, self._shares, self._records.owners, levels, strict=True)
        return math.fsum([row[level] if t else max(row[level], share * least) for row, share, t, level in rows])

    def lift(self, levels: Levels, figures: Figures) -> float:
        """The loss of the suppressed rows beyond their loss in the bound, which only shrinks at lower levels."""
        return math.fsum(self._gain(i, level, figures) for i, level in enumerate(levels))

    def _gain(self, attribute: int, level: int, figures: Figures) -> float:
        """The loss of the suppressed rows beyond the leaves under their labels."""
        assert isinstance(figures, LinkedFigures)
        if self.marginals.leaves[attribute] <= 1:
            leaf_share = 0.0
        elif level == self.marginals.heights[attribute]:
            return 0.0
        else:
            leaf_share = figures.suppressed_leaves.get(attribute, 0.0) / self._spans[attribute]
        suppressed = figures.suppressed_by_table[self._records.owners[attribute]]
        return self._shares[attribute] * (suppressed - leaf_share) / max(self._rows[attribute], 1)

    def max_suppressed_rows(self, cost: float) -> int:
        """The maximum number of persons that a generalization with at most this score suppresses."""
        persons = self.marginals.rows
        if not self._person_share:
            return persons
        return min(persons, math.floor(cost * (1 + 1e-9) * persons / self._person_share))

    def losses(self, levels: Levels, figures: Figures) -> list[float]:
        """The loss of each quasi-identifier."""
        parts = [self._bounds[i][level] + self._gain(i, level, figures) for i, level in enumerate(levels)]
        return [part / share for part, share in zip(parts, self._shares, strict=True)]

    def score(self, levels: Levels, figures: Figures) -> float:
        """The bound, and the loss of suppressed rows beyond it."""
        return self.bound(levels) + self.lift(levels, figures)


@dataclass(frozen=True)
class LinkedTask:
    """The task of a strategy: the records of all tables, and the limits.

    ``earlier_rows``: the rows of the release that the new one is made from.
    """

    records: LinkedRecords
    progress: Progress
    budget: Budget | None = None
    earlier_rows: KeptRows | None = None

    @cached_property
    def peeling(self) -> Peeling:
        """Finds the persons who can stay."""
        privacy = self.records.policy.privacy
        return Peeling(self.records, privacy.k, privacy.known, self.earlier_rows)

    @cached_property
    def stored_rows(self) -> StoredRows:
        """The persons and rows that the best generalization so far suppresses."""
        return StoredRows(self.records)

    @property
    def allowed_persons(self) -> int:
        """The maximum number of persons who may be suppressed."""
        return self.records.allowed_persons

    @property
    def allowed_rows(self) -> int:
        """The maximum number of child rows that may be suppressed individually."""
        return self.records.allowed_rows

    @cached_property
    def lattice(self) -> LatticeSearch:
        """The search of the lattice."""
        search_section = self.records.policy.search
        return LatticeSearch(
            lattice=self.records.lattice,
            measure=LinkedLoss(self.records),
            checker=self.check,
            draw_verdict=draw_verdict,
            allowed_rows=self.allowed_persons,
            progress=self.progress,
            budget=self.budget or Budget(search_section.time_limit, search_section.max_checks),
            source_facts=SourceFacts(
                vectors=lambda: [self._single_steps()],
                distinct_values=lambda: [(*counts, 1) for counts in self.records.code_counts],
            ),
        )

    def _single_steps(self) -> list[Levels]:
        """The generalizations of one attribute alone: all others are joins of them."""
        lattice = self.records.lattice
        bottom = lattice.bottom
        return [(*bottom[:i], level, *bottom[i + 1 :]) for i in range(len(bottom)) for level in lattice.levels(i)]

    def losses(self, levels: Levels) -> list[float]:
        """The loss of each quasi-identifier at a checked generalization."""
        figures = self.lattice.figures[levels]
        measure = self.lattice.measure
        assert isinstance(measure, LinkedLoss)
        return measure.losses(levels, figures)

    def find_kept_rows(self, levels: Levels) -> KeptRows:
        """Find the persons and rows that stay at a generalization; their tables stay until the next check."""
        if levels == self.stored_rows.levels:
            self.peeling.snapshot.load(self.stored_rows)
        else:
            self.peeling.suppress_rows_and_persons(levels, self.allowed_persons, self.allowed_rows)
        return self.peeling.snapshot.kept_rows

    def check(self, levels: Levels) -> LinkedFigures:
        """The figures of a generalization; what stays at the best one so far is stored."""
        figures = self._count_figures(levels)
        if draw_verdict(figures, self.allowed_persons).is_feasible:
            best = self.lattice.best
            if best is None or self.lattice.measure.score(levels, figures) < self.lattice.scores[best]:
                self.stored_rows.store(levels, self.peeling.snapshot.kept_rows)
        return figures

    def _count_figures(self, levels: Levels) -> LinkedFigures:
        persons = self.records.persons
        peeling_result = self.peeling.suppress_rows_and_persons(levels, self.allowed_persons, self.allowed_rows)
        suppressed = peeling_result.suppressed_persons
        is_monotone = not peeling_result.suppressed_rows and not self.peeling.requirements.conditions
        if (
            not peeling_result.is_complete
            or suppressed == persons
            or not (suppressed or peeling_result.suppressed_rows or self.earlier_rows)
        ):
            by_table = tuple(0 for _ in self.records.tables)
            return LinkedFigures(
                classes=int(suppressed < persons),
                suppressed_rows=suppressed,
                least_suppressed=peeling_result.least_suppressed,
                counted_share=1.0 if peeling_result.is_complete else _STOPPED_SHARE,
                suppressed_by_table=by_table,
                is_monotone=is_monotone,
            )
        rows, leaves = suppressed_figures(self.peeling.snapshot.kept_rows, levels)
        return LinkedFigures(
            classes=1,
            suppressed_rows=suppressed,
            least_suppressed=peeling_result.least_suppressed,
            suppressed_leaves=leaves,
            suppressed_by_table=tuple(rows),
            is_monotone=is_monotone,
        )


def suppressed_figures(kept_rows: KeptRows, levels: Levels) -> tuple[list[int], dict[int, float]]:
    """By table, the rows that are not released; by quasi-identifier with labels below its top, the sum of the leaves
    under the labels of these rows, less one each."""
    records = kept_rows.records
    rows: list[int] = []
    leaves: dict[int, float] = {}
    for position, table in enumerate(records.tables):
        query = template("""
            SELECT count(*) AS row_count
            FROM :records AS r
            LEFT JOIN :kept AS kept ON r.person = kept.person
            WHERE kept.person IS NULL
        """)(records=table.records, kept=kept_rows.persons)
        if position and kept_rows.suppressed_rows is not None:
            query = template("""
                SELECT count(*) AS row_count
                FROM :records AS r
                LEFT JOIN :kept AS kept ON r.person = kept.person
                LEFT JOIN :suppressed AS s ON r.row = s.row AND s.position = :position
                WHERE kept.person IS NULL OR s.row IS NOT NULL
            """)(
                records=table.records,
                kept=kept_rows.persons,
                suppressed=kept_rows.suppressed_rows,
                position=position,
            )
        labelled_attributes = [i for i in table.attribute_numbers if records.attributes[i].has_inner_labels(levels[i])]
        for i in labelled_attributes:
            name, level = f"leaves_{i}", levels[i]
            on = col(code_column(i, level), "r").eq(col("code", name))
            of_level = subquery(level_leaves(records.attributes[i], level), name)
            query = query.join(of_level, on=on, copy=False)
            query = query.select(as_column(total(col("leaves", name)), name), copy=False)
        example = [(0,) * (1 + len(labelled_attributes))]
        row_total, *sums = records.runner.fetch_rows(query, example)[0]
        rows.append(row_total)
        leaves |= {i: float(leaf_sum or 0) for i, leaf_sum in zip(labelled_attributes, sums, strict=True)}
    return rows, leaves


def draw_verdict(figures: Figures, allowed_persons: int) -> Verdict:
    """The verdict on a generalization.

    Persons who are suppressed with all their rows are suppressed at every lower generalization, too. This does
    not hold if rows are suppressed individually, because the best choice of rows changes with the levels, or if
    sensitive attributes have requirements, which a higher generalization may violate: then only ``least_suppressed``
    persons are suppressed at every lower generalization.
    """
    assert isinstance(figures, LinkedFigures)
    is_feasible = figures.suppressed_rows <= allowed_persons and figures.classes > 0
    if figures.least_suppressed is None:
        return Verdict(is_feasible, infeasible_below=not is_feasible, feasible_above=is_feasible)
    return Verdict(
        is_feasible,
        infeasible_below=figures.least_suppressed > allowed_persons,
        feasible_above=is_feasible and figures.is_monotone,
    )
