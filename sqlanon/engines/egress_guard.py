"""The guard that keeps source rows in their engine: a query may fetch aggregates, but no rows.

The guard reads only the query and runs nothing. `engines.federation` fetches no result that the guard has not allowed.
The PostgreSQL source fetches some results directly: groups and counts (`sources.postgres`), hashes and counts
(`ledger.postgres_samples`), the rows of a release, and answers about its temporary rows. Whatever other code queries of
these passes the guard.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from sqlglot import exp

from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.errors import SourceError
from sqlanon.support.expressions import ROW_LEVEL, full_name, table

_UNGROUPING = (exp.GroupConcat, exp.Explode, exp.Unnest)


def refuse_rows(query: exp.Query, tables: Container[str], types: Mapping[str, str], engine_name: str) -> None:
    """Refuse a query that would fetch rows of the tables, or lists of their values."""
    if not is_aggregated(query, tables):
        raise SourceError(
            f"this would fetch rows of the source, but the rows of a source in {engine_name} never leave it"
        )
    if any(map(is_nested, types.values())):
        raise SourceError(f"this would fetch lists of source values: source rows never leave {engine_name}")


def may_leave(query: exp.Query, tables: Container[str], types: Mapping[str, str]) -> bool:
    """Whether the result of a query may be fetched: it is an aggregation of the tables and has no lists."""
    return is_aggregated(query, tables) and not any(map(is_nested, types.values()))


def is_aggregated(query: exp.Query, tables: Container[str]) -> bool:
    """Whether a query returns only groups and aggregates of the tables, and none of their rows.

    >>> from sqlglot import parse_one
    >>> queries = ("a, COUNT(*) FROM t GROUP BY a", "MAX(a) FROM t", "a, RANK() OVER (ORDER BY a) FROM t")
    >>> [is_aggregated(parse_one(f"SELECT {query}"), {'"t"'}) for query in queries]
    [True, True, False]
    """
    if query.meta.get(ROW_LEVEL):
        return False
    # Functions that join many values into one text, or expand a list, return the grouped values again.
    functions = query.find_all(exp.Func)
    if any(isinstance(function, _UNGROUPING) or function.name.upper() == "UNNEST" for function in functions):
        return False
    relations = (relation for relation in query.find_all(exp.Table) if full_name(relation) in tables)
    return all(_is_inside_aggregation(relation, query) for relation in relations)


def is_of_one_column(query: exp.Query) -> bool:
    """Whether an aggregation groups by a single column, and so returns no combinations of values.

    >>> from sqlglot import parse_one
    >>> queries = ("a, COUNT(*) FROM t GROUP BY a", "DISTINCT a, b FROM t", "b, 1 FROM t GROUP BY a, b")
    >>> [is_of_one_column(parse_one(f"SELECT {query}")) for query in queries]
    [True, False, False]
    """
    selects = list(query.find_all(exp.Select))
    groupings = [part.args["group"].expressions for part in selects if part.args.get("group") is not None]
    groupings += [part.expressions for part in selects if part.args.get("distinct") is not None]
    for node in query.walk():
        if isinstance(node, (exp.AnyValue, exp.Star)) and not isinstance(node.parent, exp.Count):
            return False
    return bool(groupings) and all(len(keys) == 1 for keys in groupings)


def split_aggregation(query: exp.Query, tables: Container[str]) -> tuple[exp.Query, Callable[[exp.Query], exp.Query]]:
    """The aggregation of the tables that a query joins to other tables, and a function that embeds its result.

    >>> from sqlglot import parse_one
    >>> query = parse_one("SELECT g.*, u.b FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS g JOIN u ON g.a = u.a")
    >>> aggregation, embed = split_aggregation(query, {'"t"'})
    >>> aggregation.sql()
    'SELECT a, COUNT(*) AS n FROM t GROUP BY a'
    >>> embed(exp.select("*").from_("counted")).sql()
    'SELECT g.*, u.b FROM (SELECT * FROM counted) AS g JOIN u ON g.a = u.a'
    """
    inner = _joined_subquery(query)
    if inner is None or not is_aggregated(inner, tables) or _count_reads(query, tables) != _count_reads(inner, tables):
        return query, lambda rows: rows

    def embed(rows: exp.Query) -> exp.Query:
        result = query.copy()
        if (aggregation := _joined_subquery(result)) is not None:
            aggregation.replace(rows)
        return result

    return inner.copy(), embed


def extract_local_queries(
    query: exp.Query,
    tables: Container[str],
    prefix: str,
    has_equal_types: Callable[[exp.Query], bool] = lambda inner: True,
) -> tuple[exp.Query, dict[str, exp.Query]]:
    """Replace each subquery over other tables only by a table; return the query and the subqueries by table name.

    >>> from sqlglot import parse_one
    >>> query = "SELECT t.a, l.b FROM t JOIN (SELECT DISTINCT a, b FROM c.s.labels) AS l ON t.a = l.a"
    >>> query, local_queries = extract_local_queries(parse_one(query), {'"t"'}, "answer")
    >>> query.sql()
    'SELECT t.a, l.b FROM t JOIN "answer_0" AS "l" ON t.a = l.a'
    >>> {name: local_query.sql() for name, local_query in local_queries.items()}
    {'"answer_0"': 'SELECT DISTINCT a, b FROM c.s.labels'}
    """
    local_queries: dict[str, exp.Query] = {}
    query = query.copy()
    for part in list(query.find_all(exp.Subquery)):
        relations = list(part.find_all(exp.Table))
        # Names of CTEs have no catalog.
        is_local = relations and all(relation.catalog and full_name(relation) not in tables for relation in relations)
        if is_local and _is_plain_relation(part) and part.root() is query and has_equal_types(part.this):
            result = table(f"{prefix}_{len(local_queries)}", alias=part.alias)
            local_queries[full_name(result)] = part.this
            part.replace(result)
    return query, local_queries


def _is_plain_relation(part: exp.Subquery) -> bool:
    """Whether a subquery stands in a FROM or JOIN with an alias and nothing else, and refers to no outer columns."""
    args = {name for name, value in part.args.items() if value}
    is_aliased = args == {"this", "alias"} and not part.args["alias"].columns and isinstance(part.this, exp.Query)
    inner_names = {relation.alias_or_name for relation in part.this.find_all(exp.Table, exp.Subquery)}
    is_closed = {column.table for column in part.this.find_all(exp.Column) if column.table} <= inner_names
    return is_aliased and is_closed and isinstance(part.parent, (exp.From, exp.Join))


def _joined_subquery(query: exp.Query) -> exp.Query | None:
    """The subquery in FROM whose rows a query only joins to others; None if it does anything else with them."""
    args = {name for name, value in query.args.items() if value}
    if not isinstance(query, exp.Select) or not args <= {"expressions", "from_", "joins"} or "joins" not in args:
        return None
    for join in query.args["joins"]:
        if join.args.get("on") is None or join.args.get("kind") or join.args.get("side"):
            return None
    source = query.args["from_"].this
    if any(column.find(exp.AggFunc, exp.Window) for column in query.expressions):
        return None
    return source.this if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Query) else None


def _count_reads(query: exp.Query, tables: Container[str]) -> int:
    return sum(full_name(relation) in tables for relation in query.find_all(exp.Table))


def _is_inside_aggregation(relation: exp.Expr, query: exp.Query) -> bool:
    node: exp.Expr | None = relation
    while node is not None:
        if isinstance(node, exp.Select) and _aggregates(node):
            return True
        if node is query:
            return False
        node = node.parent
    return False


def _aggregates(query: exp.Select) -> bool:
    if query.args.get("distinct") is not None and any(column.is_star for column in query.expressions):
        return False  # whole rows
    if query.args.get("group") is not None or query.args.get("distinct") is not None:
        return True
    return any(_is_aggregate(column) for column in query.expressions)


def _is_aggregate(column: exp.Expr) -> bool:
    """Whether an output column contains an aggregate of its own SELECT that is not a window function."""
    aggregates = column.find_all(exp.AggFunc)
    return any(aggregate.find_ancestor(exp.Window, exp.Select) is column.parent for aggregate in aggregates)


def refuse_confined(query: exp.Expr, confined: Mapping[str, frozenset[str]], engine_name: str) -> None:
    """Refuse a query whose result would show confined columns."""
    if leaks := confined_columns(query, confined):
        raise SourceError(
            f"this would fetch person ids of rows ({', '.join(sorted(leaks))}), which never leave {engine_name}"
        )


def confined_columns(query: exp.Expr, confined: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The output columns of a query, in lower case, that show a confined column of a table.

    Confined columns never leave their engine; only the number of their distinct values may.

    >>> from sqlglot import parse_one
    >>> confined = {'"visits"': frozenset({"person"})}
    >>> counts = "SELECT zip, COUNT(*) AS n FROM (SELECT DISTINCT zip, person FROM visits) AS p GROUP BY zip"
    >>> confined_columns(parse_one(counts), confined)
    frozenset()
    >>> sorted(confined_columns(parse_one("SELECT zip, MAX(person) AS who FROM visits GROUP BY zip"), confined))
    ['who']
    >>> sorted(confined_columns(parse_one("SELECT r.b FROM (SELECT zip, person FROM visits) AS r(a, b)"), confined))
    ['b']
    """
    if isinstance(query, exp.SetOperation):
        return _confined_in_union(query, confined)
    if not isinstance(query, exp.Select):
        return confined_columns(query.this, confined) if isinstance(query, exp.Subquery) else frozenset()
    by_relation = _confined_by_relation(query, confined)
    all_confined = frozenset[str]().union(*by_relation.values())
    output = set[str]()
    for expression in query.expressions:
        if expression.is_star:
            relation = expression.table.lower() if isinstance(expression, exp.Column) else ""
            output |= by_relation.get(relation, all_confined)
        elif any(
            _exposes_confined_column(column, by_relation, all_confined) for column in expression.find_all(exp.Column)
        ):
            output.add(expression.alias_or_name.lower())
    return frozenset(output)


def _confined_in_union(query: exp.SetOperation, confined: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The confined columns of a union: those of both sides, matched by position."""
    names, output = [name.lower() for name in query.named_selects], set[str]()
    for side in (query.left, query.right):
        assert isinstance(side, exp.Query)
        leaks, side_names = confined_columns(side, confined), [name.lower() for name in side.named_selects]
        if leaks - set(side_names):  # columns of a star have no position
            return frozenset({*names, *leaks})
        output |= {names[position] for position, name in enumerate(side_names) if name in leaks}
    return frozenset(output)


def _confined_by_relation(query: exp.Select, confined: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The confined columns of the relations that a query selects from, by alias."""
    tables, by_relation = dict(confined), dict[str, frozenset[str]]()
    if (with_ := query.args.get("with_")) is not None:
        for cte in with_.expressions:
            tables[full_name(table(cte.alias))] = confined_columns(cte.this, tables)
    clauses = [query.args.get("from_"), *(query.args.get("joins") or ())]
    for relation in [clause.this for clause in clauses if clause is not None]:
        if isinstance(relation, exp.Table):
            columns = tables.get(full_name(relation), frozenset())
        else:
            columns = confined_columns(relation, tables)
        by_relation[relation.alias_or_name.lower()] = _rename_columns(relation, columns)
    return by_relation


def _rename_columns(relation: exp.Expr, columns: frozenset[str]) -> frozenset[str]:
    """Columns under the names of the relation's column aliases; all aliases if the positions are unknown."""
    aliases = [name.lower() for name in relation.alias_column_names]
    if not aliases or not columns:
        return columns
    names = [name.lower() for name in relation.this.named_selects] if isinstance(relation, exp.Subquery) else []
    if not columns <= set(names):
        return frozenset({*aliases, *columns})
    return frozenset(alias for name, alias in zip(names, aliases, strict=False) if name in columns)


def _exposes_confined_column(
    column: exp.Column, by_relation: Mapping[str, frozenset[str]], all_confined: frozenset[str]
) -> bool:
    """Whether a column of an output is confined, and not only counted."""
    names = by_relation.get(column.table.lower(), all_confined) if column.table else all_confined
    return column.name.lower() in names and column.find_ancestor(exp.Count) is None
