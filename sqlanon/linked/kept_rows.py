"""What stays at a generalization: persons, and their rows but those that are suppressed by themselves."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.linked.records import LinkedRecords
from sqlanon.support.expressions import row_count, subquery, template

_NOT_SUPPRESSED = template("""
    SELECT *
    FROM :records AS records
    ANTI JOIN (SELECT row FROM :suppressed AS s WHERE position = :position) AS suppressed USING (row)
""")

_ROWS_OF_PERSONS = template("SELECT row FROM :rows AS rows SEMI JOIN :kept AS kept USING (person)")


@dataclass(frozen=True)
class KeptRows:
    """The persons and rows that stay, in tables of a run.

    Attributes
    ----------
    persons:
        The kept persons: ``person``, ``class_id``.
    suppressed_rows:
        The child rows that are suppressed by themselves: ``position`` of the table, ``row``. None if there are none.
    """

    records: LinkedRecords
    persons: exp.Table
    suppressed_rows: exp.Table | None

    def select_records(self, position: int) -> exp.Expr:
        """The records of a table, also of suppressed persons, without the rows that are suppressed by themselves."""
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
        query = row_count(rows=subquery(self.select_rows(position)))
        return int(self.records.engine.rows(query)[0][0])
