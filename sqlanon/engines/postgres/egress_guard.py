"""The guard that keeps rows of a source where they are: a query may bring what they have in common, and no rows.

It reads the query alone, and asks no engine. `engines.federated` lets nothing pass that the guard has not seen. Of a
source in PostgreSQL come what `sources.postgres` groups and counts itself, the hashes and counts of
`ledger.postgres_samples`, the rows of a release, and answers about its temporary rows: what others ask of these can be
any query, and the guard sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from sqlglot import exp

from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.errors import SourceError
from sqlanon.support.expressions import ROW_LEVEL, full_name, table

_UNGROUPING = (exp.GroupConcat, exp.Explode, exp.Unnest)


def refuse_rows(query: exp.Query, rows: Container[str], types: Mapping[str, str], there: str) -> None:
    """Refuse a query that would bring rows of some tables, or lists of their values."""
    if not is_aggregated(query, rows):
        raise SourceError(f"this would fetch rows of the source, and the rows of a source in {there} never leave it")
    if any(map(is_nested, types.values())):
        raise SourceError(f"this would fetch lists of what the source has: its rows never leave {there}")


def may_leave(query: exp.Query, rows: Container[str], types: Mapping[str, str]) -> bool:
    """Whether the answer of a query may leave the engine that has some tables: it is counted, and has no lists."""
    return is_aggregated(query, rows) and not any(map(is_nested, types.values()))


def is_aggregated(query: exp.Query, rows: Container[str]) -> bool:
    """Whether a query tells of some tables only what is grouped or counted: none of their rows as such.

    >>> from sqlglot import parse_one
    >>> asked = ("a, COUNT(*) FROM t GROUP BY a", "MAX(a) FROM t", "a, RANK() OVER (ORDER BY a) FROM t")
    >>> [is_aggregated(parse_one(f"SELECT {one}"), {'"t"'}) for one in asked]
    [True, True, False]
    """
    if query.meta.get(ROW_LEVEL):
        return False
    # What makes one text of many values, or rows of a list: they were grouped, and are all there again.
    if any(isinstance(one, _UNGROUPING) or one.name.upper() == "UNNEST" for one in query.find_all(exp.Func)):
        return False
    return all(_behind_groups(found, query) for found in query.find_all(exp.Table) if full_name(found) in rows)


def is_of_one_column(query: exp.Query) -> bool:
    """Whether a query that groups tells of the values of one column, and not of combinations.

    >>> from sqlglot import parse_one
    >>> asked = ("a, COUNT(*) FROM t GROUP BY a", "DISTINCT a, b FROM t", "b, 1 FROM t GROUP BY a, b")
    >>> [is_of_one_column(parse_one(f"SELECT {one}")) for one in asked]
    [True, False, False]
    """
    selects = list(query.find_all(exp.Select))
    groups = [one.args["group"].expressions for one in selects if one.args.get("group") is not None]
    groups += [one.expressions for one in selects if one.args.get("distinct") is not None]
    if any(isinstance(one, (exp.AnyValue, exp.Star)) and not isinstance(one.parent, exp.Count) for one in query.walk()):
        return False
    return bool(groups) and all(len(keys) == 1 for keys in groups)


def split_aggregation(query: exp.Query, rows: Container[str]) -> tuple[exp.Query, Callable[[exp.Query], exp.Query]]:
    """What a query counts of some tables, apart from what it joins to that: other tables than these.

    >>> from sqlglot import parse_one
    >>> asked = parse_one("SELECT g.*, u.b FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS g JOIN u ON g.a = u.a")
    >>> counted, whole = split_aggregation(asked, {'"t"'})
    >>> counted.sql()
    'SELECT a, COUNT(*) AS n FROM t GROUP BY a'
    >>> whole(exp.select("*").from_("counted")).sql()
    'SELECT g.*, u.b FROM (SELECT * FROM counted) AS g JOIN u ON g.a = u.a'
    """
    inner = _joined(query)
    if inner is None or not is_aggregated(inner, rows) or _reads(query, rows) != _reads(inner, rows):
        return query, lambda counted: counted

    def whole(counted: exp.Query) -> exp.Query:
        made = query.copy()
        if (place := _joined(made)) is not None:
            place.replace(counted)
        return made

    return inner.copy(), whole


def extract_local_queries(
    query: exp.Query, rows: Container[str], prefix: str, travels: Callable[[exp.Query], bool] = lambda inner: True
) -> tuple[exp.Query, dict[str, exp.Query]]:
    """A query with a table in the place of each query in its FROM that reads other tables only, and what they are.

    >>> from sqlglot import parse_one
    >>> asked = "SELECT t.a, l.b FROM t JOIN (SELECT DISTINCT a, b FROM c.s.labels) AS l ON t.a = l.a"
    >>> query, answers = extract_local_queries(parse_one(asked), {'"t"'}, "answer")
    >>> query.sql()
    'SELECT t.a, l.b FROM t JOIN "answer_0" AS "l" ON t.a = l.a'
    >>> {name: one.sql() for name, one in answers.items()}
    {'"answer_0"': 'SELECT DISTINCT a, b FROM c.s.labels'}
    """
    answers: dict[str, exp.Query] = {}
    query = query.copy()
    for one in list(query.find_all(exp.Subquery)):
        read = list(one.find_all(exp.Table))
        # Those of its own WITH have no catalog.
        is_of_others = read and all(found.catalog and full_name(found) not in rows for found in read)
        if is_of_others and _is_relation(one) and one.root() is query and travels(one.this):
            answer = table(f"{prefix}_{len(answers)}", alias=one.alias)
            answers[full_name(answer)] = one.this
            one.replace(answer)
    return query, answers


def _is_relation(query: exp.Subquery) -> bool:
    """Whether it stands in a FROM, under a name, and that is all."""
    parts = {name for name, value in query.args.items() if value}
    is_named = parts == {"this", "alias"} and not query.args["alias"].columns and isinstance(query.this, exp.Query)
    own = {one.alias_or_name for one in query.this.find_all(exp.Table, exp.Subquery)}
    is_closed = {one.table for one in query.this.find_all(exp.Column) if one.table} <= own
    return is_named and is_closed and isinstance(query.parent, (exp.From, exp.Join))


def _joined(query: exp.Query) -> exp.Query | None:
    """The query to whose rows another joins others; None where it does more with them."""
    used = {name for name, value in query.args.items() if value}
    if not isinstance(query, exp.Select) or not used <= {"expressions", "from_", "joins"} or "joins" not in used:
        return None
    if any(one.args.get("on") is None or one.args.get("kind") or one.args.get("side") for one in query.args["joins"]):
        return None
    rows = query.args["from_"].this
    if not isinstance(rows, exp.Subquery) or any(one.find(exp.AggFunc, exp.Window) for one in query.expressions):
        return None
    return rows.this if isinstance(rows.this, exp.Query) else None


def _reads(query: exp.Query, rows: Container[str]) -> int:
    return sum(full_name(one) in rows for one in query.find_all(exp.Table))


def _behind_groups(found: exp.Expr, query: exp.Query) -> bool:
    node: exp.Expr | None = found
    while node is not None:
        if isinstance(node, exp.Select) and _groups(node):
            return True
        if node is query:
            return False
        node = node.parent
    return False


def _groups(query: exp.Select) -> bool:
    if query.args.get("distinct") is not None and any(one.is_star for one in query.expressions):
        return False  # whole rows
    if query.args.get("group") is not None or query.args.get("distinct") is not None:
        return True
    return any(_aggregates(one) for one in query.expressions)


def _aggregates(expression: exp.Expr) -> bool:
    """Whether an output column is an aggregate, of its own SELECT, and no window."""
    for one in expression.find_all(exp.AggFunc):
        inside = one.find_ancestor(exp.Window, exp.Select)
        outer = expression.parent
        if inside is outer:
            return True
    return False


def confined_columns(query: exp.Expr, confined: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The output columns of a query that show a confined column of some tables, in lower case.

    Confined columns never leave their engine: only how many distinct values they have may.

    >>> from sqlglot import parse_one
    >>> confined = {'"visits"': frozenset({"person"})}
    >>> counted = "SELECT zip, COUNT(*) AS n FROM (SELECT DISTINCT zip, person FROM visits) AS p GROUP BY zip"
    >>> confined_columns(parse_one(counted), confined)
    frozenset()
    >>> sorted(confined_columns(parse_one("SELECT zip, MAX(person) AS who FROM visits GROUP BY zip"), confined))
    ['who']
    >>> sorted(confined_columns(parse_one("SELECT r.b FROM (SELECT zip, person FROM visits) AS r(a, b)"), confined))
    ['b']
    """
    if isinstance(query, exp.SetOperation):
        return _of_union(query, confined)
    if not isinstance(query, exp.Select):
        return confined_columns(query.this, confined) if isinstance(query, exp.Subquery) else frozenset()
    hidden = _hidden(query, confined)
    every = frozenset[str]().union(*hidden.values())
    output = set[str]()
    for expression in query.expressions:
        if expression.is_star:
            relation = expression.table.lower() if isinstance(expression, exp.Column) else ""
            output |= hidden.get(relation, every)
        elif any(_shows(column, hidden, every) for column in expression.find_all(exp.Column)):
            output.add(expression.alias_or_name.lower())
    return frozenset(output)


def _of_union(query: exp.SetOperation, confined: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The same of a union, whose columns are those of both sides, by their places."""
    names, found = [name.lower() for name in query.named_selects], set[str]()
    for branch in (query.left, query.right):
        assert isinstance(branch, exp.Query)
        shown, own = confined_columns(branch, confined), [name.lower() for name in branch.named_selects]
        if shown - set(own):  # of a star
            return frozenset({*names, *shown})
        found |= {names[place] for place, name in enumerate(own) if name in shown}
    return frozenset(found)


def _hidden(query: exp.Select, confined: Mapping[str, frozenset[str]]) -> dict[str, frozenset[str]]:
    """The confined columns of what a query selects from, by alias."""
    known, hidden = dict(confined), dict[str, frozenset[str]]()
    if (own_with := query.args.get("with_")) is not None:
        for part in own_with.expressions:
            known[full_name(table(part.alias))] = confined_columns(part.this, known)
    parts = [query.args.get("from_"), *(query.args.get("joins") or ())]
    for relation in [part.this for part in parts if part is not None]:
        own = known.get(full_name(relation)) if isinstance(relation, exp.Table) else confined_columns(relation, known)
        hidden[relation.alias_or_name.lower()] = _renamed(relation, own or frozenset())
    return hidden


def _renamed(relation: exp.Expr, columns: frozenset[str]) -> frozenset[str]:
    """Columns by the names that the alias of a relation gives them; by all of these, where places are not known."""
    names = [name.lower() for name in relation.alias_column_names]
    if not names or not columns:
        return columns
    own = [name.lower() for name in relation.this.named_selects] if isinstance(relation, exp.Subquery) else []
    if not columns <= set(own):
        return frozenset({*names, *columns})
    return frozenset(new for old, new in zip(own, names, strict=False) if old in columns)


def _shows(column: exp.Column, hidden: Mapping[str, frozenset[str]], every: frozenset[str]) -> bool:
    """Whether a column of an output is confined, and not only counted."""
    names = hidden.get(column.table.lower(), every) if column.table else every
    return column.name.lower() in names and column.find_ancestor(exp.Count) is None


def refuse_confined(query: exp.Expr, confined: Mapping[str, frozenset[str]], there: str) -> None:
    """Refuse a query whose answer would show confined columns."""
    if shown := confined_columns(query, confined):
        raise SourceError(
            f"this would fetch who the rows are of ({', '.join(sorted(shown))}), which never leaves {there}"
        )
