"""The persons and rows that can stay at a generalization.

Persons: the greatest set in which every combination that occurs has k persons. It is found by peeling: remove every
person with an unsupported combination, count again, until nothing changes. The union of two such sets is one, so there
is a greatest one, and a higher generalization has at least its persons.

Child rows may also be suppressed by themselves, up to a limit. This comes first, in rounds: of every unsupported
combination the rarest row, the rarest of all combinations first. Then persons are peeled. Then rows and persons are put
back where the others allow it, so that none could be put back alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sqlglot import exp

from sqlanon.linked.group_requirements import GroupRequirements
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.row_suppression import RowSuppression
from sqlanon.linked.snapshot import Snapshot
from sqlanon.policy.linked import Known
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import subquery, template

PART_ROWS: Mapping[Known, int] = {1: 4_000_000, 2: 4_000_000, 3: 500_000, "all": 4_000_000}
"""The child rows that are peeled at once, by the rows that an attacker knows."""

FEW_PARTS = 8
"""The first part of the classes is smaller than the others by this factor."""

_PART = template("""
    SELECT person, class_id
    FROM :kept AS kept
    WHERE class_id % 1000003 * 7919 % :slots BETWEEN :first AND :end - 1
""")


@dataclass(frozen=True)
class Kept:
    """What can stay at a generalization."""

    suppressed_persons: int
    suppressed_rows: int = 0
    """Child rows that are suppressed by themselves."""
    is_complete: bool = True
    """Whether the peeling ended; otherwise at least this number of persons is suppressed."""
    least_suppressed: int | None = None
    """The fewest persons that are suppressed here and at every lower generalization; None: those that are suppressed
    here."""


class Peeling:
    """Finds what can stay at a generalization; leaves it in a `Snapshot`."""

    def __init__(self, records: LinkedRecords, k: int, known: Known) -> None:
        self.records, self.known = records, known
        self.requirements = GroupRequirements(records)
        self.snapshot = Snapshot(records, k, known)
        work = records.tables[0].run.work
        self._weak, self._weakened = work("weak_persons"), work("weakened_persons")

    @property
    def kept_persons(self) -> exp.Table:
        """The persons who stay."""
        return self.snapshot.kept_persons

    def find(self, levels: Levels, allowed_persons: int, allowed_rows: int) -> Kept:
        """Find what can stay; stop once more than the allowed number of persons is removed.

        If suppressing rows leaves too few persons, only persons are suppressed.
        """
        if not allowed_rows:
            return self.peel(levels, allowed_persons)
        snapshot = self.snapshot
        snapshot.start(levels, suppresses_rows=True)
        least = self._least_suppressed(allowed_rows)
        if least > allowed_persons:
            return Kept(least, is_complete=False, least_suppressed=least)
        rows = RowSuppression(snapshot)
        if rows.suppress(allowed_rows):
            while True:
                snapshot.restore_persons()
                kept = self.peel_persons(allowed_persons)
                if not kept.is_complete or kept.suppressed_persons > allowed_persons:
                    break
                if not rows.restore():
                    own = template("SELECT row FROM :suppressed AS s SEMI JOIN (:rows) AS r USING (position, row)")
                    kept_rows = template(
                        "SELECT position, row FROM :known_rows AS k SEMI JOIN :kept AS kept USING (person)"
                    )
                    of_kept = kept_rows(known_rows=snapshot.all_known_rows, kept=self.kept_persons)
                    count = snapshot.count(subquery(own(suppressed=snapshot.suppressed_rows, rows=of_kept)))
                    return Kept(kept.suppressed_persons, count, least_suppressed=least)
        kept = self.peel(levels, allowed_persons)
        return replace(kept, least_suppressed=least)

    def _least_suppressed(self, allowed_rows: int) -> int:
        """The fewest persons that any choice of rows suppresses, here and at every lower generalization.

        A row that fewer than k persons of its class have is suppressed, by itself or with its person, whatever else is.
        So besides the persons of small classes, enough persons with such rows are suppressed that the others have at
        most the allowed number of them.
        """
        snapshot = self.snapshot
        snapshot.find_weak_persons(0, self._weak)
        small = snapshot.remove(self._weak)
        query = template("""
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
        query_ = query(
            known_rows=snapshot.released_known_rows(), kept=self.kept_persons, k=snapshot.k, allowed=allowed_rows
        )
        return small + int(snapshot.runner.engine.rows(query_)[0][0])

    def peel(self, levels: Levels, allowed_persons: int) -> Kept:
        """Find the persons who can stay with all their rows; stop once more than the allowed number is removed."""
        self.snapshot.start(levels)
        return self.peel_persons(allowed_persons)

    def peel_persons(self, allowed_persons: int) -> Kept:
        """Find the persons who can stay with the rows that are not suppressed by themselves.

        Persons of different classes share nothing, so the classes are peeled in parts, which fit in memory.
        """
        snapshot, persons = self.snapshot, self.records.persons
        snapshot.find_weak_persons(0, self._weak)
        suppressed = snapshot.remove(self._weak)
        if suppressed > allowed_persons or suppressed == persons:
            return Kept(suppressed, is_complete=suppressed == persons)
        for removed in itertools.chain.from_iterable(map(self._peel, self._parts())):
            suppressed += removed
            if suppressed > allowed_persons:
                return Kept(suppressed, is_complete=suppressed == persons)
        if not self.requirements.conditions:
            return Kept(suppressed)
        least = suppressed
        for removed in itertools.chain.from_iterable(map(self._meet_requirements, self._parts())):
            suppressed += removed
            if suppressed > allowed_persons:
                break
        is_complete = suppressed <= allowed_persons or suppressed == persons
        return Kept(suppressed, is_complete=is_complete, least_suppressed=least)

    def _peel(self, part: exp.Expr | None) -> Iterator[int]:
        return self._peel_signatures(part) if self.known == "all" else self._peel_combinations(part)

    def _meet_requirements(self, part: exp.Expr | None) -> Iterator[int]:
        """Remove the persons of groups that violate a requirement, until none does and every group has k persons.

        This keeps a set of persons that meets all requirements, not the greatest one: there may be none.
        """
        snapshot = self.snapshot
        yield from self._peel(part)  # counts the combinations of the part again
        while True:
            snapshot.create(self._weak, self.requirements.weak_persons(snapshot.groups(part)))
            if not snapshot.count(self._weak):
                return
            if self.known == "all":
                yield snapshot.remove(self._weak)
            else:
                yield from self._remove_weak(self.known)

    def _parts(self) -> Iterator[exp.Expr | None]:
        """Parts of the kept persons by class, a small one first: it shows most of what fails. None: all of them."""
        rows = self.records.child_rows
        slots = math.ceil(FEW_PARTS * rows / PART_ROWS[self.known])
        if slots <= FEW_PARTS:
            yield None
            return
        others = math.ceil((slots - 1) / FEW_PARTS)
        bounds = [0, *(1 + i * (slots - 1) // others for i in range(others + 1))]
        for first, end in itertools.pairwise(bounds):
            yield subquery(_PART(kept=self.kept_persons, slots=slots, first=first, end=end))

    def _peel_combinations(self, part: exp.Expr | None) -> Iterator[int]:
        """Remove persons of a part until every combination has k persons; yield the number of persons of each step.

        First all combinations of a size are counted; then, as long as persons are removed, only theirs.
        """
        assert self.known != "all"
        snapshot = self.snapshot
        snapshot.count_occurrences(part)
        for size in range(1, self.known + 1):
            snapshot.find_weak_persons(size, self._weak)
            yield from self._remove_weak(size)

    def _remove_weak(self, size: int) -> Iterator[int]:
        """Remove the weak persons, and those who are weak then, for combinations of up to a number of known rows."""
        weak, weakened = self._weak, self._weakened
        while self.snapshot.count(weak):
            yield self.snapshot.remove_and_find_weak(size, weak, weakened)
            weak, weakened = weakened, weak

    def _peel_signatures(self, part: exp.Expr | None) -> Iterator[int]:
        """Remove the persons of a part whose signature fewer than k persons have.

        Equal signatures have equal sums, which take less than the lists: where few persons share the sums, fewer share
        the signature.
        """
        yield self._remove(self.snapshot.weak_sums(part))
        yield self._remove(self.snapshot.weak_signatures(part))

    def _remove(self, weak: exp.Select) -> int:
        return self.snapshot.remove(self.snapshot.create(self._weak, weak))
