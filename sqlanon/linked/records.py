"""The coded records of linked tables: small integers for the labels of each row.

Each table gets ``records``: ``row``, ``person`` and ``parent``, the numbers of the row, of its person and of the row
that it references, and ``quasi_0_level_0``, ..., the codes of its quasi-identifiers and of those of its ancestors below
the person. Quasi-identifiers are numbered over all tables, in the order of the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlanon.engines.base import WorkEngine
from sqlanon.engines.limits import Limits
from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import HierarchyError, Problem
from sqlanon.frequency.codes import EXAMPLE_COUNT
from sqlanon.frequency.counting import fetch_marginal_figures, make_coded_values
from sqlanon.hierarchies import Hierarchy
from sqlanon.hierarchies.build import AttributeValues, build_hierarchy, summarize_values
from sqlanon.hierarchies.levels import find_forbidden_levels, find_level_problems, find_permitted_levels
from sqlanon.linked.date_shifts import shift_dates
from sqlanon.linked.tables import LinkedTable, bind_tables, number_linked_rows
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.sources.relation import source_errors
from sqlanon.sources.workspace import Workspace
from sqlanon.strategies.lattice import Lattice
from sqlanon.support import coding
from sqlanon.support.coding import CodedAttribute, code_column
from sqlanon.support.expressions import (
    Namer,
    as_column,
    col,
    cols,
    null_safe_equal,
    subquery,
)


@dataclass(frozen=True)
class LinkedRecords:
    """All tables, parents before children, with the quasi-identifiers of all of them."""

    policy: LinkedPolicy
    runner: StatementRunner
    tables: tuple[LinkedTable, ...]
    names: tuple[str, ...]
    """The name of each quasi-identifier, with its table."""
    leaf_sums: tuple[tuple[float, ...], ...]
    """The sum over the records of a table of the leaves under the label, less one, by quasi-identifier and level."""
    code_counts: tuple[tuple[int, ...], ...]
    """The number of codes, by quasi-identifier and level below the top."""
    lattice: Lattice

    @cached_property
    def attributes(self) -> tuple[CodedAttribute, ...]:
        """The quasi-identifiers of all tables."""
        return tuple(attribute for table in self.tables for attribute in table.attributes)

    @cached_property
    def hierarchies(self) -> tuple[Hierarchy, ...]:
        """The hierarchies of the quasi-identifiers of all tables."""
        return tuple(hierarchy for table in self.tables for hierarchy in table.hierarchies)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The index of the table that has a quasi-identifier."""
        return tuple(t for t, table in enumerate(self.tables) for _ in table.attribute_numbers)

    def table(self, name: str) -> LinkedTable:
        """The table with this name."""
        return next(table for table in self.tables if table.name == name)

    @property
    def engine(self) -> WorkEngine:
        """The engine that has the records of all tables."""
        return self.runner.engine

    @property
    def work(self) -> Namer:
        """Names tables of the run of the person table."""
        return self.tables[0].run.work

    @property
    def limits(self) -> Limits:
        """The memory and the threads of the engine."""
        return self.tables[0].run.engine.limits

    @property
    def persons(self) -> int:
        """The number of persons."""
        return self.tables[0].rows

    @property
    def child_rows(self) -> int:
        """The number of rows of all tables but the table of persons."""
        return sum(table.rows for table in self.tables[1:])

    @property
    def allowed_persons(self) -> int:
        """The maximum number of persons who may be suppressed."""
        return int(self.policy.search.suppression_limit * self.persons)

    @property
    def allowed_rows(self) -> int:
        """The maximum number of child rows that may be suppressed individually."""
        return int(self.policy.search.row_suppression_limit * self.child_rows)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights of the quasi-identifiers."""
        return tuple(
            table.policy.attributes[name].weight
            for table in self.tables
            for name in table.policy.generalized_attributes
        )


def encode_tables(workspace: Workspace, policy: LinkedPolicy) -> LinkedRecords:
    """Bind the tables of a policy, build their hierarchies, and encode their rows.

    Raises
    ------
    LinkedSourceError
        Lists, table by table, what cannot be read, keys that do not identify rows, and rows without a person.
    HierarchyError
        Lists the problems of all hierarchies.
    """
    return encode_bound_tables(policy, bind_tables(workspace, policy, counted=True))


@source_errors()
def encode_bound_tables(policy: LinkedPolicy, tables: Sequence[LinkedTable]) -> LinkedRecords:
    """Build the hierarchies of tables, and encode their rows. Raises the `HierarchyError` of `encode_tables`."""
    if policy.shift is not None:
        shift_dates(policy, tables, policy.shift)
    problems = [problem for table in tables for problem in _build_hierarchies(policy, table)]
    if problems:
        raise HierarchyError(problems)
    for table in tables:
        _encode_rows(table)
    return _build_records(policy, tables)


def _build_hierarchies(policy: LinkedPolicy, table: LinkedTable) -> list[Problem]:
    """Build the hierarchies of a table over the values of its linked rows. Creates ``values_i``, ``hierarchy_i`` and
    ``coded_i``."""
    runner, work, names = table.runner, table.run.work, table.policy.generalized_attributes
    values: dict[str, AttributeValues] = {}
    for i, (name, column) in enumerate(zip(names, table.columns.generalized, strict=True)):
        linked_rows = table.select_linked_rows().select(as_column(col(column, "child"), column), copy=False)
        query = coding.value_counts(subquery(linked_rows, "linked_rows"), column, is_counted=False)
        type_ = table.run.source.columns[column]
        with table.run.source.transfer_errors({column: type_}):
            target = runner.create_table(work(f"values_{i}"), query)
        values[name] = AttributeValues(target, type_)
    facts = summarize_values(runner, values) if values else {}
    place = f"table[{policy.table.index(table.section)}]"
    problems: list[Problem] = []
    for i, (name, column) in enumerate(zip(names, table.columns.generalized, strict=True)):
        spec, attribute_values, target = table.policy.attributes[name], values[name], work(f"hierarchy_{i}")
        rules, nullable = spec.hierarchy or (), facts[name].nullable
        hierarchy, flaws = build_hierarchy(
            runner, name, rules, attribute_values.table, attribute_values.type, target, nullable=nullable
        )
        if hierarchy is not None:
            labels = [hierarchy.released_column(level) for level in range(hierarchy.height + 1)]
            flaws = [*flaws, *(() if runner.dry else find_level_problems(runner, name, spec, target, labels))]
            coded = make_coded_values(
                runner, column, hierarchy, attribute_values.table, facts[name], work(f"coded_{i}")
            )
            table.hierarchies = (*table.hierarchies, hierarchy)
            table.attributes = (*table.attributes, coded)
        problems += [Problem(f"{place}.{flaw.place}", flaw.message) for flaw in flaws]
    return problems


def _encode_rows(table: LinkedTable) -> None:
    """Create ``records``: the codes of each linked row, with those of its ancestors below the person."""
    runner, query = table.runner, table.select_linked_rows()
    if table.parent is None:
        numbering = cols(("row", "person", "parent"), "numbers")
    elif table.key:
        query = query.join(table.numbers.as_("numbers"), on=table.same_key("child", "numbers"), copy=False)
        numbering = cols(("row", "person", "parent"), "numbers")
    else:
        numbering = number_linked_rows(())
    query = query.select(*numbering, copy=False)
    if table.parent is not None and table.parent.known_row_attributes:
        same_row = col("row", "parent").eq(col("row", "parent_records"))
        query = query.join(table.parent.records.as_("parent_records"), on=same_row, copy=False)
        if not table.parent.is_person_table:
            query = query.select(*cols(table.parent.known_row_codes, "parent_records"), copy=False)
    for i, (number, attribute) in enumerate(zip(table.attribute_numbers, table.attributes, strict=True)):
        alias = f"coded_{i}"
        on = null_safe_equal(col(attribute.column, "child"), col("value", alias), attribute.nullable)
        query = query.join(attribute.table.as_(alias), on=on, copy=False)
        codes = [as_column(col(f"code_{k}", alias), code_column(number, k)) for k in range(attribute.height)]
        query = query.select(*codes, copy=False)
    runner.create_table(table.records, query)


def _build_records(policy: LinkedPolicy, tables: Sequence[LinkedTable]) -> LinkedRecords:
    """Count what bounds and packed codes need, and find the permitted levels."""
    names: list[str] = []
    leaf_sums: list[tuple[float, ...]] = []
    code_counts: list[tuple[int, ...]] = []
    bottom: list[int] = []
    top: list[int] = []
    holes: list[frozenset[int]] = []
    for table in tables:
        if not table.attributes:
            continue
        runner = table.runner
        heights = tuple(attribute.height for attribute in table.attributes)
        for hierarchy, figures in zip(
            table.hierarchies, fetch_marginal_figures(runner, table.attributes, False), strict=True
        ):
            at_top = (table.rows - table.orphans) * (hierarchy.leaves - 1.0) if hierarchy.height else 0.0
            below_top = [leaf_sum or 0.0 for leaf_sum in figures[1 : hierarchy.height + 1]]  # NULL without rows
            leaf_sums.append((*below_top, at_top))
        code_counts += [
            tuple(runner.fetch_rows(coding.group_counts(attribute), [(EXAMPLE_COUNT,) * attribute.height])[0])
            if attribute.height
            else ()
            for attribute in table.attributes
        ]
        permitted = find_permitted_levels(
            table.policy, heights, find_forbidden_levels(runner, table.policy, table.attributes)
        )
        names += [f"{table.name}.{name}" for name in table.policy.generalized_attributes]
        bottom += permitted.lowest
        top += permitted.highest
        holes += permitted.forbidden or (frozenset(),) * len(heights)
    forbidden = tuple(holes) if any(holes) else ()
    lattice = Lattice(tuple(names), tuple(bottom), tuple(top), forbidden)
    return LinkedRecords(
        policy, tables[0].runner, tuple(tables), tuple(names), tuple(leaf_sums), tuple(code_counts), lattice
    )
