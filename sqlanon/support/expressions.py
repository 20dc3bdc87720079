"""Build SQL: expression helpers, and templates of statements that are parsed once and filled with expressions.

SQL is never assembled from text. Identifiers are always quoted, since names are untrusted.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, reduce
from typing import Any, TypeAlias, TypeVar
from typing import cast as cast_type

from sqlglot import exp, parse_one

TemplateValue: TypeAlias = "exp.Expr | Sequence[exp.Expr] | str | int | float"


@cache
def template(sql: str, dialect: str = "duckdb") -> Callable[..., exp.Select]:
    """Parse a SELECT with placeholders (``:name``); return a function that fills them with expressions or lists of
    them.

    Unfilled or unknown placeholders, and placeholders inside a text, are errors. All identifiers are quoted, and types
    are kept in their spelling, as in `cast`. A list may be empty: this removes ``GROUP BY :keys``. A query in place of
    a table becomes a subquery, and an operation in place of an operand gets parentheses.

    In statements of usual runs, write ``list_extract(a, i)`` instead of ``a[i]``: to parse the latter, sqlglot loads
    its optimizer, which takes 11 ms.

    >>> from sqlanon.support.expressions import col, table
    >>> sizes = template("SELECT :keys, count(*)::BIGINT AS n FROM :rows GROUP BY :keys")
    >>> sizes(keys=[col("zip"), col("age")], rows=table("people")).sql("duckdb")
    'SELECT "zip", "age", CAST(COUNT(*) AS BIGINT) AS "n" FROM "people" GROUP BY "zip", "age"'
    """
    return cast_type("Callable[..., exp.Select]", fragment(sql, dialect))


@cache
def fragment(sql: str, dialect: str = "duckdb") -> Callable[..., exp.Expr]:
    """Like `template`, for any other statement or an expression. Each text is parsed once, also inside a function.

    >>> from sqlanon.support.expressions import col
    >>> fragment("coalesce(sum(:n), 0) >= :k")(n=col("rows"), k=5).sql("duckdb")
    'COALESCE(SUM("rows"), 0) >= 5'
    >>> fragment("least((SELECT n FROM :one), (SELECT n FROM :two))")(one=col("a"), two=col("b")).sql("duckdb")
    'LEAST((SELECT "n" FROM "a"), (SELECT "n" FROM "b"))'
    """

    # `exp.replace_placeholders` fills neither lists nor tables, and takes longer: it visits each node in Python.
    @lru_cache(maxsize=1)
    def parse() -> tuple[exp.Expr, list[tuple[str, _Path]]]:
        statement = _parse(sql, dialect)
        return statement, [(name, _path(node)) for name, node in _placeholders(statement)]

    def fill(**values: TemplateValue) -> exp.Expr:
        empty, paths = parse()
        if unknown := values.keys() - {name for name, _ in paths}:
            raise KeyError(f"the statement has no {', '.join(sorted(unknown))}")
        statement = empty.copy()
        for name, node in [(name, _node_at(statement, path)) for name, path in paths]:
            if node is statement:
                return _to_expression(values[name])
            _fill_placeholder(node, values[name])
        return statement

    return fill


_Path: TypeAlias = "list[tuple[str, int | None]]"
"""The path from a statement to a part of it: argument names, and indexes in lists."""


def _placeholders(statement: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """The placeholders by name; that of a table is the table."""
    for node in statement.find_all(exp.Placeholder, exp.Parameter):
        if not isinstance(node.this, exp.Literal):  # $1 is a parameter of the statement itself
            is_table = isinstance(node.parent, exp.Table) and node.arg_key == "this"
            yield node.name, node.parent if is_table and node.parent else node


def _path(node: exp.Expr) -> _Path:
    path: _Path = []
    while node.parent is not None:
        assert node.arg_key is not None
        path.append((node.arg_key, node.index))
        node = node.parent
    return path[::-1]


def _node_at(statement: exp.Expr, path: _Path) -> exp.Expr:
    node = statement
    for key, index in path:
        node = node.args[key] if index is None else node.args[key][index]
    return node


_LIST_FUNCTIONS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.ArrayAppend: ("list_append", "this", "expression"),
    exp.ArrayPrepend: ("list_prepend", "expression", "this"),
    exp.ArraySort: ("list_sort", "this"),
    exp.Transform: ("list_transform", "this", "expression"),
    # Older sqlglot has another node for list_sort.
    **({exp.SortArray: ("list_sort", "this")} if hasattr(exp, "SortArray") else {}),
}
"""Functions that translations look up by name, with the arguments of the call."""


def _parse(sql: str, dialect: str) -> exp.Expr:
    # DuckDB's placeholders are $name.
    root = exp.Paren(this=parse_one(re.sub(r"(?<!:):(?=[a-z])", "$", sql), dialect=dialect))
    for node in list(root.this.walk()):
        node._meta = None  # positions in the text, which every copy would copy
        if isinstance(node, exp.Identifier):
            node.set("quoted", True)
        elif isinstance(node, exp.Literal) and node.is_string and re.search(r"\$[a-z]", node.this):
            raise ValueError(f"a template cannot have :name inside a text: {node.sql(dialect)}")
        elif isinstance(node, exp.Cast) and not node.to.find(exp.Placeholder, exp.Parameter):
            node.set("to", native_type(node.to.sql(dialect).replace("TEXT", "VARCHAR")))
        elif isinstance(node, exp.IgnoreNulls) and isinstance(node.this, exp.AnyValue):
            node.replace(node.this)  # sqlglot reads DuckDB's any_value with an IGNORE NULLS that DuckDB does not take
        elif isinstance(node, exp.Greatest | exp.Least):  # sqlglot would transpile them with long guards against NULL
            node.replace(anonymous(node.sql_names()[0], node.this, *node.expressions))
        elif type(node) in _LIST_FUNCTIONS:
            name, *keys = _LIST_FUNCTIONS[type(node)]
            node.replace(anonymous(name, *(node.args[key] for key in keys)))
    statement: exp.Expr = root.this.pop()
    return statement


def _fill_placeholder(node: exp.Expr, value: TemplateValue) -> None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if isinstance(node.parent, exp.Ordered):
            node = node.parent
        parent, key = node.parent, node.arg_key
        assert parent is not None
        assert key is not None
        before = parent.args[key]
        if isinstance(parent, exp.Coalesce) and node is parent.this:
            parent.set("this", _to_expression(value[0]))
            parent.set("expressions", [_to_expression(item) for item in value[1:]])
            return
        at = next(i for i, sibling in enumerate(before) if sibling is node)
        after = [*before[:at], *(_to_expression(item) for item in value), *before[at + 1 :]]
        parent.set(key, after)
        if not after and isinstance(parent, exp.Group | exp.Order):
            parent.pop()
        return
    if isinstance(node.parent, exp.CTE) and isinstance(value, exp.Query) and value.parent is None:
        node.replace(value)  # not used elsewhere: copying long queries would be slow
        return
    new = _to_expression(value)
    if isinstance(new, exp.Query) and isinstance(node, exp.Table) and not isinstance(new, exp.Subquery):
        new = new if isinstance(node.parent, exp.Subquery) else exp.Subquery(this=new)
    elif _binds_less(new, node.parent):
        new = exp.Paren(this=new)
    if isinstance(node, exp.Table) and node.alias:
        new.set("alias", node.args["alias"])
    node.replace(new)


def _binds_less(operand: exp.Expr, operator: exp.Expr | None) -> bool:
    """Whether an operand needs parentheses under an operator: sqlglot adds none."""
    if not isinstance(operator, exp.Binary | exp.Unary | exp.Between) or isinstance(operator, exp.Paren):
        return False
    if isinstance(operand, exp.Or):
        return not isinstance(operator, exp.Or)
    if isinstance(operator, exp.Connector):
        return False
    if isinstance(operand, exp.And):
        return True
    if isinstance(operator, exp.Not) or not isinstance(operand, exp.Binary) or isinstance(operand, exp.Dot):
        return False
    return isinstance(operand, exp.Predicate) or not isinstance(operator, exp.Predicate)


def _to_expression(value: TemplateValue) -> exp.Expr:
    if isinstance(value, exp.Subquery | exp.Alias) and value.parent is None:
        return value  # not used elsewhere: copying long queries would be slow
    return value.copy() if isinstance(value, exp.Expr) else exp.convert(value)


_Relation = TypeVar("_Relation", bound=exp.Expr)

Namer: TypeAlias = Callable[[str], exp.Table]
"""Function from a name to the table with this name in the run's schema of the work database."""


def ident(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=True)


def col(name: str, table: str | None = None) -> exp.Column:
    """A column, of a table alias if one is given."""
    return exp.Column(this=ident(name), table=ident(table) if table else None)


def cols(names: Iterable[str], table: str | None = None) -> list[exp.Expr]:
    """Columns with these names."""
    return [col(name, table) for name in names]


def table(name: str, schema: str | None = None, catalog: str | None = None, alias: str | None = None) -> exp.Table:
    """A table by its name, schema and catalog."""
    return exp.Table(
        this=ident(name),
        db=ident(schema) if schema else None,
        catalog=ident(catalog) if catalog else None,
        alias=exp.TableAlias(this=ident(alias)) if alias else None,
    )


def unused_name(name: str, taken: Iterable[str]) -> str:
    """A name that differs from all taken ones, ignoring case.

    >>> unused_name("n", ["N", "zip"])
    'n_'
    """
    lower = {name.lower() for name in taken}
    while name in lower:
        name += "_"
    return name


def aliased(relation: _Relation, alias: str) -> _Relation:
    """A copy of a table or subquery with an alias."""
    copy = relation.copy()
    copy.set("alias", exp.TableAlias(this=ident(alias)))
    return copy


def as_column(expression: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=expression, alias=ident(name))


def text(value: str) -> exp.Literal:
    return exp.Literal.string(value)


def literal_path(path: str) -> exp.Literal:
    """A path literal for readers that accept patterns: only this file. Addresses are kept unchanged."""
    return text(path if "://" in path else glob.escape(path))


def read_parquet(paths: Iterable[str]) -> exp.Table:
    """``read_parquet([...])`` of these files, without columns from their paths."""
    files = exp.Array(expressions=[literal_path(path) for path in paths])
    no_partitioning = exp.Var(this="hive_partitioning").eq(exp.false())
    return exp.Table(this=exp.Anonymous(this="read_parquet", expressions=[files, no_partitioning]))


def number(value: int | float) -> exp.Expr:
    return exp.convert(value)


def native_type(spelling: str) -> exp.DataType:
    """A type in the engine's spelling, which sqlglot does not parse."""
    return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=spelling)


def cast(expression: exp.Expr, type_: str) -> exp.Cast:
    """A cast to a type in the engine's spelling."""
    return exp.Cast(this=expression, to=native_type(type_))


def all_of(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """The conjunction of conditions; TRUE without conditions."""
    parts = list(conditions)
    return reduce(lambda left, right: exp.And(this=left, expression=right), parts) if parts else exp.true()


def null_safe_equal(left: exp.Expr, right: exp.Expr, nullable: bool = True) -> exp.Expr:
    """Equality in which NULL equals NULL; plain equality if not ``nullable``, which is faster."""
    return exp.NullSafeEQ(this=left, expression=right) if nullable else left.eq(right)


def same_values(names: Iterable[str], left: str, right: str) -> exp.Expr:
    """Whether two relations have the same values in some columns; NULL equals NULL."""
    return all_of(null_safe_equal(col(name, left), col(name, right)) for name in names)


def equal_values(names: Iterable[str], left: str, right: str) -> exp.Expr:
    """Whether two relations have the same values in some columns without NULL."""
    return all_of(col(name, left).eq(col(name, right)) for name in names)


def is_null(value: exp.Expr) -> exp.Is:
    return exp.Is(this=value, expression=exp.null())


def is_not_null(value: exp.Expr) -> exp.Not:
    return ~is_null(value)


def filter_where(aggregate: exp.Expr, condition: exp.Expr) -> exp.Filter:
    """An aggregate over the rows that meet a condition."""
    return exp.Filter(this=aggregate, expression=exp.Where(this=condition))


def total(expression: exp.Expr, condition: exp.Expr | None = None) -> exp.Cast:
    """A sum of counts as BIGINT, optionally over the rows that meet a condition.

    DuckDB's SUM returns HUGEINT, which is slower.
    """
    added = exp.Sum(this=expression)
    return cast(filter_where(added, condition) if condition else added, "BIGINT")


def double_total(expression: exp.Expr) -> exp.Cast:
    return cast(exp.Sum(this=expression), "DOUBLE")


def anonymous(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of an engine's function by name."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def greatest(*values: exp.Expr) -> exp.Anonymous:
    """The greatest of numbers that are not NULL, without sqlglot's guards against NULL."""
    return anonymous("GREATEST", *values)


def least(*values: exp.Expr) -> exp.Anonymous:
    """The least of numbers, ignoring NULL."""
    return anonymous("LEAST", *values)


ARBITRARY_ROW_NUMBER = "any number"
"""The mark of `arbitrary_row_number`, for translations."""

ROW_LEVEL = "of rows"
"""The mark of `mark_row_level`, for engines."""

REPEATABLE = "repeatable"
"""The mark of `mark_repeatable`, for engines."""


def arbitrary_row_number() -> exp.Window:
    """A distinct number for each row: from 1 in DuckDB, with gaps in a distributed engine."""
    numbered = exp.Window(this=exp.RowNumber())
    numbered.meta[ARBITRARY_ROW_NUMBER] = True
    return numbered


_Query = TypeVar("_Query", bound=exp.Query)


def mark_row_level(query: _Query) -> _Query:
    """Mark a query that groups by rows: its result is as large and as private as the rows."""
    query.meta[ROW_LEVEL] = True
    return query


def mark_repeatable(query: exp.Select) -> exp.Select:
    """Mark a query that returns the same rows each time, so that lost rows may be computed again."""
    query.meta[REPEATABLE] = True
    return query


def select(expressions: list[exp.Expr], source: exp.Expr, group: list[exp.Expr] | None = None) -> exp.Select:
    """``SELECT expressions FROM source [GROUP BY group]``, built without copies: checks are a hot loop."""
    query = exp.Select(expressions=expressions)
    query.set("from_", exp.From(this=source))
    if group:
        query.set("group", exp.Group(expressions=group))
    return query


def all_columns(alias: str) -> exp.Column:
    return exp.Column(this=exp.Star(), table=ident(alias))


def union_all(*queries: exp.Query) -> exp.Query:
    """The union of one or more queries, without copying them."""
    if len(queries) == 1:
        return queries[0]
    # A query with common table expressions needs parentheses, which others do without.
    parts = [exp.Subquery(this=query) if query.args.get("with_") else query for query in queries]
    return exp.union(*parts, distinct=False, copy=False)


def prepend_ctes(
    query: exp.Select, ctes: Mapping[str, exp.Expr], materialized: bool | None = None, recursive: bool = False
) -> exp.Select:
    """Put common table expressions before those of a query."""
    prepended = exp.Select()
    for name, cte in ctes.items():
        prepended.with_(ident(name), as_=cte, materialized=materialized, copy=False)
    existing = query.args.get("with_") or exp.With(expressions=[])
    expressions = [*prepended.args["with_"].expressions, *existing.expressions]
    is_recursive = recursive or bool(existing.args.get("recursive"))
    query.set("with_", exp.With(expressions=expressions, recursive=is_recursive))
    return query


def subquery(query: exp.Query, alias: str | None = None) -> exp.Subquery:
    """A query in parentheses, without a copy."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=ident(alias)) if alias else None)


def create_table(target: exp.Table, query: exp.Query) -> exp.Create:
    return exp.Create(this=target, kind="TABLE", expression=query)


def create_temporary_table(target: exp.Table, query: exp.Query) -> exp.Create:
    return exp.Create(this=target, kind="TABLE", expression=query, properties=_temporary())


def _temporary() -> exp.Properties:
    return exp.Properties(expressions=[exp.TemporaryProperty()])


def create_view(target: exp.Table, query: exp.Expr, secure: bool = False) -> exp.Create:
    """``CREATE [SECURE] VIEW target AS query``; the engine hides the definition of a secure view.

    >>> create_view(table("v"), select_star(table("t")), secure=True).sql("duckdb")
    'CREATE SECURE VIEW "v" AS SELECT * FROM "t"'
    """
    return exp.Create(this=target, kind="SECURE VIEW" if secure else "VIEW", expression=query)


def create_temporary_view(target: exp.Table, query: exp.Expr) -> exp.Create:
    """``CREATE TEMPORARY VIEW target AS query``, which is not stored in the database file.

    In another named database, which is in memory, it is an ordinary view.
    """
    is_in_memory = target.catalog not in ("", "temp")
    return exp.Create(this=target, kind="VIEW", expression=query, properties=None if is_in_memory else _temporary())


def create_schema(name: str, catalog: str) -> exp.Create:
    return exp.Create(this=exp.Table(db=ident(name), catalog=ident(catalog)), kind="SCHEMA")


def drop_table(target: exp.Table, exists: bool = False) -> exp.Drop:
    return exp.Drop(tables=[target], kind="TABLE", exists=exists)


def drop_view(target: exp.Table) -> exp.Drop:
    """``DROP VIEW IF EXISTS target``."""
    return exp.Drop(tables=[target], kind="VIEW", exists=True)


def drop_schema(name: str, catalog: str) -> exp.Drop:
    return exp.Drop(tables=[exp.Table(db=ident(name), catalog=ident(catalog))], kind="SCHEMA", cascade=True)


def select_star(relation: exp.Expr) -> exp.Select:
    return select([exp.Star()], relation)


def insert_rows(target: exp.Table, columns: Iterable[str], count: int = 1) -> exp.Insert:
    """``INSERT INTO target (columns) VALUES (?, ...), ...``: rows as parameters."""
    names = [ident(name) for name in columns]
    rows = [exp.Tuple(expressions=[exp.Placeholder() for _ in names]) for _ in range(count)]
    values = exp.Values(expressions=rows)
    return exp.Insert(this=exp.Schema(this=target, expressions=names), expression=values)


def create_table_with_columns(target: exp.Table, types: Iterable[tuple[str, str]]) -> exp.Create:
    """``CREATE TABLE target (name type, ...)``, types in the engine's spelling."""
    columns = [exp.ColumnDef(this=ident(name), kind=native_type(type_)) for name, type_ in types]
    return exp.Create(this=exp.Schema(this=target, expressions=columns), kind="TABLE")


def values_query(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> exp.Select:
    """A query of rows of plain values, with column types by name.

    >>> values_query({"n": "BIGINT"}, [(1,), (2,)]).sql("duckdb")
    'SELECT CAST("n" AS BIGINT) AS "n" FROM (VALUES (1), (2)) AS "v"("n")'
    """
    null_row = [[None] * len(columns)]
    values = exp.Values(
        expressions=[exp.Tuple(expressions=[exp.convert(value) for value in row]) for row in rows or null_row],
        alias=exp.TableAlias(this=ident("v"), columns=[ident(name) for name in columns]),
    )
    query = select([as_column(cast(col(name), type_), name) for name, type_ in columns.items()], values)
    return query if rows else query.where(exp.false(), copy=False)


def quote_name(*parts: str) -> str:
    """Quote the parts of a relation's name, and join them.

    >>> quote_name("clinic", 'a"b')
    '"clinic"."a""b"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def full_name(relation: exp.Table) -> str:
    """The quoted full name of a table."""
    return quote_name(*(part for part in (relation.catalog, relation.db, relation.name) if part))


def column_names(query: exp.Expr) -> frozenset[str]:
    return frozenset(column.name for column in query.find_all(exp.Column))


def release_order(keys: Iterable[str]) -> list[exp.Expr]:
    """The sort keys of a release: the keys of its classes, and 48 random bits within a class.

    In a class of 100 million rows about 18 pairs draw the same bits, and may keep the order of the source.
    """
    sizes = (("INTEGER", 2**32 - 1, 2**31), ("SMALLINT", 2**16 - 1, 2**15))
    random_keys = [cast((anonymous("RANDOM") * number(size)) - number(half), type_) for type_, size, half in sizes]
    return [*(col(key) for key in keys), *random_keys]


count_rows = fragment("count(*)")
value_or_zero = fragment("coalesce(:value, 0)")

row_count = template("SELECT count(*) FROM :rows")
"""One row: the number of rows of a relation."""
