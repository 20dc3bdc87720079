"""The statements that create and remove a live view, by names of its database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal

from sqlglot import exp

from sqlanon.live.queries import LiveColumn, LiveHierarchy, LiveRecipe, live_labels, live_nodes, live_status, live_view
from sqlanon.requirements import Domain, bind_requirements
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    cast,
    create_table,
    create_table_with_columns,
    create_view,
    drop_table,
    drop_view,
    fragment,
    number,
    table,
    template,
    text,
    union_all,
)

SCHEMA = "sqlanon"
DEFINITIONS = "live_definitions"
STATUS = "live_views"
MARK = "sqlanon live"
"""The comments of live views begin with it; sqlanon did not create views without such a comment."""

_DEFINITION = {
    "id": "INTEGER",
    "view_schema": "VARCHAR",
    "view_name": "VARCHAR",
    "table_name": "VARCHAR",
    "suppression_limit": "DECIMAL(20, 18)",
    "since": "TIMESTAMP",
    "generalization": "VARCHAR",
    "policy_hash": "VARCHAR",
    "tables": "VARCHAR[]",
}


_STATUS = template("SELECT :number AS id, rows, suppressed, persons, suppressed_persons FROM :status")
_NO_STATUS = template("""
    SELECT
        NULL::BIGINT AS id,
        NULL::BIGINT AS rows,
        NULL::BIGINT AS suppressed,
        NULL::BIGINT AS persons,
        NULL::BIGINT AS suppressed_persons
    WHERE FALSE
""")


@dataclass(frozen=True)
class ViewRecord:
    """A live view in its database: its number, schema and name, and the tables in schema ``sqlanon`` that it reads."""

    number: int
    schema: str
    name: str
    tables: tuple[str, ...]

    @property
    def status_view(self) -> exp.Table:
        return table(f"live_{self.number}_status", SCHEMA)


@dataclass(frozen=True)
class LiveDraft:
    """A live view before its creation, with the contents of its tables and its row in ``sqlanon.live_definitions``."""

    record: ViewRecord
    recipe: LiveRecipe
    contents: tuple[exp.Select, ...]
    definition: tuple[exp.Expr, ...]


def build_recipe(
    search_input: SearchInput, levels: Levels, base: exp.Table, current: Mapping[str, LiveColumn], n: int
) -> tuple[LiveRecipe, list[str], list[exp.Select]]:
    """The recipe of a live view, and the tables that it reads, by name in schema ``sqlanon`` and by query."""
    policy, columns = search_input.policy, search_input.columns
    used = {column.name for column in search_input.released_columns}
    used |= {name for name in (*columns.generalized, *columns.sensitive, columns.person) if name is not None}
    names = [name for name in search_input.source.columns if name in used]
    position = {name: j for j, name in enumerate(names)}
    tables, contents = list[str](), list[exp.Select]()

    def add_table(attribute: str, query: exp.Select) -> exp.Table:
        tables.append(f"live_{n}_{attribute}")
        contents.append(query)
        return table(tables[-1], SCHEMA)

    quasi = []
    for name, column, hierarchy, level in zip(
        policy.generalized_attributes, columns.generalized, search_input.policy_hierarchies, levels, strict=True
    ):
        labels = add_table(name, live_labels(hierarchy, level, policy.attributes[name].forbidden))
        quasi.append(LiveHierarchy(position[column], labels, level, hierarchy.height, hierarchy.open_ends))
    hierarchies = {}
    for name, hierarchy in search_input.sensitive_hierarchies.items():
        nodes = add_table(name, live_nodes(hierarchy.table, hierarchy.height))
        hierarchies[name] = LiveHierarchy(position[columns.by_attribute[name]], nodes, 0, hierarchy.height)
    domains = {
        name: Domain(None, hierarchies[name].height if name in hierarchies else 0) for name in columns.sensitive_names
    }
    recipe = LiveRecipe(
        base,
        tuple(current[name] for name in names),
        tuple((position[column.name], column.name, column.quasi) for column in search_input.released_columns),
        tuple(quasi),
        tuple(zip(columns.sensitive_names, (position[column] for column in columns.sensitive), strict=True)),
        hierarchies,
        bind_requirements(policy.privacy, policy.generalized_attributes, domains),
        None if columns.person is None else position[columns.person],
    )
    return recipe, tables, contents


def definition_row(
    search_input: SearchInput, levels: Levels, record: ViewRecord, base: exp.Table, now: datetime
) -> tuple[exp.Expr, ...]:
    """The row of a live view in ``sqlanon.live_definitions``. A limit with more digits is rounded down."""
    policy = search_input.policy
    limit = Decimal(policy.search.suppression_limit).quantize(Decimal(1).scaleb(-18), rounding=ROUND_FLOOR)
    generalization = dict(zip(policy.generalized_attributes, levels, strict=True))
    values: list[exp.Expr] = [
        number(record.number),
        *map(text, (record.schema, record.name, base.name, str(limit), now.isoformat(sep=" "))),
        text(json.dumps(generalization, ensure_ascii=False)),
        text(policy.fingerprint()),
        exp.array(*(text(name) for name in record.tables)),
    ]
    return tuple(cast(value, type_) for value, type_ in zip(values, _DEFINITION.values(), strict=True))


def create_statements(
    draft: LiveDraft, replaced: ViewRecord | None, readable: Sequence[ViewRecord], secure: bool
) -> Iterator[exp.Expr]:
    """The statements that create a live view, in addition to other ``readable`` ones."""
    record, definitions = draft.record, table(DEFINITIONS, SCHEMA)
    create = create_table_with_columns(definitions, _DEFINITION.items())
    create.set("exists", True)
    yield from (fragment("CREATE SCHEMA IF NOT EXISTS sqlanon")(), create)
    if replaced is not None:
        yield from _remove(replaced)
    insert = fragment("INSERT INTO :definitions SELECT :values")
    yield insert(definitions=definitions, values=draft.definition)
    for name, query in zip(record.tables, draft.contents, strict=True):
        yield create_table(table(name, SCHEMA), query)
    view = table(record.name, record.schema)
    yield create_view(view, live_view(draft.recipe), secure)
    yield _comment(view.copy(), f"{MARK}: generalized and suppressed whenever it is read")
    # The status view is in another schema, which may have a table of that name.
    qualified = replace(draft.recipe, base=table(draft.recipe.base.name, record.schema))
    yield create_view(record.status_view, live_status(qualified))
    yield from _create_status([*readable, record])


def drop_statements(
    record: ViewRecord, remaining: Sequence[ViewRecord], readable: Sequence[ViewRecord]
) -> Iterator[exp.Expr]:
    """The statements that remove a live view; ``readable`` are the ``remaining`` views that are not broken."""
    yield from _remove(record)
    if remaining:
        yield from _create_status(readable)
    else:
        yield drop_view(table(STATUS, SCHEMA))
        yield drop_table(table(DEFINITIONS, SCHEMA))


def _remove(record: ViewRecord) -> Iterator[exp.Expr]:
    yield drop_view(table(record.name, record.schema))
    yield drop_view(record.status_view)
    for name in record.tables:
        yield drop_table(table(name, SCHEMA), exists=True)
    delete = fragment("DELETE FROM :definitions WHERE id = :number")
    yield delete(definitions=table(DEFINITIONS, SCHEMA), number=record.number)


def status_query(readable: Sequence[ViewRecord]) -> exp.Select:
    """The state of all live views; a new search is advised for broken ones, which are not ``readable``."""
    statuses = [_STATUS(number=record.number, status=record.status_view) for record in readable]
    return template("""
        SELECT
            d.view_schema AS "schema",
            d.view_name AS "view",
            d.table_name AS "table",
            s.rows,
            s.suppressed,
            floor(coalesce(s.persons, s.rows)::DECIMAL(18, 0) * d.suppression_limit)::BIGINT AS "limit",
            d.since,
            coalesce(
                coalesce(s.suppressed_persons, s.suppressed)
                > floor(coalesce(s.persons, s.rows)::DECIMAL(18, 0) * d.suppression_limit)::BIGINT,
                TRUE
            ) AS search_advised,
            d.generalization,
            s.persons,
            s.suppressed_persons
        FROM :definitions AS d
        LEFT JOIN :statuses AS s ON d.id = s.id
    """)(definitions=table(DEFINITIONS, SCHEMA), statuses=union_all(*statuses or [_NO_STATUS()]))


def _create_status(readable: Sequence[ViewRecord]) -> Iterator[exp.Expr]:
    """Create the view ``sqlanon.live_views``, which counts when it is read."""
    view = table(STATUS, SCHEMA)
    yield drop_view(view)
    yield create_view(view.copy(), status_query(readable))
    yield _comment(view.copy(), f"{MARK}: the live views of this database; private")


def _comment(view: exp.Table, comment: str) -> exp.Comment:
    return exp.Comment(this=view, kind="VIEW", expression=text(comment))
