"""The persons and rows that can stay at a generalization.

Persons: the greatest set in which every combination that occurs has k persons. It is found by peeling: remove every
person with an unsupported combination, count again, until nothing changes. The union of two such sets is one, so there
is a greatest one, and a higher generalization has at least its persons.

Child rows may also be suppressed individually, up to a limit. This comes first, in rounds: the rarest row of every
unsupported combination is suppressed, the rarest of all combinations first. Then persons are peeled. Then rows and
persons are restored where the others allow it, until no single one can be restored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.linked.check.group_requirements import GroupRequirements
from sqlanon.linked.check.kept_rows import KeptRows
from sqlanon.linked.check.row_suppression import RowSuppression
from sqlanon.linked.check.snapshot import Snapshot
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.tables import EXAMPLE_ROWS
from sqlanon.policy.linked_sections import Known
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import select_star, subquery, template, union_all

PART_ROWS: Mapping[Known, int] = {1: 4_000_000, 2: 4_000_000, 3: 500_000, "all": 4_000_000}
"""The child rows that are peeled at once, by the rows that an attacker knows."""

POSTPONED_SHARE = 100
"""Before the last size of combinations, a step that would remove fewer than 1 / this number of the persons is
postponed: they are removed with those found at the next size."""

FIRST_PART_DIVISOR = 8
"""The first part of the classes is smaller than the others by this factor."""

# The remainder keeps the product within BIGINT; the factor spreads neighbouring classes over the parts.
_PART = template("""
    SELECT person, class_id
    FROM :kept AS kept
    WHERE class_id % 1000003 * 7919 % :slots BETWEEN :first AND :end - 1
""")

# The fewest persons, those with most rare rows first, without whom the rare rows of the others are at most the allowed
# number.
_COUNT_PERSONS_TO_SUPPRESS = template("""
    WITH rows AS (
        SELECT r.person, kept.class_id, r.known_row
        FROM :known_rows AS r
        JOIN :kept AS kept ON r.person = kept.person
    ),
    rare AS (
        SELECT class_id, known_row FROM rows GROUP BY class_id, known_row HAVING count(DISTINCT person) < :k
    ),
    by_person AS (
        SELECT person, count(*) AS rare_rows
        FROM rows
        SEMI JOIN rare USING (class_id, known_row)
        GROUP BY person
    ),
    remaining AS (
        SELECT
            row_number() OVER (ORDER BY rare_rows DESC, person) AS persons,
            sum(rare_rows) OVER () - sum(rare_rows) OVER (
                ORDER BY rare_rows DESC, person ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
            ) + rare_rows AS rows_before
        FROM by_person
    )
    SELECT count(*) FROM remaining WHERE rows_before > :allowed
""")

_DISTINCT_PERSONS = template("SELECT DISTINCT person FROM :persons AS persons")

_SUPPRESSED_ROWS_OF_KEPT = template("""
    WITH rows_of_kept AS (
        SELECT position, row FROM :known_rows AS r SEMI JOIN :kept AS kept USING (person)
    )
    SELECT s.row FROM :suppressed AS s SEMI JOIN rows_of_kept USING (position, row)
""")


@dataclass(frozen=True)
class PeelingResult:
    """The numbers of persons and rows that are suppressed at a generalization."""

    suppressed_persons: int
    suppressed_rows: int = 0
    """Child rows that are suppressed individually."""
    is_complete: bool = True
    """Whether the peeling ended; otherwise at least this number of persons is suppressed."""
    least_suppressed: int | None = None
    """The fewest persons that are suppressed here and at every lower generalization; None: those that are suppressed
    here."""


class Peeling:
    """Computes the persons and rows that are kept at a generalization, in a `Snapshot`.

    ``earlier_rows`` are the rows of an earlier release: no others are kept, and only persons are suppressed.
    """

    def __init__(self, records: LinkedRecords, k: int, known: Known, earlier_rows: KeptRows | None = None) -> None:
        self.records, self.known = records, known
        self.requirements = GroupRequirements(records)
        self.snapshot = Snapshot(records, k, known, earlier_rows)
        work = records.work
        self._unsupported, self._newly_unsupported = work("unsupported_persons"), work("newly_unsupported_persons")
        self._also_unsupported = work("also_unsupported_persons")

    def suppress_rows_and_persons(self, levels: Levels, allowed_persons: int, allowed_rows: int) -> PeelingResult:
        """Find what can stay; stop once more than the allowed number of persons is removed.

        If suppressing rows leaves too few persons, only persons are suppressed.
        """
        if not allowed_rows or self.snapshot.earlier_rows is not None:
            return self.suppress_persons(levels, allowed_persons)
        snapshot = self.snapshot
        snapshot.start(levels, suppresses_rows=True)
        least = self._least_suppressed(allowed_rows)
        if least > allowed_persons:
            return PeelingResult(least, is_complete=False, least_suppressed=least)
        rows = RowSuppression(snapshot, self.requirements)
        if rows.suppress(allowed_rows):
            while True:
                snapshot.restore_persons()
                peeling_result = self.peel_snapshot(allowed_persons)
                if not peeling_result.is_complete or peeling_result.suppressed_persons > allowed_persons:
                    break
                if not rows.restore():
                    suppressed_rows = _SUPPRESSED_ROWS_OF_KEPT(
                        suppressed=snapshot.suppressed_rows,
                        known_rows=snapshot.all_known_rows,
                        kept=snapshot.kept_persons,
                    )
                    count = snapshot.runner.count(subquery(suppressed_rows), EXAMPLE_ROWS)
                    return PeelingResult(peeling_result.suppressed_persons, count, least_suppressed=least)
        peeling_result = self.suppress_persons(levels, allowed_persons)
        return replace(peeling_result, least_suppressed=least)

    def _least_suppressed(self, allowed_rows: int) -> int:
        """The fewest persons that any choice of rows suppresses, here and at every lower generalization.

        A row that fewer than k persons of its class have is suppressed, by itself or with its person, whatever else is.
        So besides the persons of small classes, enough persons with such rows are suppressed that the others have at
        most the allowed number of them.
        """
        snapshot = self.snapshot
        snapshot.find_unsupported_persons(0, self._unsupported)
        small = self._remove(self._unsupported)
        query = _COUNT_PERSONS_TO_SUPPRESS(
            known_rows=snapshot.released_known_rows(), kept=snapshot.kept_persons, k=snapshot.k, allowed=allowed_rows
        )
        return small + int(snapshot.runner.fetch_rows(query, [(0,)])[0][0])

    def suppress_persons(self, levels: Levels, allowed_persons: int) -> PeelingResult:
        """Find the persons who can stay with all their rows; stop once more than the allowed number is removed.

        Rows that an earlier release suppressed stay suppressed.
        """
        self.snapshot.start(levels)
        return self.peel_snapshot(allowed_persons)

    def peel_snapshot(self, allowed_persons: int) -> PeelingResult:
        """Find the persons who can stay with the rows that are not suppressed individually.

        Persons of different classes share nothing, so the classes are peeled in parts, which fit in memory.
        """
        snapshot, persons = self.snapshot, self.records.persons
        suppressed = 0
        if snapshot.earlier_rows is not None:
            suppressed = persons - snapshot.runner.count(snapshot.kept_persons, EXAMPLE_ROWS)
        snapshot.find_unsupported_persons(0, self._unsupported)
        suppressed += self._remove(self._unsupported)
        if suppressed > allowed_persons or suppressed == persons:
            return PeelingResult(suppressed, is_complete=suppressed == persons)
        for removed in itertools.chain.from_iterable(map(self._peel_part, self._parts())):
            suppressed += removed
            if suppressed > allowed_persons:
                return PeelingResult(suppressed, is_complete=False)
        if not self.requirements.conditions:
            return PeelingResult(suppressed)
        least = suppressed
        for removed in itertools.chain.from_iterable(map(self._meet_requirements, self._parts())):
            suppressed += removed
            if suppressed > allowed_persons:
                break
        return PeelingResult(suppressed, is_complete=suppressed <= allowed_persons, least_suppressed=least)

    def drop_tables(self) -> None:
        """Drop all tables of the checks."""
        self.snapshot.drop_tables()
        self.records.runner.drop(*{sensitive for _, sensitive in self.requirements.conditions})

    def _peel_part(self, part: exp.Expr | None) -> Iterator[int]:
        return self._peel_signatures(part) if self.known == "all" else self._peel_combinations(part)

    def _meet_requirements(self, part: exp.Expr | None) -> Iterator[int]:
        """Remove the persons of groups that violate a requirement, until none does and every group has k persons.

        This keeps a set of persons that meets all requirements, not the greatest one: there may be none.
        """
        snapshot = self.snapshot
        yield from self._peel_part(part)  # counts the combinations of the part again
        for _ in snapshot.runner.rounds():
            snapshot.create(self._unsupported, self.requirements.persons_of_violating_groups(snapshot.groups(part)))
            if not (count := self._count_unsupported()):
                return
            if self.known == "all":
                yield count
                snapshot.remove(self._unsupported)
            else:
                yield from self._remove_unsupported(self.known)

    def _count_unsupported(self) -> int:
        return self.snapshot.runner.count(self._unsupported, EXAMPLE_ROWS // 50)

    def _parts(self) -> Iterator[exp.Expr | None]:
        """Parts of the kept persons by class, a small one first: it shows most of what fails. None: all of them."""
        rows = self.records.child_rows
        slots = math.ceil(FIRST_PART_DIVISOR * rows / PART_ROWS[self.known])
        if slots <= FIRST_PART_DIVISOR:
            yield None
            return
        later_parts = math.ceil((slots - 1) / FIRST_PART_DIVISOR)
        bounds = [0, *(1 + i * (slots - 1) // later_parts for i in range(later_parts + 1))]
        for first, end in itertools.pairwise(bounds):
            yield subquery(_PART(kept=self.snapshot.kept_persons, slots=slots, first=first, end=end))

    def _peel_combinations(self, part: exp.Expr | None) -> Iterator[int]:
        """Remove persons of a part until every combination has k persons; yield the number of persons of each step.

        First all combinations of a size are counted; then, as long as persons are removed, only theirs.
        """
        assert self.known != "all"
        snapshot = self.snapshot
        snapshot.count_occurrences(part)
        few = snapshot.counted_persons // POSTPONED_SHARE
        for size in range(1, self.known + 1):
            if size == 1:
                snapshot.find_unsupported_persons(size, self._unsupported)
            else:  # the postponed persons of the size before are still there
                snapshot.find_unsupported_persons(size, self._newly_unsupported)
                persons = union_all(select_star(self._unsupported), select_star(self._newly_unsupported))
                snapshot.create(self._also_unsupported, _DISTINCT_PERSONS(persons=subquery(persons)))
                self._unsupported, self._also_unsupported = self._also_unsupported, self._unsupported
            yield from self._remove_unsupported(size, 0 if size == self.known else few)

    def _remove_unsupported(self, size: int, few: int = 0) -> Iterator[int]:
        """Remove persons with unsupported combinations of up to ``size`` known rows, until at most ``few`` remain.

        Yields the number of persons who are removed in each step; those who remain are in ``unsupported_persons``.
        """
        is_last = size == self.known and not self.requirements.conditions
        for _ in self.snapshot.runner.rounds():
            if (count := self._count_unsupported()) <= few:
                return
            yield count
            if is_last:
                self.snapshot.narrow_to_classes_of(self._unsupported)
            self.snapshot.remove_and_find_unsupported(size, self._unsupported, self._newly_unsupported)
            self._unsupported, self._newly_unsupported = self._newly_unsupported, self._unsupported

    def _peel_signatures(self, part: exp.Expr | None) -> Iterator[int]:
        """Remove the persons of a part whose signature fewer than k persons have.

        Equal signatures have equal sums, which take less than the lists: where few persons share the sums, fewer share
        the signature.
        """
        for find_persons in (self.snapshot.persons_with_rare_sums, self.snapshot.persons_with_rare_signatures):
            yield self._remove(self.snapshot.create(self._unsupported, find_persons(part)))

    def _remove(self, persons: exp.Table) -> int:
        """Remove persons; return their number."""
        if count := self.snapshot.runner.count(persons, EXAMPLE_ROWS // 50):
            self.snapshot.remove(persons)
        return count
