"""The released rows of linked tables: generalized, without the suppressed persons, and with new keys.

Creates ``surrogates`` for each table with a key: ``row``, the number of a released row, and ``surrogate``, its new key.
Surrogates are the numbers from 1 in random order, so neither they nor the order of the rows depend on the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.linked.records import LinkedRecords, LinkedTable
from sqlanon.linked.support import Snapshot
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import anonymous, as_column, col, drop_table, null_safe_equal, subquery, template, text


@dataclass(frozen=True)
class LinkedRecoding:
    """Makes the released rows of each table at a generalization, from the persons and rows that are kept."""

    records: LinkedRecords
    levels: Levels
    snapshot: Snapshot

    def _kept_rows(self, table: LinkedTable) -> exp.Select:
        """The rows of a table that are released, by number."""
        position = self.records.tables.index(table)
        rows = self.snapshot.released_rows(position) if position else table.records
        query = template("SELECT row FROM :rows AS rows SEMI JOIN :kept AS kept USING (person)")
        return query(rows=rows, kept=self.snapshot.kept_persons)

    def create_surrogates(self) -> None:
        """Draw new keys for the rows that stay: others for each release."""
        runner = self.records.runner
        for table in self.records.tables:
            if table.key:
                surrogates = template("""
                    SELECT row, row_number() OVER (ORDER BY draw)::BIGINT AS surrogate
                    FROM (SELECT row, random() AS draw FROM :kept_rows AS kept) AS drawn
                """)
                runner.engine.execute(drop_table(_surrogates(table), exists=True))
                runner.create_table(_surrogates(table), surrogates(kept_rows=self._kept_rows(table)))

    def count_kept_rows(self, table: LinkedTable) -> int:
        """The number of rows of a table that the release should have."""
        return self.snapshot.count(subquery(self._kept_rows(table)))

    def columns(self, table: LinkedTable) -> tuple[ReleasedColumn, ...]:
        """The released columns of a table, in the order of the source, with their types."""
        attributes = {column.lower(): name for name, column in table.columns.by_attribute.items()}
        columns = []
        for column, type_ in table.run.source.columns.items():
            name = attributes.get(column.lower())
            role = None if name is None else table.section.attributes[name].role
            if role is None or role == "identifying":
                continue
            if role == "key":
                columns.append(ReleasedColumn(column, "BIGINT", role))
            else:
                is_labelled = role == "quasi" and self._is_labelled(table, column)
                columns.append(ReleasedColumn(column, "VARCHAR" if is_labelled else type_, role))
        return tuple(columns)

    def _is_labelled(self, table: LinkedTable, column: str) -> bool:
        position = table.columns.generalized.index(column)
        attribute, level = table.attributes[position], self.levels[table.own[position]]
        return level >= attribute.lowest_labelled

    def rows(self, table: LinkedTable) -> exp.Select:
        """The released rows of a table, ordered by new keys."""
        query = table.joined()
        owner = "own" if table.parent is None else "parent"
        kept = self.snapshot.kept_persons.as_("kept")
        query = query.join(kept, on=_same("person", owner, "kept"), join_type="semi", copy=False)
        order: list[exp.Expr] = []
        if table.parent is not None:
            query = query.join(
                _surrogates(table.parent).as_("parent_key"), on=_same("row", "parent", "parent_key"), copy=False
            )
            order = [col("surrogate", "parent_key"), anonymous("RANDOM")]
            if table.key:
                query = query.join(table.numbers.as_("own"), on=table.same_key("child", "own"), copy=False)
        if table.key:
            query = query.join(_surrogates(table).as_("own_key"), on=_same("row", "own", "own_key"), copy=False)
            order = [col("surrogate", "own_key")]
        for i, attribute in enumerate(table.attributes):
            if attribute.has_inner_labels(self.levels[table.own[i]]):
                on = null_safe_equal(col(attribute.column, "child"), col("value", f"coded_{i}"), attribute.nullable)
                query = query.join(attribute.table.as_(f"coded_{i}"), on=on, copy=False)
        output = [as_column(self._value(table, column.name), column.name) for column in self.columns(table)]
        return query.select(*output, copy=False).order_by(*order, copy=False)

    def _value(self, table: LinkedTable, column: str) -> exp.Expr:
        if column in table.references:
            return col("surrogate", "parent_key")
        if column in table.key:
            return col("surrogate", "own_key")
        if column not in table.columns.generalized:
            return col(column, "child")
        i = table.columns.generalized.index(column)
        attribute, level = table.attributes[i], self.levels[table.own[i]]
        if level < attribute.lowest_labelled:
            return col(column, "child")
        if level == attribute.height:
            return text(table.hierarchies[i].top or "")
        return col(f"label_{level}", f"coded_{i}")


def _surrogates(table: LinkedTable) -> exp.Table:
    return table.run.work("surrogates")


def _same(column: str, left: str, right: str) -> exp.Expr:
    return col(column, left).eq(col(column, right))
