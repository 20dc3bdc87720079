"""The statements that make a live view and remove it, by names of its own database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal

from sqlglot import exp

from sqlanon.live.queries import LiveColumn, LiveRecipe, LiveTree, live_labels, live_nodes, live_status, live_view
from sqlanon.requirements import Domain, bind_requirements
from sqlanon.strategies.lattice.input import SearchInput
from sqlanon.support.coding import Levels
from sqlanon.support.expressions import (
    cast,
    create_secure_view,
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
"""Comments of our own views begin with it: what has no such comment is somebody else's."""

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


_CREATE_SCHEMA = fragment("CREATE SCHEMA IF NOT EXISTS sqlanon")
_INSERT = fragment("INSERT INTO :definitions SELECT :values")
_DELETE = fragment("DELETE FROM :definitions WHERE id = :number")
_COUNTED = template("SELECT :number AS id, rows, suppressed, persons, suppressed_persons FROM :status")
_NONE = template("""
    SELECT
        NULL::BIGINT AS id,
        NULL::BIGINT AS rows,
        NULL::BIGINT AS suppressed,
        NULL::BIGINT AS persons,
        NULL::BIGINT AS suppressed_persons
    WHERE FALSE
""")
_STATUS_OF_ALL = template("""
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
    LEFT JOIN :counted AS s ON d.id = s.id
""")


@dataclass(frozen=True)
class Known:
    """A live view that is there: its number, schema and name, and the tables that it reads in schema ``sqlanon``."""

    number: int
    schema: str
    name: str
    tables: tuple[str, ...]


@dataclass(frozen=True)
class LiveDraft:
    """A live view before it is made, with what its tables hold and its row in ``sqlanon.live_definitions``."""

    known: Known
    recipe: LiveRecipe
    contents: tuple[exp.Select, ...]
    definition: tuple[exp.Expr, ...]


def live_recipe(
    prepared: SearchInput, levels: Levels, base: exp.Table, now: Mapping[str, LiveColumn], n: int
) -> tuple[LiveRecipe, list[str], list[exp.Select]]:
    """What a live view is made of; and the tables that it reads, by their names in schema ``sqlanon``, with what they
    are made from.
    """
    policy, columns = prepared.policy, prepared.columns
    names = list(prepared.source.columns)
    used = [column.name for column in prepared.released_columns]
    used += [name for name in (*columns.generalized, *columns.sensitive, columns.person) if name is not None]
    used = [name for name in names if name in set(used)]
    place = {name: j for j, name in enumerate(used)}
    tables, contents = list[str](), list[exp.Select]()

    def kept(attribute: str, query: exp.Select) -> exp.Table:
        tables.append(f"live_{n}_{attribute}")
        contents.append(query)
        return table(tables[-1], SCHEMA)

    quasi = []
    for name, column, tree, level in zip(
        policy.generalized_attributes, columns.generalized, prepared.policy_hierarchies, levels, strict=True
    ):
        labels = live_labels(tree, level, policy.attributes[name].forbidden)
        quasi.append(LiveTree(place[column], kept(name, labels), level, tree.height, tree.open_ends))
    trees = {
        name: LiveTree(
            place[columns.by_attribute[name]], kept(name, live_nodes(tree.table, tree.height)), 0, tree.height
        )
        for name, tree in prepared.sensitive_hierarchies.items()
    }
    domains = {name: Domain(None, trees[name].height if name in trees else 0) for name in columns.sensitive_names}
    recipe = LiveRecipe(
        base,
        tuple(now[name] for name in used),
        tuple((place[column.name], column.name, column.quasi) for column in prepared.released_columns),
        tuple(quasi),
        tuple(zip(columns.sensitive_names, (place[column] for column in columns.sensitive), strict=True)),
        trees,
        bind_requirements(policy.privacy, policy.generalized_attributes, domains),
        None if columns.person is None else place[columns.person],
    )
    return recipe, tables, contents


def definition(
    prepared: SearchInput, levels: Levels, known: Known, base: exp.Table, now: datetime
) -> tuple[exp.Expr, ...]:
    """The row of a live view in ``sqlanon.live_definitions``. The limit is rounded down where it is longer."""
    limit = Decimal(prepared.policy.search.suppression_limit).quantize(Decimal(1).scaleb(-18), rounding=ROUND_FLOOR)
    levels_of = json.dumps(dict(zip(prepared.policy.generalized_attributes, levels, strict=True)), ensure_ascii=False)
    values: list[exp.Expr] = [
        number(known.number),
        text(known.schema),
        text(known.name),
        text(base.name),
        text(str(limit)),
        text(now.isoformat(sep=" ")),
        text(levels_of),
        text(prepared.policy.fingerprint()),
        exp.array(*(text(name) for name in known.tables)),
    ]
    return tuple(cast(value, type_) for value, type_ in zip(values, _DEFINITION.values(), strict=True))


def making(draft: LiveDraft, before: Known | None, sound: Sequence[Known], secure: bool) -> Iterator[exp.Expr]:
    known, definitions = draft.known, table(DEFINITIONS, SCHEMA)
    create = create_table_with_columns(definitions, _DEFINITION.items())
    create.set("exists", True)
    yield from (_CREATE_SCHEMA(), create)
    if before is not None:
        yield from _removing(before)
    yield _INSERT(definitions=definitions, values=draft.definition)
    for name, query in zip(known.tables, draft.contents, strict=True):
        yield create_table(table(name, SCHEMA), query)
    view = table(known.name, known.schema)
    yield (create_secure_view if secure else create_view)(view, live_view(draft.recipe))
    yield _comment(view.copy(), f"{MARK}: generalized and suppressed whenever it is read")
    # It is in another schema, where another table may have that name.
    elsewhere = replace(draft.recipe, base=table(draft.recipe.base.name, known.schema))
    yield create_view(table(status_name(known), SCHEMA), live_status(elsewhere))
    yield from _status([*sound, known])


def removing(known: Known, others: Sequence[Known], sound: Sequence[Known]) -> Iterator[exp.Expr]:
    """The statements that remove a live view, of others, of which some are not broken."""
    yield from _removing(known)
    if others:
        yield from _status(sound)
    else:
        yield drop_view(table(STATUS, SCHEMA))
        yield drop_table(table(DEFINITIONS, SCHEMA))


def _removing(known: Known) -> Iterator[exp.Expr]:
    yield drop_view(table(known.name, known.schema))
    yield drop_view(table(status_name(known), SCHEMA))
    for name in known.tables:
        drop = drop_table(table(name, SCHEMA))
        drop.set("exists", True)
        yield drop
    yield _DELETE(definitions=table(DEFINITIONS, SCHEMA), number=known.number)


def status_query(counted: Sequence[Known]) -> exp.Select:
    """The state of the live views. Those that are not counted are broken: a new search is advised."""
    each = [_COUNTED(number=one.number, status=table(status_name(one), SCHEMA)) for one in counted]
    return _STATUS_OF_ALL(definitions=table(DEFINITIONS, SCHEMA), counted=union_all(*each or [_NONE()]))


def _status(counted: Sequence[Known]) -> Iterator[exp.Expr]:
    """The view ``sqlanon.live_views``: it counts when it is read."""
    view = table(STATUS, SCHEMA)
    yield drop_view(view)
    yield create_view(view.copy(), status_query(counted))
    yield _comment(view.copy(), f"{MARK}: the live views of this database; private")


def status_name(known: Known) -> str:
    return f"live_{known.number}_status"


def _comment(view: exp.Table, comment: str) -> exp.Comment:
    return exp.Comment(this=view, kind="VIEW", expression=text(comment))
