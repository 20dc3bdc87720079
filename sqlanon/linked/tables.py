"""The tables of a policy bound to their sources, with numbers for rows and persons.

A table with a key gets ``numbers``: ``key_0, key_1, ...`` with ``row``, ``person`` and ``parent``, the numbers of the
row, of its person and of the row that it references.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import exp

from sqlanon.engines.statement_runner import StatementRunner
from sqlanon.errors import InfeasibleError, LinkedSourceError, Problem, SourceError
from sqlanon.hierarchies import Hierarchy
from sqlanon.policy import Policy
from sqlanon.policy.linked import LinkedPolicy
from sqlanon.policy.linked_checks import find_local_search
from sqlanon.policy.linked_sections import TableSection
from sqlanon.sources.columns import Columns, match_columns
from sqlanon.sources.kinds import Linking
from sqlanon.sources.relation import source_errors
from sqlanon.sources.run import Run
from sqlanon.sources.workspace import Workspace
from sqlanon.support.coding import CodedAttribute, code_column
from sqlanon.support.expressions import (
    all_of,
    as_column,
    col,
    cols,
    is_null,
    subquery,
    template,
)

EXAMPLE_ROWS = 100_000
"""The number of rows of a table in a dry run."""


@dataclass
class LinkedTable:
    """A bound table of a policy, with its numbers and coded records."""

    position: int
    """The position among the tables; parents come before their children."""
    section: TableSection
    policy: Policy
    run: Run
    runner: StatementRunner
    """Runs the statements of all tables."""
    columns: Columns
    parent: LinkedTable | None
    """The table that its rows belong to; None for the table of persons."""
    first_attribute: int
    """The number of its first quasi-identifier."""
    attributes: tuple[CodedAttribute, ...] = ()
    hierarchies: tuple[Hierarchy, ...] = ()
    rows: int = 0
    orphans: int = 0
    """Rows without a person: they have no record."""
    moved_rows: exp.Table | None = None
    """The linked rows with moved dates, which take the place of the source rows; see `date_shifts`."""

    @property
    def relation(self) -> exp.Expr:
        """The relation of its rows."""
        return self.run.source.relation if self.moved_rows is None else self.moved_rows

    @property
    def name(self) -> str:
        """The name in the policy and in the release."""
        return self.section.name

    @property
    def is_person_table(self) -> bool:
        """Whether each of its rows is a person."""
        return bool(self.section.person)

    @property
    def key(self) -> list[str]:
        """The columns that identify a row; empty if the policy names none."""
        return [self.columns.by_attribute[name] for name in self.section.person or self.section.key]

    @property
    def released_key(self) -> list[str]:
        """The columns of the key that get a new number for each row: the columns without references, or else all."""
        references = {self.columns.by_attribute[name] for name in self.section.references}
        return [column for column in self.key if column not in references] or self.key

    @property
    def references(self) -> list[str]:
        """The columns that name a row of the parent, in the order of the parent's key."""
        return [] if self.parent is None else self.columns_naming(self.parent)

    @property
    def ancestors(self) -> list[LinkedTable]:
        """The tables above the parent, nearest first, as far as columns name their rows."""
        tables, ancestor = list[LinkedTable](), None if self.parent is None else self.parent.parent
        while ancestor is not None:
            tables.append(ancestor)
            ancestor = ancestor.parent
        while tables and not self.columns_naming(tables[-1]):
            tables.pop()
        return tables

    @property
    def ancestor_references(self) -> dict[str, int]:
        """The columns that name rows above the parent, each with the position of their table in ``ancestors``."""
        return {column: i for i, table in enumerate(self.ancestors) for column in self.columns_naming(table)}

    def columns_naming(self, table: LinkedTable) -> list[str]:
        """The columns that name a row of another table, in the order of its key."""
        return [self.columns.by_attribute[name] for name in self.section.columns_naming(table.name)]

    @property
    def numbers(self) -> exp.Table:
        """The numbers of its rows by key."""
        return self.run.work("numbers")

    @property
    def records(self) -> exp.Table:
        """The table of the coded records."""
        return self.run.work("records")

    @property
    def attribute_numbers(self) -> tuple[int, ...]:
        """The numbers of its quasi-identifiers."""
        return tuple(range(self.first_attribute, self.first_attribute + len(self.columns.generalized)))

    @property
    def known_row_codes(self) -> list[str]:
        """The columns of ``records`` with the codes of its quasi-identifiers and those of its ancestors below the
        person."""
        inherited = [] if self.parent is None or self.parent.is_person_table else self.parent.known_row_codes
        attributes = zip(self.attribute_numbers, self.attributes, strict=True)
        return inherited + [code_column(i, k) for i, attribute in attributes for k in range(attribute.height)]

    @property
    def known_row_attributes(self) -> tuple[int, ...]:
        """The numbers of its quasi-identifiers and of those of its ancestors below the person."""
        inherited = () if self.parent is None or self.parent.is_person_table else self.parent.known_row_attributes
        return (*inherited, *self.attribute_numbers)

    def select_linked_rows(self) -> exp.Select:
        """Join the source rows, as ``child``, with the numbers of their parent rows, as ``parent``, to select from.

        Rows above the parent are joined as ``ancestor_0, ancestor_1, ...``, as far as columns name them: these columns
        must name the rows that the parent row belongs to.
        """
        if self.parent is None:
            same = self.same_key("child", "numbers")
            query = template("SELECT 1 FROM :rows AS child JOIN :numbers AS numbers ON :same")
            linked_rows = query(rows=self.relation, numbers=self.numbers, same=same)
        else:
            pairs = enumerate(self.references)
            same = all_of(col(column, "child").eq(col(f"key_{i}", "parent")) for i, column in pairs)
            query = template("SELECT 1 FROM :rows AS child JOIN :parents AS parent ON :same")
            linked_rows = query(rows=self.relation, parents=self.parent.numbers, same=same)
            below = "parent"
            for i, ancestor in enumerate(self.ancestors):
                alias = f"ancestor_{i}"
                columns = enumerate(self.columns_naming(ancestor))
                same_rows = [col(column, "child").eq(col(f"key_{j}", alias)) for j, column in columns]
                on = all_of([col("row", alias).eq(col("parent", below)), *same_rows])
                linked_rows = linked_rows.join(ancestor.numbers.as_(alias), on=on, copy=False)
                below = alias
        linked_rows.set("expressions", [])
        return linked_rows

    def same_key(self, rows: str, numbers: str) -> exp.Expr:
        """Whether a source row has the key of a numbered row."""
        return all_of(col(column, rows).eq(col(f"key_{i}", numbers)) for i, column in enumerate(self.key))


@source_errors()
def bind_tables(
    workspace: Workspace, policy: LinkedPolicy, counted: bool = False, recorded: list[str] | None = None
) -> list[LinkedTable]:
    """Bind the tables of a policy, and number their rows. Raises the errors of `encode_tables`.

    ``counted`` says that counts are enough: tables on a server are refused otherwise. A dry run, which reads no rows,
    appends its statements to ``recorded``.
    """
    tables = _bind(workspace, policy, counted, recorded)
    if not tables[0].rows:
        raise InfeasibleError(f"table {tables[0].name!r} has no rows: no person can be released", None, 0, 0)
    return tables


def _bind(workspace: Workspace, policy: LinkedPolicy, counted: bool, recorded: list[str] | None) -> list[LinkedTable]:
    """Bind the tables, parents first, and number their rows. The error lists the problems of all tables.

    Without the numbers of its parent, the rows of a table that belong to no person cannot be counted.
    """
    tables: list[LinkedTable] = []
    problems: list[Problem] = []
    numbered: set[str] = set()
    shared_engines = workspace.shared_engines()
    for section in policy.ordered_tables:
        linking = Linking(shared_engines, (*section.person, *section.key, *section.references))
        try:
            bind_run = partial(workspace.run, read=recorded is None, counted=counted, linking=linking)
            table = _bind_table(bind_run, policy, section, tables, recorded)
            flaws = [*_find_other_key_types(table), *_find_wrong_keys(table)]
            if not flaws and (section.person or (table.parent is not None and table.parent.name in numbered)):
                flaws += _number_rows(table)
                numbered.add(section.name)
            tables.append(table)
        except SourceError as error:
            flaws = [_name_linked_sections(str(error))]
        problems += [Problem(f"table {section.name!r}", flaw) for flaw in flaws]
    if problems:
        raise LinkedSourceError(problems)
    return tables


def _name_linked_sections(message: str) -> str:
    """The error of a policy of one table, with the sections of a policy of several."""
    sections = {"[source]": "[[table]]", "[source.csv]": "[table.csv]", "[attributes]": "[table.attributes]"}
    for section, linked_section in sections.items():
        message = message.replace(section, linked_section)
    return message.replace("\n", "\n  ")


def _bind_table(
    bind_run: Callable[[Policy], Run],
    policy: LinkedPolicy,
    section: TableSection,
    bound_tables: Sequence[LinkedTable],
    recorded: list[str] | None,
) -> LinkedTable:
    table_policy = policy.policy_of(section)
    run = bind_run(table_policy)
    if not run.source.can_be_linked:
        message = f"is in {run.source.location}, where several tables are not joined"
        raise SourceError(f"{message}: copy them to a DuckDB file, or export them to Parquet files")
    # A session of Spark takes the place of the policy's source, so that its validation did not see the server.
    if run.source.access != "rows" and (problem := find_local_search(policy.search, run.source.location)):
        raise SourceError(f"search.strategy: {problem}")
    if (release := policy.release) is not None and release.schema_name is not None:
        run.source.refuse_release(release.postgres, release.schema_name, "release.schema_name")
    columns = match_columns(table_policy, run.source)
    parent_section = policy.parent_of(section)
    parent = next((table for table in bound_tables if table.section is parent_section), None)
    first_attribute = sum(len(table.columns.generalized) for table in bound_tables)
    runner = bound_tables[0].runner if bound_tables else StatementRunner(run.engine, recorded)
    position = len(bound_tables)
    return LinkedTable(position, section, table_policy, run, runner, columns, parent, first_attribute)


def _find_other_key_types(table: LinkedTable) -> Iterator[str]:
    """Find references of another type than the key: ``'1'`` and ``'01'`` are two keys, and one number."""
    if table.parent is None:
        return
    pairs = [
        (owner, *pair)
        for owner in (table.parent, *table.ancestors)
        for pair in zip(table.columns_naming(owner), owner.key, strict=False)
    ]
    for owner, reference, key in pairs:
        type_, key_type = table.run.source.columns[reference], owner.run.source.columns[key]
        if type_ != key_type and not {type_, key_type} <= _WHOLE_NUMBERS:
            yield (
                f"the reference {reference!r} is {type_}, and the key {key!r} of {owner.name!r} is {key_type}, "
                "so one may name several rows: convert it, with query = ... or [table.csv] types"
            )


_WHOLE_NUMBERS = frozenset(
    f"{sign}{size}" for sign in ("", "U") for size in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
)


def _number_rows(table: LinkedTable) -> Iterator[str]:
    """Number the rows of a table by key, and find rows without a person. Creates ``numbers`` for a table with a key."""
    runner, relation = table.runner, table.run.source.relation
    table.rows = runner.count(relation, EXAMPLE_ROWS)
    keys = [as_column(col(column, "child"), f"key_{i}") for i, column in enumerate(table.key)]
    if table.parent is None:
        number_persons = template("""
            SELECT *, row AS person, NULL::INTEGER AS parent
            FROM (SELECT :keys, (row_number() OVER (ORDER BY :key) - 1)::INTEGER AS row FROM :rows AS child) AS persons
        """)
        runner.create_table(table.numbers, number_persons(keys=keys, key=cols(table.key), rows=relation))
        return
    if keys:
        numbered = table.select_linked_rows().select(*keys, copy=False)
        numbered = numbered.select(*number_linked_rows(cols(table.key, "child")), copy=False)
        runner.create_table(table.numbers, numbered)
    table.orphans = table.rows - runner.count(subquery(_linked_rows(table)), EXAMPLE_ROWS)
    if table.orphans and table.section.orphans == "error":
        positions = sorted({*table.ancestor_references.values()})
        ancestors = " and ".join(repr(table.ancestors[position].name) for position in positions)
        contradiction = f", or other rows of {ancestors} than that row belongs to" if ancestors else ""
        yield (
            f"{table.orphans:,} rows name no row of {table.parent.name!r}{contradiction}, so they belong to no person: "
            'complete the tables, or set orphans = "suppress" for this table to leave them out'
        )


def _linked_rows(table: LinkedTable) -> exp.Select:
    return table.select_linked_rows().select(as_column(exp.convert(1), "linked"), copy=False)


def number_linked_rows(order: Sequence[exp.Expr]) -> list[exp.Expr]:
    """The columns that number a row, joined with its parent row: ``row``, ``person``, ``parent``."""
    number = template("SELECT (row_number() OVER (ORDER BY :order) - 1)::INTEGER AS row")(order=order)
    if not order:
        number = template("SELECT (row_number() OVER () - 1)::INTEGER AS row")()
    return [
        *number.expressions,
        as_column(col("person", "parent"), "person"),
        as_column(col("row", "parent"), "parent"),
    ]


def _find_wrong_keys(table: LinkedTable) -> Iterator[str]:
    """Find keys of several rows, and rows without a key."""
    if not table.key:
        return
    rows, lacks_part = table.run.source.relation, exp.or_(*(is_null(col(name)) for name in table.key), copy=False)
    of_several = template("SELECT 1 AS c FROM :rows WHERE NOT :lacks_part GROUP BY :key HAVING count(*) > 1")
    keys_of_several = of_several(rows=rows, lacks_part=exp.Paren(this=lacks_part), key=cols(table.key))
    without_key = template("SELECT 1 AS c FROM :rows WHERE :lacks_part")(rows=rows, lacks_part=lacks_part.copy())
    repeated_keys, rows_without_key = (table.runner.count(subquery(query)) for query in (keys_of_several, without_key))
    if repeated_keys or rows_without_key:
        place = "person" if table.is_person_table else "key"
        yield (
            f"{place} = {table.key} does not identify its rows: {repeated_keys:,} keys belong to several rows, and "
            f"{rows_without_key:,} rows have no key; name columns that identify each row"
        )
