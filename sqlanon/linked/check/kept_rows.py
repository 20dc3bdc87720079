"""The persons who are kept at a generalization, and their rows except those that are suppressed individually.

Tables: ``stored_suppressed_persons`` (``person``) and ``stored_suppressed_rows`` (``position``, ``row``), what one
generalization suppresses; they outlast the checks of others.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.linked.records import LinkedRecords
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import drop_table, select_star, subquery, template

_NOT_SUPPRESSED = template("""
    SELECT *
    FROM :records AS records
    ANTI JOIN (SELECT row FROM :suppressed AS s WHERE position = :position) AS suppressed USING (row)
""")

_ROWS_OF_PERSONS = template("SELECT row FROM :rows AS rows SEMI JOIN :kept AS kept USING (person)")

_SUPPRESSED_PERSONS = template("SELECT person FROM :persons AS persons ANTI JOIN :kept AS kept USING (person)")


@dataclass(frozen=True)
class KeptRows:
    """The persons and rows that stay, in tables of a run.

    Attributes
    ----------
    persons:
        The kept persons: ``person``, ``class_id``.
    suppressed_rows:
        The child rows that are suppressed individually: ``position`` of the table, ``row``. None if there are none.
    """

    records: LinkedRecords
    persons: exp.Table
    suppressed_rows: exp.Table | None

    def select_records(self, position: int) -> exp.Expr:
        """The records of a table, also of suppressed persons, without the rows that are suppressed individually."""
        records = self.records.tables[position].records
        if self.suppressed_rows is None or not position:
            return records.copy()
        query = _NOT_SUPPRESSED(records=records, suppressed=self.suppressed_rows, position=position)
        return subquery(query, "records")

    def select_rows(self, position: int) -> exp.Select:
        """The numbers of the rows of a table that stay."""
        return _ROWS_OF_PERSONS(rows=self.select_records(position), kept=self.persons)

    def count_rows(self, position: int) -> int:
        """The number of rows of a table that stay."""
        return self.records.runner.count(subquery(self.select_rows(position)))


class StoredRows:
    """The persons and rows that one generalization suppresses."""

    def __init__(self, records: LinkedRecords) -> None:
        self.records, work = records, records.work
        self.persons, self.rows = work("stored_suppressed_persons"), work("stored_suppressed_rows")
        self.levels: Levels | None = None
        """The generalization; None if nothing is stored."""
        self.has_rows = False
        """Whether rows may be suppressed individually."""

    def store(self, levels: Levels, kept_rows: KeptRows) -> None:
        """Store the persons and rows suppressed at a generalization, replacing the stored ones."""
        runner, persons = self.records.runner, self.records.tables[0].records
        self.levels = None  # in case this is interrupted
        for target in (self.persons, self.rows):
            runner.execute(drop_table(target.copy(), exists=True))
        runner.create_table(self.persons, _SUPPRESSED_PERSONS(persons=persons, kept=kept_rows.persons))
        if kept_rows.suppressed_rows is not None:
            runner.create_table(self.rows, select_star(kept_rows.suppressed_rows.copy()))
        runner.engine.set_savepoint()
        self.levels, self.has_rows = levels, kept_rows.suppressed_rows is not None
