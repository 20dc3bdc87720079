"""Who shares what an attacker knows, at one generalization of linked tables.

An attacker knows a person's quasi-identifiers and some of the person's child rows: up to m of them, or all. `Snapshot`
names what is released: the kept persons, without the child rows that are suppressed by themselves. It finds the persons
with a combination that fewer than k persons support. Persons with different quasi-identifiers share no combination, so
each class of persons can be checked by itself.

Tables: ``kept_persons`` (``person``, ``class_id``), ``suppressed_rows`` (``position`` of the table, ``row``) and
``occurrences`` (``person``, ``class_id``, ``known_row``, ``copy``): equal known rows of a person are numbered up to m.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from sqlglot import exp

from sqlanon.linked.records import LinkedRecords
from sqlanon.policy.linked import Known
from sqlanon.support.coding import Levels, code_column, dense_rank, level_leaves
from sqlanon.support.expressions import (
    all_of,
    as_column,
    cast,
    col,
    cols,
    drop_table,
    number,
    row_count,
    same_values,
    select,
    subquery,
    template,
    total,
    union_all,
)

MOST_CODES = 2**62
"""The most combinations of codes that are packed into one number."""

MOST_COPIES = 2**15 - 1
"""The most equal rows of a person that are told apart, where an attacker knows all rows."""

_CLASSES = template("SELECT person, :class_id AS class_id FROM :persons AS persons")

_OCCURRENCES = template("""
    WITH counted AS (
        SELECT person, class_id, known_row, least(count(*), :known) AS copies
        FROM :known_rows AS known_rows
        JOIN :kept_persons AS kept USING (person)
        GROUP BY person, class_id, known_row
    )
    SELECT person, class_id, known_row, unnest(range(1, copies + 1))::SMALLINT AS copy
    FROM counted
""")

_SMALL_CLASSES = template("""
    SELECT person, class_id
    FROM :kept_persons AS kept
    SEMI JOIN (
        SELECT class_id FROM :kept_persons AS counted GROUP BY class_id HAVING count(*) < :k
    ) AS small USING (class_id)
""")

_SINGLES = template("""
    SELECT person, class_id, known_row AS row_1, copy AS copy_1 FROM :occurrences AS a WHERE copy = 1
""")

# A combination lists its rows in ascending order. The second copy of a row follows the first.
_PAIRS = template("""
    SELECT
        a.person, a.class_id, a.known_row AS row_1, a.copy AS copy_1, b.known_row AS row_2, b.copy AS copy_2
    FROM :occurrences AS a
    JOIN :occurrences AS b ON a.person = b.person AND (
        (b.known_row > a.known_row AND b.copy = 1) OR (b.known_row = a.known_row AND b.copy = 2)
    )
    WHERE a.copy = 1
""")

_TRIPLES = template("""
    SELECT
        a.person, a.class_id, a.known_row AS row_1, a.copy AS copy_1, b.known_row AS row_2, b.copy AS copy_2,
        c.known_row AS row_3, c.copy AS copy_3
    FROM :occurrences AS a
    JOIN :occurrences AS b ON a.person = b.person AND (
        (b.known_row > a.known_row AND b.copy = 1) OR (b.known_row = a.known_row AND b.copy = 2)
    )
    JOIN :occurrences AS c ON a.person = c.person AND (
        (c.known_row > b.known_row AND c.copy = 1) OR (c.known_row = b.known_row AND c.copy = b.copy + 1)
    )
    WHERE a.copy = 1
""")

COMBINATIONS = {1: _SINGLES, 2: _PAIRS, 3: _TRIPLES}
"""By size, the combinations of known rows that persons support: ``person``, ``class_id``, and ``row_i`` and ``copy_i``
for each known row."""


def combination_keys(size: int) -> list[str]:
    """The columns that identify a combination of a size."""
    return ["class_id", *(f"{part}_{i}" for i in range(1, size + 1) for part in ("row", "copy"))]


class Snapshot:
    """What is released at a generalization, in tables of the run of the person table."""

    def __init__(self, records: LinkedRecords, k: int, known: Known) -> None:
        self.records, self.k, self.known = records, k, known
        self.runner, self.work = records.runner, records.tables[0].run.work
        self.kept_persons, self.suppressed_rows = self.work("kept_persons"), self.work("suppressed_rows")
        self.occurrences, self.all_known_rows = self.work("occurrences"), self.work("known_rows")
        self.suppresses_rows = False
        """Whether child rows may be suppressed by themselves."""
        self.levels: Levels = ()
        self._made: list[exp.Table] = []

    # --- Tables

    def create(self, target: exp.Table, query: exp.Query) -> exp.Table:
        """Create a table, in place of the one of an earlier check."""
        if target in self._made:
            self.runner.engine.execute(drop_table(target.copy()))
            self._made.remove(target)
        self.runner.create_table(target, query)
        self._made.append(target)
        return target

    def count(self, relation: exp.Expr) -> int:
        """The number of rows of a relation."""
        return int(self.runner.engine.rows(row_count(rows=relation))[0][0])

    def start(self, levels: Levels, suppresses_rows: bool = False) -> None:
        """Begin with all persons and all rows at a generalization."""
        self.suppresses_rows = suppresses_rows
        for target in self._made:
            self.runner.engine.execute(drop_table(target.copy()))
        self._made.clear()
        self.levels = levels
        self.create(self.suppressed_rows, template("SELECT 0::TINYINT AS position, 0::INTEGER AS row LIMIT 0")())
        self.restore_persons()

    def restore_persons(self) -> None:
        """Keep all persons again, with the rows that are not suppressed by themselves."""
        persons = self.records.tables[0]
        class_id, _ = self.pack(persons.own)
        self.create(self.kept_persons, _CLASSES(class_id=class_id, persons=persons.records))

    def count_occurrences(self) -> None:
        """Count the known rows of the kept persons."""
        copies = MOST_COPIES if self.known == "all" else self.known
        query = _OCCURRENCES(known_rows=self.released_known_rows(), kept_persons=self.kept_persons, known=copies)
        self.create(self.occurrences, query)

    def remove(self, persons: exp.Table) -> int:
        """Remove persons, with their occurrences; return their number."""
        removed = self.count(persons)
        if removed:
            for target in (self.kept_persons, self.occurrences):
                if target in self._made:
                    chosen = subquery(select([col("person")], persons.copy()))
                    condition = exp.In(this=col("person"), query=chosen)
                    self.runner.engine.execute(exp.Delete(this=target.copy(), where=exp.Where(this=condition)))
        return removed

    # --- Rows

    def released_rows(self, position: int, units: exp.Table | None = None) -> exp.Expr:
        """The records of a child table without the rows that are suppressed by themselves.

        With ``units`` (``unit``, ``person``, ``position``, ``row``), the rows of each unit: those of its person, with
        one suppressed row put back if it names one.
        """
        records = self.records.tables[position].records
        if units is not None:
            query = template("""
                SELECT records.*, units.unit
                FROM :records AS records
                JOIN :units AS units ON records.person = units.person
                LEFT JOIN :suppressed AS s ON s.position = :position AND s.row = records.row
                WHERE s.row IS NULL OR (units.position = :position AND units.row = records.row)
            """)(records=records, units=units, suppressed=self.suppressed_rows, position=position)
            return subquery(query, "records")
        if not self.suppresses_rows:
            return records.copy()
        released = template("""
            SELECT *
            FROM :records AS records
            ANTI JOIN (SELECT row FROM :suppressed AS s WHERE position = :position) AS suppressed USING (row)
        """)
        return subquery(released(records=records, suppressed=self.suppressed_rows, position=position), "records")

    def known_rows(self) -> exp.Query:
        """All child rows as an attacker knows them: ``position``, ``row``, ``parent``, ``person`` and ``known_row``, a
        number for each distinct row."""
        parts: list[exp.Query] = []
        offset = 0
        for position, table in enumerate(self.records.tables[1:], 1):
            code, count = self.pack(table.known, table.rows)
            place = as_column(cast(number(position), "TINYINT"), "position")
            known_row = as_column(cast(code, "BIGINT") + number(offset), "known_row")
            parts.append(select([place, *cols(("row", "parent", "person")), known_row], table.records.copy()))
            offset += count
        if not parts:
            nobody = template("""
                SELECT 0::TINYINT AS position, row, parent, person, 0::BIGINT AS known_row
                FROM :records AS records
                WHERE false
            """)
            return nobody(records=self.records.tables[0].records)
        return union_all(*parts)

    def released_known_rows(self) -> exp.Expr:
        """`known_rows` of the rows that are not suppressed by themselves."""
        if not self.suppresses_rows:
            return subquery(self.known_rows(), "known_rows")
        if self.all_known_rows not in self._made:
            self.create(self.all_known_rows, self.known_rows())
        released = template("SELECT * FROM :rows AS r ANTI JOIN :suppressed AS s USING (position, row)")
        return subquery(released(rows=self.all_known_rows, suppressed=self.suppressed_rows), "known_rows")

    def pack(self, attributes: Sequence[int], rows: int | None = None) -> tuple[exp.Expr, int]:
        """A number for each combination of codes at the levels, and a bound of these numbers."""
        counts = {
            i: self.records.code_counts[i][self.levels[i]]
            for i in attributes
            if self.levels[i] < self.records.attributes[i].height
        }
        size = math.prod(counts.values())
        codes = {i: col(code_column(i, self.levels[i])) for i in counts}
        if size >= MOST_CODES // (len(self.records.tables) + 1):
            return dense_rank([*codes.values()], "BIGINT"), self.records.persons if rows is None else rows
        code: exp.Expr = number(0)
        for i, count in counts.items():
            code = cast(codes[i], "BIGINT") + number(count) * exp.Paren(this=code)
        return code, size

    # --- Persons with an unsupported combination

    def small_classes(self, changed: exp.Table | None = None) -> exp.Select:
        """The persons in classes of fewer than k persons; of all classes, or of those that changed."""
        return _SMALL_CLASSES(kept_persons=self._within(self.kept_persons, changed), k=self.k)

    def weak_persons(self, size: int, changed: exp.Table | None = None) -> exp.Select:
        """The persons with a combination of this size that fewer than k persons support."""
        combinations = COMBINATIONS[size](occurrences=self._within(self.occurrences, changed))
        return template("""
            WITH combinations AS (:combinations),
            unsupported AS (SELECT :keys FROM combinations AS c GROUP BY :keys HAVING count(*) < :k)
            SELECT DISTINCT c.person, c.class_id
            FROM combinations AS c
            SEMI JOIN unsupported ON :same
        """)(
            combinations=combinations,
            keys=cols(combination_keys(size)),
            k=self.k,
            same=equal_values(combination_keys(size), "c", "unsupported"),
        )

    def _within(self, relation: exp.Table, changed: exp.Table | None) -> exp.Expr:
        if changed is None:
            return relation.copy()
        in_changed = template("SELECT * FROM :rows AS r SEMI JOIN :changed AS changed USING (class_id)")
        return subquery(in_changed(rows=relation, changed=changed))

    def weak_signatures(self) -> exp.Select:
        """The persons whose signature fewer than k persons have."""
        signatures, names = self.signatures()
        return template("""
            WITH signatures AS (:signatures),
            small AS (SELECT :key FROM signatures AS s GROUP BY :key HAVING count(*) < :k)
            SELECT s.person, s.class_id FROM signatures AS s JOIN small ON :same
        """)(signatures=signatures, key=cols(names), k=self.k, same=same_values(names, "s", "small"))

    def signatures(self, units: exp.Table | None = None) -> tuple[exp.Select, list[str]]:
        """The signature of each kept person, or of each unit, and the columns that make it: the class, and by table of
        direct child rows their sorted signatures."""
        names = ["class_id"]
        query = template("SELECT owner.person, owner.class_id FROM :persons AS owner")(
            persons=units or self.kept_persons
        )
        if units is not None:
            query = query.select(col("unit", "owner"), copy=False)
        for position, table in enumerate(self.records.tables):
            if table.parent is not None and table.parent.is_person_table:
                name = f"rows_{position}"
                on: exp.Expr = col("person", "owner").eq(col("parent", name))
                if units is not None:
                    on = exp.And(this=on, expression=col("unit", "owner").eq(col("unit", name)))
                query = query.select(as_column(col("signatures", name), name), copy=False)
                listed = subquery(self._listed_children(position, units), name)
                query = query.join(listed, on=on, join_type="left", copy=False)
                names.append(name)
        return query, names

    def _listed_children(self, position: int, units: exp.Table | None) -> exp.Select:
        """By unit and parent row, the sorted signatures of its rows in a table: ``parent`` and ``signatures``."""
        listed = template("SELECT :keys, list_sort(list(signature)) AS signatures FROM :rows AS r GROUP BY :keys")
        return listed(keys=cols(_parent_keys(units)), rows=subquery(self._row_signatures(position, units), "r"))

    def _row_signatures(self, position: int, units: exp.Table | None) -> exp.Select:
        """``parent`` and ``signature``: a number for each distinct row of a table with its nested child rows."""
        table, keys = self.records.tables[position], _parent_keys(units)
        code, _ = self.pack(table.own, table.rows)
        output = [*cols(keys), col("row"), as_column(cast(code, "BIGINT"), "code")]
        rows = select(output, self.released_rows(position, units))
        children = [child for child, other in enumerate(self.records.tables) if other.parent is table]
        if not children:
            return template("SELECT :keys, code AS signature FROM :rows AS rows")(keys=cols(keys), rows=rows)
        query = template("SELECT :keys, rows.code FROM :rows AS rows")(keys=cols(keys, "rows"), rows=rows)
        names = []
        for child in children:
            name = f"rows_{child}"
            on: exp.Expr = col("row", "rows").eq(col("parent", name))
            if units is not None:
                on = exp.And(this=on, expression=col("unit", "rows").eq(col("unit", name)))
            query = query.select(as_column(col("signatures", name), name), copy=False)
            listed = subquery(self._listed_children(child, units), name)
            query = query.join(listed, on=on, join_type="left", copy=False)
            names.append(name)
        rank = dense_rank([col("code", "nested"), *cols(names, "nested")], "BIGINT")
        return select([*cols(keys), as_column(rank, "signature")], subquery(query, "nested"))

    # --- Figures

    def suppressed_figures(self) -> tuple[list[int], dict[int, float]]:
        """By table, the rows that are not released; by quasi-identifier with labels below its top, the sum of the
        leaves under the labels of these rows, less one each."""
        rows: list[int] = []
        leaves: dict[int, float] = {}
        for position, table in enumerate(self.records.tables):
            query = template("""
                SELECT count(*) AS row_count
                FROM :records AS r
                LEFT JOIN :kept AS kept ON r.person = kept.person
                WHERE kept.person IS NULL
            """)(records=table.records, kept=self.kept_persons)
            if position and self.suppresses_rows:
                query = template("""
                    SELECT count(*) AS row_count
                    FROM :records AS r
                    LEFT JOIN :kept AS kept ON r.person = kept.person
                    LEFT JOIN :suppressed AS s ON r.row = s.row AND s.position = :position
                    WHERE kept.person IS NULL OR s.row IS NOT NULL
                """)(
                    records=table.records,
                    kept=self.kept_persons,
                    suppressed=self.suppressed_rows,
                    position=position,
                )
            labelled = [i for i in table.own if self.records.attributes[i].has_inner_labels(self.levels[i])]
            for i in labelled:
                name, level = f"leaves_{i}", self.levels[i]
                on = col(code_column(i, level), "r").eq(col("code", name))
                of_level = subquery(level_leaves(self.records.attributes[i], level), name)
                query = query.join(of_level, on=on, copy=False)
                query = query.select(as_column(total(col("leaves", name)), name), copy=False)
            row_total, *sums = self.runner.engine.rows(query)[0]
            rows.append(row_total)
            leaves |= {i: float(leaf_sum or 0) for i, leaf_sum in zip(labelled, sums, strict=True)}
        return rows, leaves


def _parent_keys(units: exp.Table | None) -> tuple[str, ...]:
    return ("parent",) if units is None else ("unit", "parent")


def equal_values(names: Sequence[str], left: str, right: str) -> exp.Expr:
    """Whether two relations have the same values in columns without NULL."""
    return all_of(col(name, left).eq(col(name, right)) for name in names)
