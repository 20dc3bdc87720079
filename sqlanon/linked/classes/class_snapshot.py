"""Persons who share an attacker's knowledge, where each class of persons has separate levels.

A *grouping* is a table of persons with their class (``person``, ``class_id``), and a table of the levels of each class
(``class_id``, ``level_0``, ``level_1``, ...). `snapshot` does the same for one generalization of all persons.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from sqlglot import exp

from sqlanon.engines.base import replace_table
from sqlanon.linked.check.occurrences import (
    MAX_OCCURRENCES,
    class_of,
    combination_keys,
    combine_occurrences,
    count_copy_numbers,
    known_row_of,
    number_occurrences,
    pack_codes,
)
from sqlanon.linked.check.signatures import SignatureBuilder
from sqlanon.linked.check.snapshot import Snapshot
from sqlanon.linked.tables import LinkedTable
from sqlanon.support.coding import code_column
from sqlanon.support.expressions import (
    cast,
    col,
    cols,
    drop_table,
    equal_values,
    fragment,
    number,
    template,
    union_all,
)

_MAX_COMBINATIONS = 40_000_000
"""About the most combinations that are counted at once."""

_KNOWN_ROWS = template("""
    SELECT members.person, members.class_id, :known_row AS known_row
    FROM :rows AS r
    JOIN :members AS members ON r.person = members.person
    JOIN :levels AS class_levels ON members.class_id = class_levels.class_id
""")

_CODE_ROWS = template("""
    SELECT r.row, r.parent, :code::BIGINT AS code
    FROM :rows AS r
    JOIN :members AS members ON r.person = members.person
    JOIN :levels AS class_levels ON members.class_id = class_levels.class_id
""")

_UNSUPPORTED = template("""
    WITH combinations AS MATERIALIZED (:combinations),
    unsupported AS (SELECT :keys FROM combinations AS c GROUP BY :keys HAVING count(*) < :k)
    SELECT DISTINCT c.person, :class_id AS class_id
    FROM combinations AS c
    SEMI JOIN unsupported ON :same
""")

_PART = template("SELECT * FROM (:combinations) AS c WHERE (:class_id + :known_row) % :parts = :part")

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
    changed_occurrences AS MATERIALIZED (
        SELECT o.person, o.occurrence FROM :occurrences AS o SEMI JOIN changed ON :class_id = changed.class_id
    )
    SELECT DISTINCT person, class_id FROM (:unsupported) AS unsupported
""")

_NUMBERED_SIGNATURES = template("""
    WITH signatures AS (:signatures)
    SELECT
        person,
        class_id,
        (dense_rank() OVER (ORDER BY :keys) - 1)::INTEGER AS signature
    FROM signatures AS s
""")

_SHARED_SIGNATURES = template("""
    SELECT person, signature AS class_id
    FROM :numbered AS numbered
    SEMI JOIN (
        SELECT signature FROM :numbered AS counted GROUP BY signature HAVING count(*) >= :k
    ) AS shared USING (signature)
""")


class ClassSnapshot:
    """Finds the persons of a grouping who can stay. ``snapshot`` has the rows that are suppressed individually."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.k, self.known = snapshot, snapshot.k, snapshot.known
        self._created: set[str] = set()

    def create(self, name: str, query: exp.Query) -> exp.Table:
        """Create a table of the run, in place of an earlier one."""
        self._created.add(name)
        return replace_table(self.snapshot.runner.engine, self.snapshot.work(name), query)

    def drop_all_except(self, *tables: exp.Table) -> None:
        """Drop the created tables but some."""
        retained = {table.name for table in tables}
        for name in self._created - retained:
            self.snapshot.runner.engine.execute(drop_table(self.snapshot.work(name)))
        self._created &= retained

    def peel(self, members: exp.Table, levels: exp.Table) -> None:
        """Delete the persons of a grouping who cannot stay: the greatest set remains."""
        assert self.known != "all"
        self.remove_small_classes(members)
        known_rows, row_numbers = self._known_rows(members, levels)
        numbered = number_occurrences(known_rows, self.known, row_numbers)
        occurrences = self.create("class_occurrences", numbered)
        removed = self.create("unsupported_members_0", template("SELECT * FROM :m AS m LIMIT 0")(m=members))
        for size in range(1, self.known + 1):  # the smallest first: they are few, and leave fewer to combine
            for combinations in self._combine_in_parts(size, occurrences, row_numbers):
                query = self._find_unsupported(size, combinations, row_numbers)
                unsupported = self.create("unsupported_members", query)
                if self._delete_members(unsupported, members, occurrences):
                    self.snapshot.runner.add(removed, template("SELECT * FROM :u AS u")(u=unsupported))
        self._peel_changed_classes(members, occurrences, removed, row_numbers)

    def _peel_changed_classes(
        self, members: exp.Table, occurrences: exp.Table, removed: exp.Table, row_numbers: int
    ) -> None:
        """Delete the persons who cannot stay in the classes that have lost persons, until none loses any."""
        assert self.known != "all"
        queries: list[exp.Query] = [_SMALL_CLASSES(members=exp.to_table('"changed_members"'), k=self.k)]
        for size in range(1, self.known + 1):
            combinations = combine_occurrences(size, self.known, exp.to_table('"changed_occurrences"'))
            queries.append(self._find_unsupported(size, combinations, row_numbers))
        unsupported = union_all(*queries)
        parity = 1
        while self.snapshot.runner.count(removed):
            query = _UNSUPPORTED_OF_CHANGED(
                removed=removed,
                members=members,
                occurrences=occurrences,
                class_id=class_of(col("occurrence", "o"), self.known, row_numbers),
                unsupported=unsupported,
            )
            removed = self.create(f"unsupported_members_{parity}", query)
            self._delete_members(removed, members, occurrences)
            parity = 1 - parity

    def _find_unsupported(self, size: int, combinations: exp.Query, row_numbers: int) -> exp.Select:
        """The persons with a combination that fewer than k persons of their class support."""
        keys = combination_keys(size)
        return _UNSUPPORTED(
            combinations=combinations,
            keys=cols(keys),
            k=self.k,
            class_id=class_of(col("occurrence", "c"), self.known, row_numbers),
            same=equal_values(keys, "c", "unsupported"),
        )

    def _combine_in_parts(self, size: int, occurrences: exp.Table, row_numbers: int) -> Iterator[exp.Query]:
        """The combinations of a size, in parts by their first known row that each fit in memory."""
        assert self.known != "all"
        records = self.snapshot.records
        mean_rows = records.child_rows / records.persons
        combinations = records.persons * math.comb(math.ceil(mean_rows) + size - 1, size)
        parts = max(1, math.ceil(combinations / _MAX_COMBINATIONS))
        for part in range(parts):
            query = combine_occurrences(size, self.known, occurrences)
            if parts > 1:
                class_id = class_of(col("occurrence"), self.known, row_numbers)
                known_row = known_row_of(col("occurrence"), self.known, row_numbers)
                query = _PART(combinations=query, class_id=class_id, known_row=known_row, parts=parts, part=part)
            yield query

    def remove_small_classes(self, members: exp.Table) -> None:
        """Delete the persons in classes of fewer than k."""
        self._delete_members(self.create("unsupported_members", _SMALL_CLASSES(members=members, k=self.k)), members)

    def _delete_members(self, persons: exp.Table, *tables: exp.Table) -> int:
        """Delete persons from tables; return their number."""
        removed = self.snapshot.runner.count(persons)
        if removed:
            for rows in tables:
                self.delete_persons(rows, persons)
        return removed

    def delete_persons(self, rows: exp.Table, persons: exp.Table) -> None:
        """Delete the rows of some persons from a table."""
        delete_rows = fragment("DELETE FROM :rows WHERE person IN (SELECT person FROM :persons AS p)")
        self.snapshot.runner.engine.execute(delete_rows(rows=rows, persons=persons))

    def find_shared_signatures(self, target: str, members: exp.Table, levels: exp.Table) -> exp.Table:
        """The persons of a grouping whose signature k persons of their class have; ``class_id`` numbers signatures."""
        builder = SignatureBuilder(
            self.snapshot.records.tables, lambda position: self._code_rows(position, members, levels)
        )
        signatures, names = builder.build(members)
        numbered = self.create("class_signatures", _NUMBERED_SIGNATURES(signatures=signatures, keys=cols(names)))
        return self.create(target, _SHARED_SIGNATURES(numbered=numbered, k=self.k))

    def _code_rows(self, position: int, members: exp.Table, levels: exp.Table) -> exp.Select:
        """The rows of the persons in a table, with a number for each distinct row of a class."""
        table = self.snapshot.records.tables[position]
        code, _ = self._pack(table.attribute_numbers, table, MAX_OCCURRENCES)
        return _CODE_ROWS(code=code, rows=self.snapshot.released_rows(position), members=members, levels=levels)

    # --- Codes

    def _known_rows(self, members: exp.Table, levels: exp.Table) -> tuple[exp.Query, int]:
        """The known rows of the persons: ``person``, ``class_id``, ``known_row``; and a bound of their numbers."""
        tables = self.snapshot.records.tables
        last_class = template("SELECT coalesce(max(class_id), 0) FROM :members AS members")(members=members)
        classes = int(self.snapshot.runner.engine.rows(last_class)[0][0]) + 1
        max_codes = MAX_OCCURRENCES // (count_copy_numbers(self.known) * classes * len(tables))
        parts: list[exp.Query] = []
        offset = 0
        for position, table in enumerate(tables[1:], 1):
            code, count = self._pack(table.known_row_attributes, table, max_codes)
            known_row = cast(code, "BIGINT") + number(offset)
            rows = self.snapshot.released_rows(position)
            parts.append(_KNOWN_ROWS(known_row=known_row, rows=rows, members=members, levels=levels))
            offset += count
        if not parts:
            no_rows = template("SELECT *, 0::BIGINT AS known_row FROM :members AS members LIMIT 0")
            return no_rows(members=members), 1
        return union_all(*parts), max(1, offset)

    def _pack(self, attributes: Sequence[int], table: LinkedTable, max_codes: int) -> tuple[exp.Expr, int]:
        """A number for each combination of codes at the levels of a class, and a bound of these numbers."""
        records = self.snapshot.records
        codes = [
            (self.code_at_class_level(i), max(records.code_counts[i]))
            for i in attributes
            if records.attributes[i].height
        ]
        return pack_codes(codes, table.rows, max_codes)

    def code_at_class_level(self, attribute: int) -> exp.Expr:
        """The code of a quasi-identifier of a row ``r`` at the level in ``class_levels``."""
        code = exp.Case(this=col(f"level_{attribute}", "class_levels"), default=number(0))
        for level in range(self.snapshot.records.attributes[attribute].height):
            code = code.when(number(level), col(code_column(attribute, level), "r"), copy=False)
        return code
