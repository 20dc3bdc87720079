"""Suppression of single child rows, within a limit, and their restoration.

An *occurrence* is a copy of a known row of a person. In each unsupported combination the occurrence with the fewest
persons of the class is suppressed: the rows from that copy on, with the rows that belong to them. Occurrences are taken
in the order of their persons, then of class, known row and copy, as long as their rows are within the limit.

Tables: ``unsupported_occurrences`` (``person``, ``occurrence``), ``suppressible_rows`` (``position``, ``row``,
``rank``), and ``restorable_rows``: suppressed rows that might be restored.
"""

from __future__ import annotations

from sqlglot import exp

from sqlanon.linked.check.group_requirements import GroupRequirements
from sqlanon.linked.check.occurrences import combination_keys, known_row_of
from sqlanon.linked.check.snapshot import Snapshot
from sqlanon.linked.tables import EXAMPLE_ROWS
from sqlanon.support.expressions import (
    col,
    cols,
    equal_values,
    fragment,
    same_values,
    select_star,
    subquery,
    template,
    union_all,
)

_RARITY = fragment("""
    {
        'persons': s.persons,
        'row': :occurrence // :copy_numbers,
        'copy': -(:occurrence % :copy_numbers)
    }
""")

_RAREST_OF_COMBINATIONS = template("""
    WITH combinations AS (:combinations),
    unsupported AS (
        SELECT *, row_number() OVER () AS number
        FROM (SELECT :keys FROM combinations AS c GROUP BY :keys HAVING count(*) < :k) AS rare
    ),
    parts AS (:parts),
    rarest AS (
        SELECT
            p.number,
            arg_min(p.occurrence, :rarity) AS occurrence
        FROM parts AS p
        JOIN :supports AS s ON p.occurrence = s.occurrence
        GROUP BY p.number
    )
    SELECT DISTINCT c.person, r.occurrence
    FROM combinations AS c
    JOIN unsupported AS u ON :same
    JOIN rarest AS r ON u.number = r.number
""")

_PART = template("SELECT number, :occurrence AS occurrence FROM unsupported AS u")

_RAREST_OF_PERSONS = template("""
    SELECT
        o.person,
        arg_min(o.occurrence, :rarity) AS occurrence
    FROM :occurrences AS o
    SEMI JOIN :unsupported AS unsupported ON o.person = unsupported.person
    JOIN :supports AS s ON o.occurrence = s.occurrence
    GROUP BY o.person
""")

_SUPPRESSIBLE_ROWS = template("""
    WITH unsupported AS (
        SELECT
            person,
            occurrence,
            :known_row AS known_row,
            occurrence % :copy_numbers AS copy
        FROM :unsupported AS unsupported_occurrences
    ),
    numbered AS (
        SELECT
            position,
            row,
            person,
            known_row,
            row_number() OVER (PARTITION BY person, known_row ORDER BY position, row) AS copy
        FROM :known_rows AS r
        SEMI JOIN unsupported USING (person, known_row)
    )
    SELECT n.position, n.row, min({'persons': s.persons, 'occurrence': u.occurrence}) AS rank
    FROM numbered AS n
    JOIN unsupported AS u ON n.person = u.person AND n.known_row = u.known_row AND n.copy >= u.copy
    JOIN :supports AS s ON u.occurrence = s.occurrence
    GROUP BY n.position, n.row
""")

_CHILDREN_OF_SUPPRESSIBLE = template("""
    SELECT :position AS position, children.row, suppressible.rank
    FROM :rows AS children
    JOIN :suppressible AS suppressible ON suppressible.position = :parent AND children.parent = suppressible.row
""")

_WITHIN_LIMIT = template("""
    WITH ranked AS (
        SELECT position, row, min(rank) AS rank FROM :suppressible AS suppressible GROUP BY position, row
    ),
    totals AS (
        SELECT rank, sum(row_count) OVER (ORDER BY rank) AS row_total
        FROM (SELECT rank, count(*) AS row_count FROM ranked GROUP BY rank) AS counted
    )
    SELECT ranked.position, ranked.row
    FROM ranked
    JOIN totals ON ranked.rank = totals.rank
    WHERE totals.row_total <= :allowed
""")

_RESTORABLE_ROWS = template("""
    WITH suppressed AS (
        SELECT r.position, r.row, r.parent, r.person, r.known_row, kept.class_id
        FROM :known_rows AS r
        SEMI JOIN :suppressed AS s USING (position, row)
        JOIN :kept AS kept ON r.person = kept.person
    ),
    copies AS (
        SELECT person, known_row, count(*) AS copies FROM :released AS r GROUP BY person, known_row
    )
    SELECT
        t.position,
        t.row,
        t.person,
        t.class_id,
        (t.class_id * :row_numbers + t.known_row) * :copy_numbers + coalesce(c.copies, 0) + 1 AS occurrence,
        coalesce(c.copies, 0) + 1 AS copy,
        row_number() OVER (ORDER BY t.person, t.position, t.row) - 1 AS number
    FROM suppressed AS t
    LEFT JOIN copies AS c ON t.person = c.person AND t.known_row = c.known_row
    LEFT JOIN :suppressed AS suppressed_parents
        ON suppressed_parents.row = t.parent AND suppressed_parents.position = :parent_position
    WHERE suppressed_parents.row IS NULL
""")

# Each restorable row is tried as if it were a separate person, whose id is the row's number. Combinations with more
# copies of a row than an attacker knows are not counted.
_UNRESTORABLE_ROWS = template("""
    WITH restored_occurrences AS (
        SELECT t.number AS person, o.occurrence
        FROM :restorable AS t
        JOIN :occurrences AS o ON t.person = o.person
        UNION ALL
        SELECT number AS person, occurrence FROM :restorable AS added WHERE copy < :copy_numbers
    ),
    restored AS (
        SELECT c.*
        FROM (:restored_combinations) AS c
        JOIN :restorable AS t ON c.person = t.number
        WHERE :contains
    ),
    counted AS (
        SELECT :keys, count(*) AS persons
        FROM (:combinations) AS c
        SEMI JOIN restored ON :same_combination
        GROUP BY :keys
    )
    SELECT DISTINCT restored.person AS number
    FROM restored
    LEFT JOIN counted ON :same
    WHERE coalesce(counted.persons, 0) < :others
""")

_FIRST_OF_PERSONS = template("""
    SELECT position, row
    FROM (
        SELECT *, row_number() OVER (PARTITION BY person ORDER BY number) AS rank
        FROM :restorable AS t
        ANTI JOIN :unrestorable AS unrestorable USING (number)
    ) AS ranked
    WHERE rank = 1
""")

_UNITS = template("""
    SELECT person AS unit, person, class_id, NULL::TINYINT AS position, NULL::INTEGER AS row FROM :kept AS kept
    UNION ALL
    SELECT :persons + number AS unit, person, class_id, position, row FROM :restorable AS restorable
""")

# A person may leave a signature only if k others keep it. One person of a class moves at a time.
_FIRST_OF_CLASSES = template("""
    WITH signatures AS (:signatures),
    counted AS (
        SELECT :key, count(*) AS persons FROM signatures AS s WHERE unit < :persons GROUP BY :key
    ),
    moves AS (
        SELECT
            t.position,
            t.row,
            row_number() OVER (PARTITION BY t.class_id ORDER BY t.number) AS rank
        FROM :restorable AS t
        JOIN signatures AS moved ON moved.unit = :persons + t.number
        JOIN counted AS joined ON :joins
        JOIN signatures AS current ON current.unit = t.person
        JOIN counted AS left_behind ON :leaves
        WHERE joined.persons >= :others AND left_behind.persons > :k
    )
    SELECT position, row FROM moves WHERE rank = 1
""")


class RowSuppression:
    """Suppresses child rows of a snapshot individually, and restores them.

    Rows are restored only as long as the ``requirements`` on sensitive attributes hold.
    """

    def __init__(self, snapshot: Snapshot, requirements: GroupRequirements) -> None:
        self.snapshot, self.requirements, work = snapshot, requirements, snapshot.work
        self._unsupported, self._persons = work("unsupported_occurrences"), work("persons_with_rare_rows")
        self._suppressible, self._chosen = work("suppressible_rows"), work("chosen_rows")
        self._restorable, self._unrestorable = work("restorable_rows"), work("unrestorable_rows")
        self._units, self._remaining = work("units"), work("remaining_rows")

    def suppress(self, allowed_rows: int) -> bool:
        """Suppress rows of unsupported combinations, up to the allowed number; return whether any is suppressed.

        Persons of small classes are removed from the snapshot first: their rows are not suppressed individually.
        """
        snapshot, suppressed = self.snapshot, 0
        snapshot.find_unsupported_persons(0, self._persons)
        snapshot.remove(self._persons)
        for _ in snapshot.runner.rounds():
            snapshot.count_occurrences()
            snapshot.find_unsupported_persons(1, self._persons)
            if not self._find_unsupported_occurrences():
                break
            self._find_suppressible_rows()
            chosen = _WITHIN_LIMIT(suppressible=self._suppressible, allowed=allowed_rows - suppressed)
            count = snapshot.runner.count(snapshot.create(self._chosen, chosen), EXAMPLE_ROWS)
            snapshot.runner.add(snapshot.suppressed_rows, select_star(self._chosen.copy()))
            suppressed += count
            if not count or suppressed == allowed_rows:
                break
        return suppressed > 0

    def _find_unsupported_occurrences(self) -> bool:
        """Whether a combination is unsupported; stores the rarest occurrence of each, of the smallest size."""
        snapshot = self.snapshot
        if snapshot.known == "all":
            snapshot.create(self._persons, snapshot.persons_with_rare_signatures())
            query = _RAREST_OF_PERSONS(
                occurrences=snapshot.occurrences,
                unsupported=self._persons,
                supports=self.snapshot.supports(1),
                rarity=_RARITY(occurrence=col("occurrence", "o"), copy_numbers=snapshot.copy_numbers),
            )
            return snapshot.runner.count(snapshot.create(self._unsupported, query), EXAMPLE_ROWS) > 0
        for size in range(1, snapshot.known + 1):
            parts = [_PART(occurrence=col(name)) for name in combination_keys(size)]
            query = _RAREST_OF_COMBINATIONS(
                combinations=snapshot.combinations(size, snapshot.occurrences),
                rarity=_RARITY(occurrence=col("occurrence", "p"), copy_numbers=snapshot.copy_numbers),
                keys=cols(combination_keys(size)),
                k=snapshot.k,
                parts=union_all(*parts),
                supports=self.snapshot.supports(1),
                same=equal_values(combination_keys(size), "c", "u"),
            )
            if snapshot.runner.count(snapshot.create(self._unsupported, query)):
                return True
        return snapshot.runner.dry

    def _find_suppressible_rows(self) -> None:
        """Store the rows of unsupported occurrences in the order of their suppression, with the rows that belong to
        them."""
        snapshot = self.snapshot
        rows = _SUPPRESSIBLE_ROWS(
            known_rows=snapshot.released_known_rows(),
            unsupported=self._unsupported,
            supports=self.snapshot.supports(1),
            known_row=known_row_of(col("occurrence"), snapshot.known, snapshot.row_numbers),
            copy_numbers=snapshot.copy_numbers,
        )
        snapshot.create(self._suppressible, rows)
        tables = snapshot.records.tables
        for position, table in enumerate(tables):
            if table.parent is not None and not table.parent.is_person_table:
                children = _CHILDREN_OF_SUPPRESSIBLE(
                    position=position,
                    rows=snapshot.released_rows(position),
                    suppressible=self._suppressible,
                    parent=table.parent.position,
                )
                snapshot.runner.add(self._suppressible, children)

    def restore(self) -> bool:
        """Restore suppressed rows that can be restored one at a time, until none can; return whether any was restored.

        Rows that are restored together may violate a requirement: then they stay suppressed, and the restoration ends.
        """
        runner, is_restored = self.snapshot.runner, False
        for _ in runner.rounds():
            self._find_restorable_rows()
            if not runner.count(self._restorable, EXAMPLE_ROWS):
                break
            chosen = (
                self._choose_rows_by_signature()
                if self.snapshot.known == "all"
                else self._choose_rows_by_combinations()
            )
            if not runner.count(self.snapshot.create(self._chosen, chosen), EXAMPLE_ROWS):
                break
            self._restore_rows()
            if self.requirements.conditions and self._count_violating_persons():
                runner.add(self.snapshot.suppressed_rows, select_star(self._chosen.copy()))
                break
            is_restored = not runner.dry
        return is_restored

    def _count_violating_persons(self) -> int:
        """The persons of groups that violate a requirement."""
        snapshot = self.snapshot
        snapshot.count_occurrences()
        violating = self.requirements.persons_of_violating_groups(snapshot.groups(None))
        return snapshot.runner.count(snapshot.create(self._persons, violating))

    def _restore_rows(self) -> None:
        """Remove the chosen rows from the suppressed ones."""
        snapshot = self.snapshot
        remaining = template("SELECT * FROM :suppressed AS s ANTI JOIN :chosen AS chosen USING (position, row)")
        snapshot.create(self._remaining, remaining(suppressed=snapshot.suppressed_rows, chosen=self._chosen))
        snapshot.create(snapshot.suppressed_rows, select_star(self._remaining.copy()))

    def _find_restorable_rows(self) -> None:
        snapshot = self.snapshot
        tables = snapshot.records.tables
        released = snapshot.released_known_rows()
        parent_position = exp.Case(this=col("position", "t"))
        for position, table in enumerate(tables[1:], 1):
            assert table.parent is not None
            parent = table.parent.position
            parent_position = parent_position.when(exp.convert(position), exp.convert(parent or -1), copy=False)
        restorable_rows = _RESTORABLE_ROWS(
            known_rows=snapshot.all_known_rows,
            suppressed=snapshot.suppressed_rows,
            kept=snapshot.kept_persons,
            released=released,
            parent_position=parent_position,
            row_numbers=snapshot.row_numbers,
            copy_numbers=snapshot.copy_numbers,
        )
        snapshot.create(self._restorable, restorable_rows)

    def _choose_rows_by_combinations(self) -> exp.Select:
        """The first row of each person that can be restored, because its combinations then have k persons."""
        snapshot = self.snapshot
        snapshot.count_occurrences()
        unrestorable_parts: list[exp.Query] = []
        assert snapshot.known != "all"
        for size in range(1, snapshot.known + 1):
            keys = combination_keys(size)
            is_part = [col(name, "c").eq(col("occurrence", "t")) for name in keys]
            restored_occurrences = exp.to_table('"restored_occurrences"')
            unrestorable_parts.append(
                _UNRESTORABLE_ROWS(
                    restorable=self._restorable,
                    occurrences=snapshot.occurrences,
                    copy_numbers=snapshot.copy_numbers,
                    restored_combinations=snapshot.combinations(size, restored_occurrences),
                    contains=exp.or_(*is_part, copy=False),
                    keys=cols(keys, "c"),
                    combinations=snapshot.combinations(size, snapshot.occurrences),
                    same_combination=equal_values(keys, "c", "restored"),
                    same=equal_values(keys, "restored", "counted"),
                    others=snapshot.k - 1,
                )
            )
        parts = [
            template("SELECT number FROM :unrestorable AS u")(unrestorable=subquery(query))
            for query in unrestorable_parts
        ]
        snapshot.create(
            self._unrestorable, template("SELECT DISTINCT number FROM :all AS f")(all=subquery(union_all(*parts)))
        )
        return _FIRST_OF_PERSONS(restorable=self._restorable, unrestorable=self._unrestorable)

    def _choose_rows_by_signature(self) -> exp.Select:
        """The first row of each class that can be restored, because k persons then have the new signature, and k or
        none the old one."""
        snapshot = self.snapshot
        persons = snapshot.records.persons
        snapshot.create(self._units, _UNITS(kept=snapshot.kept_persons, persons=persons, restorable=self._restorable))
        signatures, names = snapshot.signatures(self._units)
        return _FIRST_OF_CLASSES(
            signatures=signatures,
            key=cols(names),
            persons=persons,
            restorable=self._restorable,
            joins=same_values(names, "moved", "joined"),
            leaves=same_values(names, "current", "left_behind"),
            others=snapshot.k - 1,
            k=snapshot.k,
        )
