"""Persons who share an attacker's knowledge, where each class of persons has levels of its own.

A *grouping* is a table of persons with their class (``person``, ``class_id``), and a table of the levels of each class
(``class_id``, ``level_0``, ``level_1``, ...). `snapshot` does the same for one generalization of all persons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from sqlanon.linked.records import LinkedTable
from sqlanon.linked.snapshot import Snapshot
from sqlanon.policy.linked import Known
from sqlanon.support.coding import code_column, dense_rank
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    cols,
    drop_table,
    fragment,
    number,
    subquery,
    template,
    union_all,
)

_MOST_CODES = 2**58

_PART = 40_000_000
"""About the number of combinations that are counted at once."""

_KNOWN_ROWS = template("""
    SELECT members.person, members.class_id, :known_row AS known_row
    FROM :rows AS r
    JOIN :members AS members ON r.person = members.person
    JOIN :levels AS class_levels ON members.class_id = class_levels.class_id
""")

# An item is a known row with the number of its copy. A person has those of its known rows, up to m copies of each.
_ITEMS = template("""
    WITH counted AS (
        SELECT person, class_id, known_row, least(count(*), :known) AS copies
        FROM :known_rows AS known_rows
        GROUP BY person, class_id, known_row
    )
    SELECT person, class_id, known_row * 4 + unnest(range(1, copies + 1)) AS item
    FROM counted
""")

# A combination lists its items in ascending order; a further copy of a row follows the one before it.
_COMBINATIONS = {
    1: template("SELECT person, class_id, item AS item_1 FROM :items AS a WHERE item % 4 = 1"),
    2: template("""
        SELECT a.person, a.class_id, a.item AS item_1, b.item AS item_2
        FROM :items AS a
        JOIN :items AS b ON a.person = b.person AND b.item > a.item AND (b.item % 4 = 1 OR b.item = a.item + 1)
        WHERE a.item % 4 = 1
    """),
    3: template("""
        SELECT a.person, a.class_id, a.item AS item_1, b.item AS item_2, c.item AS item_3
        FROM :items AS a
        JOIN :items AS b ON a.person = b.person AND b.item > a.item AND (b.item % 4 = 1 OR b.item = a.item + 1)
        JOIN :items AS c ON a.person = c.person AND c.item > b.item AND (c.item % 4 = 1 OR c.item = b.item + 1)
        WHERE a.item % 4 = 1
    """),
}

_UNSUPPORTED = template("""
    WITH combinations AS MATERIALIZED (:combinations),
    unsupported AS (SELECT class_id, :keys FROM combinations AS c GROUP BY class_id, :keys HAVING count(*) < :k)
    SELECT DISTINCT c.person, c.class_id
    FROM combinations AS c
    SEMI JOIN unsupported ON c.class_id = unsupported.class_id AND :same
""")

_SMALL_CLASSES = template("""
    SELECT person, class_id
    FROM :members AS members
    SEMI JOIN (SELECT class_id FROM :members AS c GROUP BY class_id HAVING count(*) < :k) AS small USING (class_id)
""")

# Only classes that have lost persons can have others who cannot stay.
_UNSUPPORTED_OF_CHANGED = template("""
    WITH changed AS (SELECT DISTINCT class_id FROM :removed AS removed),
    changed_members AS MATERIALIZED (
        SELECT members.person, members.class_id FROM :members AS members SEMI JOIN changed USING (class_id)
    ),
    changed_items AS MATERIALIZED (
        SELECT i.person, i.class_id, i.item FROM :items AS i SEMI JOIN changed USING (class_id)
    )
    SELECT DISTINCT person, class_id FROM (:unsupported) AS unsupported
""")

_NUMBERED_SIGNATURES = template("""
    WITH signatures AS (:signatures)
    SELECT
        person,
        class_id,
        (dense_rank() OVER (ORDER BY class_id, :lists) - 1)::INTEGER AS signature
    FROM signatures AS s
""")

_SHARED_SIGNATURES = template("""
    SELECT person, signature AS class_id
    FROM :numbered AS n
    SEMI JOIN (
        SELECT signature FROM :numbered AS counted GROUP BY signature HAVING count(*) >= :k
    ) AS shared USING (signature)
""")


@dataclass
class ClassSnapshot:
    """Finds the persons of a grouping who can stay. ``snapshot`` has the rows that are suppressed by themselves."""

    snapshot: Snapshot
    k: int
    known: Known
    _created: set[str] = field(default_factory=set)

    def create(self, name: str, query: exp.Query) -> exp.Table:
        """Create a table of the run, in place of an earlier one."""
        target = self.snapshot.work(name)
        self.snapshot.runner.engine.execute(drop_table(target.copy(), exists=True))
        self._created.add(name)
        return self.snapshot.runner.create_table(target, query)

    def drop_all_except(self, *tables: exp.Table) -> None:
        """Drop the created tables but some."""
        retained = {table.name for table in tables}
        for name in self._created - retained:
            self.snapshot.runner.engine.execute(drop_table(self.snapshot.work(name)))
        self._created &= retained

    def peel(self, members: exp.Table, levels: exp.Table) -> None:
        """Delete the persons of a grouping who cannot stay: the greatest set remains."""
        assert self.known != "all"
        self.peel_classes(members)
        known_rows = subquery(self._known_rows(members, levels), "known_rows")
        items = self.create("class_items", _ITEMS(known_rows=known_rows, known=self.known))
        removed = self.create("unsupported_members_0", template("SELECT * FROM :m AS m LIMIT 0")(m=members))
        for size in range(1, self.known + 1):  # the smallest first: they are few, and leave fewer to combine
            slots = self._count_slots(size)
            for slot in range(slots):
                unsupported = self.create(
                    "unsupported_members", _find_unsupported(size, members, items, self.k, slots, slot)
                )
                if self._remove(unsupported, members, items):
                    self.snapshot.runner.add(removed, template("SELECT * FROM :u AS u")(u=unsupported))
        changed_members, changed_items = (exp.to_table(f'"changed_{name}"') for name in ("members", "items"))
        parity = 1
        while self.snapshot.count(removed):
            sizes = range(self.known + 1)
            combinations = union_all(
                *(_find_unsupported(size, changed_members, changed_items, self.k) for size in sizes)
            )
            query = _UNSUPPORTED_OF_CHANGED(removed=removed, members=members, items=items, unsupported=combinations)
            removed = self.create(f"unsupported_members_{parity}", query)
            self._remove(removed, members, items)
            parity = 1 - parity

    def _count_slots(self, size: int) -> int:
        """The number of parts in which combinations of a size are counted, so that each fits in memory."""
        records = self.snapshot.records
        mean = records.child_rows / records.persons
        combinations = records.persons * math.comb(math.ceil(mean) + size - 1, size)
        return max(1, math.ceil(combinations / _PART))

    def peel_classes(self, members: exp.Table) -> None:
        """Delete the persons in classes of fewer than k."""
        self._remove(self.create("unsupported_members", _SMALL_CLASSES(members=members, k=self.k)), members)

    def _remove(self, persons: exp.Table, *tables: exp.Table) -> int:
        """Delete persons from tables; return their number."""
        removed = self.snapshot.count(persons)
        if removed:
            for rows in tables:
                self.delete_persons(rows, persons)
        return removed

    def delete_persons(self, rows: exp.Table, persons: exp.Table) -> None:
        """Delete the rows of some persons from a table."""
        delete = fragment("DELETE FROM :rows WHERE person IN (SELECT person FROM :persons AS p)")
        self.snapshot.runner.engine.execute(delete(rows=rows, persons=persons))

    def share_signatures(self, target: str, members: exp.Table, levels: exp.Table) -> exp.Table:
        """The persons of a grouping whose signature k persons of their class have; ``class_id`` numbers signatures."""
        query, lists = self._signatures(members, levels)
        numbered = self.create("class_signatures", _NUMBERED_SIGNATURES(signatures=query, lists=lists))
        return self.create(target, _SHARED_SIGNATURES(numbered=numbered, k=self.k))

    # --- Codes

    def _known_rows(self, members: exp.Table, levels: exp.Table) -> exp.Query:
        """The known rows of the persons: ``person``, ``class_id``, ``known_row``."""
        parts: list[exp.Query] = []
        offset = 0
        for position, table in enumerate(self.snapshot.records.tables[1:], 1):
            code, count = self._pack(table.known_row_attributes, table)
            known_row = cast(code, "BIGINT") + number(offset)
            rows = self.snapshot.released_rows(position)
            parts.append(_KNOWN_ROWS(known_row=known_row, rows=rows, members=members, levels=levels))
            offset += count
        if not parts:
            return template("SELECT *, 0::BIGINT AS known_row FROM :members AS members LIMIT 0")(members=members)
        return union_all(*parts)

    def _pack(self, attributes: Sequence[int], table: LinkedTable) -> tuple[exp.Expr, int]:
        """A number for each combination of codes at the levels of a class, and a bound of these numbers."""
        records = self.snapshot.records
        codes = {i: self.code(i) for i in attributes if records.attributes[i].height}
        counts = {i: max(records.code_counts[i]) for i in codes}
        size = math.prod(counts.values())
        if size >= _MOST_CODES // (4 * len(records.tables)):
            return dense_rank([*codes.values()], "BIGINT"), table.rows
        code: exp.Expr = number(0)
        for i, count in counts.items():
            code = cast(codes[i], "BIGINT") + number(count) * exp.Paren(this=code)
        return code, size

    def code(self, attribute: int) -> exp.Expr:
        """The code of a quasi-identifier of a row ``r`` at the level in ``class_levels``."""
        code = exp.Case(this=col(f"level_{attribute}", "class_levels"), default=number(0))
        for level in range(self.snapshot.records.attributes[attribute].height):
            code = code.when(number(level), col(code_column(attribute, level), "r"), copy=False)
        return code

    # --- Signatures

    def _signatures(self, members: exp.Table, levels: exp.Table) -> tuple[exp.Select, list[exp.Expr]]:
        """The signature of each person, and the lists that make it beside the class: by table of direct child rows."""
        query = template("SELECT owner.person, owner.class_id FROM :members AS owner")(members=members)
        lists: list[exp.Expr] = []
        for position, table in enumerate(self.snapshot.records.tables):
            if table.parent is not None and table.parent.is_person_table:
                name = f"rows_{position}"
                query = query.select(as_column(col("signatures", name), name), copy=False)
                child_signatures = subquery(self._child_signatures(position, members, levels), name)
                on = col("person", "owner").eq(col("parent", name))
                query = query.join(child_signatures, on=on, join_type="left", copy=False)
                lists.append(col(name))
        return query, lists or [number(0)]

    def _child_signatures(self, position: int, members: exp.Table, levels: exp.Table) -> exp.Select:
        """By parent row, the sorted signatures of its rows in a table: ``parent`` and ``signatures``."""
        list_signatures = template(
            "SELECT parent, list_sort(list(signature)) AS signatures FROM :rows AS rows GROUP BY parent"
        )
        return list_signatures(rows=subquery(self._row_signatures(position, members, levels), "rows"))

    def _row_signatures(self, position: int, members: exp.Table, levels: exp.Table) -> exp.Select:
        """``parent`` and ``signature``: a number for each distinct row of a table with its nested child rows."""
        tables = self.snapshot.records.tables
        code, _ = self._pack(tables[position].attribute_numbers, tables[position])
        query = template("""
            SELECT r.row, r.parent, :code::BIGINT AS code
            FROM :rows AS r
            JOIN :members AS members ON r.person = members.person
            JOIN :levels AS class_levels ON members.class_id = class_levels.class_id
        """)(code=code, rows=self.snapshot.released_rows(position), members=members, levels=levels)
        children = [i for i, child in enumerate(tables) if child.parent is tables[position]]
        if not children:
            return template("SELECT parent, code AS signature FROM :rows AS rows")(rows=query)
        nested = template("SELECT rows.parent, rows.code FROM :rows AS rows")(rows=query)
        lists = []
        for child in children:
            name = f"rows_{child}"
            nested = nested.select(as_column(col("signatures", name), name), copy=False)
            child_signatures = subquery(self._child_signatures(child, members, levels), name)
            nested = nested.join(
                child_signatures, on=col("row", "rows").eq(col("parent", name)), join_type="left", copy=False
            )
            lists.append(name)
        rank = dense_rank([col("code", "nested"), *cols(lists, "nested")], "BIGINT")
        ranked = template("SELECT parent, :rank AS signature FROM :nested AS nested")
        return ranked(rank=rank, nested=subquery(nested, "nested"))


def _find_unsupported(
    size: int, members: exp.Table, items: exp.Table, k: int, slots: int = 1, slot: int = 0
) -> exp.Select:
    """The persons with a combination of this size that fewer than k persons of their class support.

    With several slots, of the combinations whose first item is in one of them.
    """
    if not size:
        return _SMALL_CLASSES(members=members, k=k)
    keys = [f"item_{i}" for i in range(1, size + 1)]
    same = all_of(col(key, "c").eq(col(key, "unsupported")) for key in keys)
    combinations = _COMBINATIONS[size](items=items)
    if slots > 1:
        in_slot = fragment("(a.item // 4 + a.class_id) % :slots = :slot")
        combinations = combinations.where(in_slot(slots=slots, slot=slot), copy=False)
    return _UNSUPPORTED(combinations=combinations, keys=cols(keys), k=k, same=same)
