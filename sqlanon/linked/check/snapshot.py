"""Persons who share an attacker's knowledge, at one generalization.

An attacker knows a person's quasi-identifiers and some of the person's child rows: up to m of them, or all. `Snapshot`
names what is released: the kept persons, without the child rows that are suppressed individually. It finds the persons
with a combination of `occurrences` that fewer than k persons support. Persons with different quasi-identifiers share no
combination, so each class of persons can be checked by itself.

Tables: ``kept_persons`` (``person``, ``class_id``), ``suppressed_rows`` (``position`` of the table, ``row``),
``occurrences`` (``person``, ``occurrence``), and by number of known rows ``supports_0``, ``supports_1``, ...: the
classes and the combinations (``occurrence``, ``second_occurrence``, ``third_occurrence``) with their ``persons``.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from sqlanon.linked.check.kept_rows import KeptRows, StoredRows
from sqlanon.linked.check.occurrences import (
    MAX_OCCURRENCES,
    class_of,
    combination_keys,
    combine_occurrences,
    count_copy_numbers,
    number_occurrences,
    pack_codes,
)
from sqlanon.linked.check.signatures import SignatureBuilder
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.tables import EXAMPLE_ROWS, LinkedTable
from sqlanon.policy.linked_sections import Known
from sqlanon.support.coding import Levels, code_column, dense_rank
from sqlanon.support.expressions import (
    as_column,
    cast,
    col,
    cols,
    drop_table,
    equal_values,
    fragment,
    mark_row_level,
    number,
    same_values,
    select,
    select_star,
    subquery,
    template,
    union_all,
)

MAX_UNRANKED_CODES = 2**30
"""Maximum number of combinations of the codes of a row that are packed into one number without a rank."""

NARROWED_SHARE = 0.6
"""The combinations of other classes are left out where the classes that can still change have at most this share of the
persons."""

FEW_PERSONS = 10_000
"""The combinations of up to this number of persons are counted faster than they are narrowed."""

_CLASSES = template("SELECT person, :class_id AS class_id FROM :persons AS persons")

_OF_EARLIER_PERSONS = template("""
    SELECT c.person, c.class_id
    FROM (:classes) AS c
    SEMI JOIN :earlier_persons AS earlier_persons ON c.person = earlier_persons.person
""")

_ROWS_OF_PERSONS = template("""
    SELECT kept.person, kept.class_id, known_rows.known_row
    FROM :known_rows AS known_rows
    JOIN :kept_persons AS kept ON known_rows.person = kept.person
""")

_UNSUPPORTED_PERSONS = template("""
    WITH unsupported AS (SELECT :keys FROM :supports AS s WHERE persons < :k)
    SELECT DISTINCT person FROM :combinations AS c SEMI JOIN unsupported USING (:keys)
""")

_COMBINATIONS_OF_REMOVED = template("""
    WITH removed_rows AS (SELECT * FROM :rows AS r SEMI JOIN :removed AS removed USING (person))
    SELECT :keys, count(*) AS persons FROM (:combinations) AS c GROUP BY :keys
""")

_SUBTRACT_REMOVED = fragment("""
    UPDATE :supports AS s
    SET persons = s.persons - removed.persons
    FROM :removed_combinations AS removed
    WHERE :same
""")

_CLASSES_OF_PERSONS = template(
    "SELECT DISTINCT class_id FROM :kept AS kept SEMI JOIN :persons AS persons USING (person)"
)

_COUNT_PERSONS_OF_CLASSES = template("""
    SELECT coalesce(sum(persons), 0) FROM :supports AS s SEMI JOIN :classes AS classes USING (class_id)
""")

_ROWS_OF_CLASSES = template("""
    SELECT r.* FROM :rows AS r SEMI JOIN :classes AS classes ON :class_id = classes.class_id
""")

_UNSUPPORTED_COMBINATIONS = template("""
    SELECT :keys FROM :supports AS s SEMI JOIN :removed_combinations AS removed USING (:keys) WHERE persons < :k
""")

_SUPPORTERS = (
    template("SELECT person FROM :rows AS a SEMI JOIN :unsupported AS u USING (class_id)"),
    template("SELECT person FROM :rows AS a SEMI JOIN :unsupported AS u USING (occurrence)"),
    template("""
        SELECT a.person
        FROM :unsupported AS u
        JOIN :rows AS a ON u.occurrence = a.occurrence
        JOIN :rows AS b ON a.person = b.person AND u.second_occurrence = b.occurrence
    """),
    template("""
        SELECT a.person
        FROM :unsupported AS u
        JOIN :rows AS a ON u.occurrence = a.occurrence
        JOIN :rows AS b ON a.person = b.person AND u.second_occurrence = b.occurrence
        JOIN :rows AS c ON a.person = c.person AND u.third_occurrence = c.occurrence
    """),
)

# Products of remainders cannot overflow. Their sum separates most multisets with equal sums; equal multisets always
# agree, so no shared signature is lost.
_PERSONS_WITH_RARE_SUMS = template("""
    WITH sums AS (
        SELECT
            person,
            count(*) AS row_count,
            sum(known_row) AS row_sum,
            sum(known_row % 1009 * (known_row % 1013)) AS product_sum
        FROM :known_rows AS known_rows
        SEMI JOIN :kept_persons AS kept USING (person)
        GROUP BY person
    ),
    persons AS (
        SELECT kept.person, kept.class_id, sums.row_count, sums.row_sum, sums.product_sum
        FROM :kept_persons AS kept
        LEFT JOIN sums ON kept.person = sums.person
    )
    SELECT persons.person
    FROM persons
    JOIN (
        SELECT class_id, row_count, row_sum, product_sum
        FROM persons
        GROUP BY class_id, row_count, row_sum, product_sum
        HAVING count(*) < :k
    ) AS rare
        ON persons.class_id = rare.class_id
        AND persons.row_count IS NOT DISTINCT FROM rare.row_count
        AND persons.row_sum IS NOT DISTINCT FROM rare.row_sum
        AND persons.product_sum IS NOT DISTINCT FROM rare.product_sum
""")


class Snapshot:
    """The released persons and rows at a generalization, in tables of the run of the person table."""

    def __init__(self, records: LinkedRecords, k: int, known: Known, earlier_rows: KeptRows | None = None) -> None:
        self.records, self.k, self.known, self.earlier_rows = records, k, known, earlier_rows
        self.runner, self.work = records.runner, records.work
        self.kept_persons, self.suppressed_rows = self.work("kept_persons"), self.work("suppressed_rows")
        self.occurrences, self.all_known_rows = self.work("occurrences"), self.work("known_rows")
        self.combinations_table = self.work("combinations")
        self._affected_classes, self._narrowed_rows = self.work("affected_classes"), self.work("narrowed_rows")
        self.counted_persons = 0
        """The persons of the classes whose occurrences are numbered."""
        self.suppresses_rows = False
        """Whether child rows may be suppressed individually."""
        self.levels: Levels = ()
        self.row_numbers = 1
        """The known rows have lower numbers than this."""
        self.copy_numbers = count_copy_numbers(known)
        self._tables: list[exp.Table] = []

    # --- Tables

    def create(self, target: exp.Table, query: exp.Query) -> exp.Table:
        """Create a table, in place of the one of an earlier check; it stays where the records are."""
        if target in self._tables:
            self.drop(target)
        self.runner.create_table(target, mark_row_level(query))
        self._tables.append(target)
        return target

    def drop(self, target: exp.Table) -> None:
        """Drop a table."""
        self.runner.execute(drop_table(target.copy()))
        self._tables.remove(target)

    def drop_tables(self) -> None:
        """Drop all tables of a check."""
        for target in self._tables:
            self.runner.execute(drop_table(target.copy()))
        self._tables.clear()

    def start(self, levels: Levels, suppresses_rows: bool = False) -> None:
        """Begin with all persons and all rows at a generalization, or with those of an earlier release."""
        earlier_suppressed_rows = None if self.earlier_rows is None else self.earlier_rows.suppressed_rows
        self.suppresses_rows = suppresses_rows or earlier_suppressed_rows is not None
        if self.runner.engine.undo_interrupted(self._tables):
            self._tables.clear()
        self.drop_tables()
        self.runner.engine.set_savepoint()
        self.levels = levels
        self.row_numbers = max(1, sum(self._pack_known_row(table)[1] for table in self.records.tables[1:]))
        nothing = template("SELECT 0::TINYINT AS position, row FROM :records AS records LIMIT 0")
        suppressed_rows = nothing(records=self.records.tables[0].records)
        if earlier_suppressed_rows is not None:
            suppressed_rows = select_star(earlier_suppressed_rows.copy())
        self.create(self.suppressed_rows, suppressed_rows)
        self.restore_persons()

    def restore_persons(self) -> None:
        """Keep all persons again, with the rows that are not suppressed individually."""
        persons = self.records.tables[0]
        most_classes = MAX_OCCURRENCES // (self.row_numbers * self.copy_numbers)
        class_id = cast(self.pack(persons.attribute_numbers, persons.rows, most_classes)[0], "BIGINT")
        classes = _CLASSES(class_id=class_id, persons=persons.records)
        if self.earlier_rows is not None:
            classes = _OF_EARLIER_PERSONS(classes=classes, earlier_persons=self.earlier_rows.persons)
        self.create(self.kept_persons, classes)

    def count_occurrences(self, persons: exp.Expr | None = None) -> None:
        """Number the known rows of the kept persons, or of a part of them (``person``, ``class_id``)."""
        kept_persons = self.kept_persons if persons is None else persons
        rows = _ROWS_OF_PERSONS(known_rows=self.released_known_rows(), kept_persons=kept_persons)
        self.create(self.occurrences, number_occurrences(rows, self.known, self.row_numbers))
        self.counted_persons = self.runner.count(kept_persons, EXAMPLE_ROWS)

    def combinations(self, size: int, occurrences: exp.Table) -> exp.Query:
        """The combinations of a number of known rows that persons support: ``person`` and `combination_keys`."""
        assert self.known != "all"
        return combine_occurrences(size, self.known, occurrences)

    def supports(self, size: int) -> exp.Table:
        """The table of the combinations of a number of known rows, with their ``persons``; without known rows, the
        table of the classes."""
        return self.work(f"supports_{size}")

    def _supporting_rows(self, size: int) -> exp.Table:
        """The table whose rows are persons with their class, or with their occurrences."""
        return self.occurrences if size else self.kept_persons

    def remove(self, persons: exp.Table) -> None:
        """Remove persons, with their occurrences."""
        for target in (self.kept_persons, self.occurrences):
            if target in self._tables:
                chosen = subquery(select([col("person")], persons.copy()))
                condition = exp.In(this=col("person"), query=chosen)
                self.runner.execute(exp.Delete(this=target.copy(), where=exp.Where(this=condition)))

    # --- Rows

    @property
    def kept_rows(self) -> KeptRows:
        """The persons and rows that stay, until the next check."""
        return KeptRows(self.records, self.kept_persons, self.suppressed_rows if self.suppresses_rows else None)

    def load(self, stored_rows: StoredRows) -> None:
        """Restore the stored result of a generalization."""
        assert stored_rows.levels is not None
        self.start(stored_rows.levels, stored_rows.has_rows)  # a later check may have suppressed persons only
        self.remove(stored_rows.persons)
        if stored_rows.has_rows:
            self.create(self.suppressed_rows, select_star(stored_rows.rows))

    def released_rows(self, position: int, units: exp.Table | None = None) -> exp.Expr:
        """The records of a table without the rows that are suppressed individually; of the person table, all.

        With ``units`` (``unit``, ``person``, ``position``, ``row``), the rows of each unit: those of its person, with
        one suppressed row restored if it names one.
        """
        if units is not None:
            records = self.records.tables[position].records
            query = template("""
                SELECT records.*, units.unit
                FROM :records AS records
                JOIN :units AS units ON records.person = units.person
                LEFT JOIN :suppressed AS s ON s.position = :position AND s.row = records.row
                WHERE s.row IS NULL OR (units.position = :position AND units.row = records.row)
            """)(records=records, units=units, suppressed=self.suppressed_rows, position=position)
            return subquery(query, "records")
        return self.kept_rows.select_records(position)

    def known_rows(self) -> exp.Query:
        """All child rows as an attacker knows them: ``position``, ``row``, ``parent``, ``person`` and ``known_row``, a
        number for each distinct row."""
        parts: list[exp.Query] = []
        offset = 0
        for position, table in enumerate(self.records.tables[1:], 1):
            code, count = self._pack_known_row(table)
            place = as_column(cast(number(position), "TINYINT"), "position")
            known_row = as_column(cast(code, "BIGINT") + number(offset), "known_row")
            parts.append(select([place, *cols(("row", "parent", "person")), known_row], table.records.copy()))
            offset += count
        if not parts:
            empty = template("""
                SELECT 0::TINYINT AS position, row, parent, person, 0::BIGINT AS known_row
                FROM :records AS records
                WHERE false
            """)
            return empty(records=self.records.tables[0].records)
        return union_all(*parts)

    def released_known_rows(self) -> exp.Expr:
        """`known_rows` of the rows that are not suppressed individually."""
        if not self.suppresses_rows:
            return subquery(self.known_rows(), "known_rows")
        if self.all_known_rows not in self._tables:
            self.create(self.all_known_rows, self.known_rows())
        released = template("SELECT * FROM :rows AS r ANTI JOIN :suppressed AS s USING (position, row)")
        return subquery(released(rows=self.all_known_rows, suppressed=self.suppressed_rows), "known_rows")

    def _pack_known_row(self, table: LinkedTable) -> tuple[exp.Expr, int]:
        most = MAX_OCCURRENCES // (self.copy_numbers * self.records.persons * len(self.records.tables))
        return self.pack(table.known_row_attributes, table.rows, min(MAX_UNRANKED_CODES, most))

    def pack(self, attributes: Sequence[int], rows: int, max_codes: int) -> tuple[exp.Expr, int]:
        """A number for each combination of codes at the levels, from 0, and a bound of these numbers.

        The combinations that ``rows`` rows have are ranked if there can be more than ``max_codes``.
        """
        codes = [
            (col(code_column(i, self.levels[i])), self.records.code_counts[i][self.levels[i]])
            for i in attributes
            if self.levels[i] < self.records.attributes[i].height
        ]
        return pack_codes(codes, rows, max_codes)

    # --- Persons with an unsupported combination

    def find_unsupported_persons(self, size: int, target: exp.Table) -> None:
        """Count the persons who support each combination of a number of known rows; store the persons with a
        combination that fewer than k persons support."""
        keys = combination_keys(size)
        combinations = self._supporting_rows(size)
        if size > 1:
            combinations = self.create(self.combinations_table, self.combinations(size, self.occurrences))
        count_supports = template("SELECT :keys, count(*) AS persons FROM :combinations AS c GROUP BY :keys")
        supports = self.create(self.supports(size), count_supports(keys=cols(keys), combinations=combinations))
        unsupported_persons = _UNSUPPORTED_PERSONS(
            keys=cols(keys), supports=supports, combinations=combinations, k=self.k
        )
        self.create(target, unsupported_persons)
        if size > 1:
            self.drop(self.combinations_table)

    def remove_and_find_unsupported(self, max_size: int, removed: exp.Table, target: exp.Table) -> None:
        """Remove persons; store those who then have a combination of up to ``max_size`` known rows that fewer than k
        persons support. Only the combinations of the removed persons are counted again."""
        for size in range(max_size + 1):
            keys = combination_keys(size)
            removed_rows = exp.to_table('"removed_rows"')
            combinations = self.combinations(size, removed_rows) if size else select_star(removed_rows)
            rows = self._supporting_rows(size)
            of_removed = _COMBINATIONS_OF_REMOVED(
                rows=rows, removed=removed, combinations=combinations, keys=cols(keys)
            )
            removed_combinations = self.create(self._removed_combinations(size), of_removed)
            same = equal_values(keys, "s", "removed")
            self.runner.execute(
                _SUBTRACT_REMOVED(supports=self.supports(size), removed_combinations=removed_combinations, same=same)
            )
        self.remove(removed)
        supporters = []
        for size, query in enumerate(_SUPPORTERS[: max_size + 1]):
            unsupported = _UNSUPPORTED_COMBINATIONS(
                keys=cols(combination_keys(size)),
                supports=self.supports(size),
                removed_combinations=self._removed_combinations(size),
                k=self.k,
            )
            supporters.append(query(rows=self._supporting_rows(size), unsupported=unsupported))
        unsupported_persons = template("SELECT DISTINCT person FROM :persons AS persons")(
            persons=subquery(union_all(*supporters))
        )
        self.create(target, unsupported_persons)

    def narrow_to_classes_of(self, persons: exp.Table) -> None:
        """Leave out the occurrences and combinations of classes without these persons, if they are many.

        When persons are removed, only combinations in their classes lose support.
        """
        assert self.known != "all"
        if self.counted_persons <= FEW_PERSONS:
            return
        classes = self.create(self._affected_classes, _CLASSES_OF_PERSONS(kept=self.kept_persons, persons=persons))
        affected_persons = _COUNT_PERSONS_OF_CLASSES(supports=self.supports(0), classes=classes)
        affected = int(self.runner.fetch_rows(affected_persons, [(EXAMPLE_ROWS // 2,)])[0][0])
        if affected > self.counted_persons * NARROWED_SHARE:
            return
        self.counted_persons = affected
        class_id = class_of(col("occurrence", "r"), self.known, self.row_numbers)
        for target in (self.occurrences, *(self.supports(size) for size in range(1, self.known + 1))):
            if target in self._tables:
                rows = _ROWS_OF_CLASSES(rows=target, class_id=class_id, classes=classes)
                self.create(target, select_star(self.create(self._narrowed_rows, rows)))

    def _removed_combinations(self, size: int) -> exp.Table:
        return self.work(f"removed_combinations_{size}")

    def persons_with_rare_sums(self, persons: exp.Expr | None = None) -> exp.Select:
        """The persons whose number of known rows and sums of them fewer than k persons have."""
        return _PERSONS_WITH_RARE_SUMS(
            known_rows=self.released_known_rows(),
            kept_persons=self.kept_persons if persons is None else persons,
            k=self.k,
        )

    def persons_with_rare_signatures(self, persons: exp.Expr | None = None) -> exp.Select:
        """The persons whose signature fewer than k persons have, of the kept persons or of a part of them."""
        signatures, names = self.signatures(persons=self.kept_persons if persons is None else persons)
        return template("""
            WITH signatures AS (:signatures),
            small AS (SELECT :key FROM signatures AS s GROUP BY :key HAVING count(*) < :k)
            SELECT s.person FROM signatures AS s JOIN small ON :same
        """)(signatures=signatures, key=cols(names), k=self.k, same=same_values(names, "s", "small"))

    def signatures(
        self, units: exp.Table | None = None, persons: exp.Expr | None = None
    ) -> tuple[exp.Select, list[str]]:
        """The signature of each unit, or of each person of a part, and the columns that make it."""
        builder = SignatureBuilder(
            self.records.tables, lambda position: self._code_rows(position, units, persons), ("unit",) if units else ()
        )
        owners = units or persons
        assert owners is not None
        return builder.build(owners)

    def _code_rows(self, position: int, units: exp.Table | None, persons: exp.Expr | None) -> exp.Select:
        """The rows of units, or of persons, in a table, with a number for each distinct row."""
        table, rows = self.records.tables[position], self.released_rows(position, units)
        if persons is not None:
            of_persons = template("SELECT r.* FROM :rows AS r SEMI JOIN :persons AS persons USING (person)")
            rows = subquery(of_persons(rows=rows, persons=persons), "r")
        code, _ = self.pack(table.attribute_numbers, table.rows, MAX_OCCURRENCES)
        unit = cols(("unit",)) if units else []
        return select([*unit, col("parent"), col("row"), as_column(cast(code, "BIGINT"), "code")], rows)

    def groups(self, persons: exp.Expr | None) -> list[tuple[exp.Query, list[str]]]:
        """The groups of the kept persons of a part: ``person`` and the keys of what they share, and these keys."""
        kept_persons = self.kept_persons if persons is None else persons
        if self.known == "all":
            signatures, names = self.signatures(persons=kept_persons)
            numbered = template("SELECT person, :number AS signature FROM :signatures AS s")
            number_ = dense_rank(cols(names), "BIGINT")
            return [(numbered(number=number_, signatures=signatures), ["signature"])]
        groups: list[tuple[exp.Query, list[str]]] = [(select_star(kept_persons.copy()), combination_keys(0))]
        for size in range(1, self.known + 1):
            groups.append((self.combinations(size, self.occurrences), combination_keys(size)))
        return groups
