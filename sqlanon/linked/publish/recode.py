"""The released rows of linked tables: generalized, without the suppressed persons, and with new keys.

Creates ``surrogates`` for each table with a key: ``row``, the number of a released row, and ``surrogate``, its new key.
Surrogates are the numbers from 1 in random order, so neither they nor the order of the rows depend on the source.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from sqlanon.linked.check.kept_rows import KeptRows
from sqlanon.linked.publish.labels import join_labels, label_at_level
from sqlanon.linked.records import LinkedRecords
from sqlanon.linked.tables import LinkedTable
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.support.expressions import (
    anonymous,
    as_column,
    cast,
    col,
    create_table_with_columns,
    drop_table,
    equal_values,
    number,
    template,
)

_NEW_KEYS = template("""
    SELECT row, row_number() OVER (ORDER BY draw)::BIGINT AS surrogate
    FROM (SELECT row, random() AS draw FROM :kept_rows AS kept) AS drawn
""")

_KEYS_OF_PARENTS = template("""
    SELECT kept.row, parent_keys.surrogate
    FROM :kept_rows AS kept
    JOIN :numbers AS numbers ON kept.row = numbers.row
    JOIN :parent_keys AS parent_keys ON numbers.parent = parent_keys.row
""")


@dataclass(frozen=True)
class LinkedRecoding:
    """Makes the released rows of each table at a generalization, from the persons and rows that stay."""

    kept_rows: KeptRows
    levels: tuple[int | None, ...]
    """The level of each quasi-identifier; None if classes of persons have several."""

    @property
    def records(self) -> LinkedRecords:
        """The coded tables."""
        return self.kept_rows.records

    def _used_levels(self, attribute: int) -> tuple[int, ...]:
        """The levels of the labels of a quasi-identifier in the release."""
        level = self.levels[attribute]
        assert level is not None
        return (level,)

    def _join_kept_persons(self, query: exp.Select, owner: str) -> exp.Select:
        """The rows of the kept persons, of a query with the numbers of persons."""
        kept_persons = self.kept_rows.persons.as_("kept")
        return query.join(kept_persons, on=equal_values(["person"], owner, "kept"), join_type="semi", copy=False)

    def _select_kept_rows(self, table: LinkedTable) -> exp.Select:
        """The rows of a table that are released, by number."""
        return self.kept_rows.select_rows(table.position)

    def create_surrogates(self) -> None:
        """Draw new keys for the rows that stay: others for each release."""
        runner = self.records.runner
        for table in self.records.tables:
            if table.key and table.parent is not None and set(table.key) == set(table.references):
                # Each row extends a row of the parent, and has the key of that row.
                query = _KEYS_OF_PARENTS(
                    kept_rows=self._select_kept_rows(table),
                    numbers=table.numbers,
                    parent_keys=surrogate_table(table.parent),
                )
            elif table.key:
                query = _NEW_KEYS(kept_rows=self._select_kept_rows(table))
            else:
                continue
            runner.execute(drop_table(surrogate_table(table), exists=True))
            runner.create_table(surrogate_table(table), query)

    def count_kept_rows(self, table: LinkedTable) -> int:
        """The number of rows of a table that the release should have."""
        return self.kept_rows.count_rows(table.position)

    def released_columns(self, table: LinkedTable) -> tuple[ReleasedColumn, ...]:
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
        lowest = table.attributes[position].lowest_labelled
        return any(level >= lowest for level in self._used_levels(table.attribute_numbers[position]))

    def write_rows(self, table: LinkedTable, target: exp.Table) -> None:
        """Create a table of the released columns with the released rows."""
        engine, types = table.run.engine, {column.name: column.type for column in self.released_columns(table)}
        engine.execute(create_table_with_columns(target.copy(), [*types.items()]))
        with table.run.source.read_released(self.select_rows(table), types) as rows:
            engine.execute(exp.Insert(this=target.copy(), expression=rows))

    def select_rows(self, table: LinkedTable) -> exp.Select:
        """The released rows of a table, ordered by new keys; a Spark source drops this order."""
        query = self._join_kept_persons(table.select_linked_rows(), "numbers" if table.parent is None else "parent")
        order: list[exp.Expr] = []
        if table.parent is not None:
            query = query.join(
                surrogate_table(table.parent).as_("new_parent_key"),
                on=equal_values(["row"], "parent", "new_parent_key"),
                copy=False,
            )
            for i, ancestor in enumerate(table.ancestors):
                new_key = surrogate_table(ancestor).as_(f"new_ancestor_key_{i}")
                query = query.join(new_key, on=equal_values(["row"], f"ancestor_{i}", new_key.alias), copy=False)
            order = [col("surrogate", "new_parent_key"), anonymous("RANDOM")]
            if table.key:
                query = query.join(table.numbers.as_("numbers"), on=table.same_key("child", "numbers"), copy=False)
        if table.key:
            query = query.join(
                surrogate_table(table).as_("new_key"), on=equal_values(["row"], "numbers", "new_key"), copy=False
            )
            order = [col("surrogate", "new_key")]
        query = join_labels(query, table, self._used_levels)
        output = [as_column(self._value(table, column.name), column.name) for column in self.released_columns(table)]
        return query.select(*output, copy=False).order_by(*order, copy=False)

    def _value(self, table: LinkedTable, column: str) -> exp.Expr:
        if column in table.references:
            return col("surrogate", "new_parent_key")
        if (position := table.ancestor_references.get(column)) is not None:
            return col("surrogate", f"new_ancestor_key_{position}")
        if column in table.key:
            return col("surrogate", "new_key")
        if column not in table.columns.generalized:
            return col(column, "child")
        i = table.columns.generalized.index(column)
        first_level, *other_levels = levels = self._used_levels(table.attribute_numbers[i])
        if not other_levels:
            return label_at_level(table, i, first_level)
        label = exp.Case(this=col(f"level_{table.attribute_numbers[i]}", "class_levels"))
        for level in levels:
            label = label.when(number(level), cast(label_at_level(table, i, level), "VARCHAR"), copy=False)
        return label


@dataclass(frozen=True)
class LinkedClassRecoding(LinkedRecoding):
    """Makes the released rows of classes of persons with separate levels."""

    class_levels: exp.Table
    used_levels: tuple[tuple[int, ...], ...]

    def _used_levels(self, attribute: int) -> tuple[int, ...]:
        return self.used_levels[attribute]

    def _join_kept_persons(self, query: exp.Select, owner: str) -> exp.Select:
        query = query.join(self.kept_rows.persons.as_("kept"), on=equal_values(["person"], owner, "kept"), copy=False)
        levels = self.class_levels.as_("class_levels")
        return query.join(levels, on=equal_values(["class_id"], "kept", "class_levels"), copy=False)


def surrogate_table(table: LinkedTable) -> exp.Table:
    """The new keys of a table."""
    return table.run.work("surrogates")
