"""Small pieces that every query is made of, and templates: statements written as SQL, parsed once, and filled with
expressions, never with text. Identifiers are always quoted: names come from strangers.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, reduce
from typing import Any, TypeAlias, TypeVar

from sqlglot import exp, parse_one

TemplateValue: TypeAlias = "exp.Expr | Sequence[exp.Expr] | str | int | float"


@cache
def template(sql: str, dialect: str = "duckdb") -> Callable[..., exp.Select]:
    """A function that fills the placeholders (``:name``) of a SELECT with an expression, or a list of them.

    A placeholder that is not filled, that the statement does not have, or that stands inside a text, is an error. All
    identifiers are quoted, and types go through unread, as in `cast`. A list may be empty: then ``GROUP BY :keys``
    goes. A query fills the place of a table as a subquery, and an operation that of an operand in parentheses.

    Where a usual run passes, write ``list_extract(a, i)`` and not ``a[i]``: to read that, sqlglot loads its optimizer,
    which takes 11 ms.

    >>> from sqlanon.support.expressions import col, table
    >>> sizes = template("SELECT :keys, count(*)::BIGINT AS n FROM :rows GROUP BY :keys")
    >>> sizes(keys=[col("zip"), col("age")], rows=table("people")).sql("duckdb")
    'SELECT "zip", "age", CAST(COUNT(*) AS BIGINT) AS "n" FROM "people" GROUP BY "zip", "age"'
    """
    fill = fragment(sql, dialect)

    def select_(**filled: TemplateValue) -> exp.Select:
        statement = fill(**filled)
        assert isinstance(statement, exp.Select)
        return statement

    return select_


@cache
def fragment(sql: str, dialect: str = "duckdb") -> Callable[..., exp.Expr]:
    """The same of any other statement, or of an expression. A text is parsed once, also where a function calls this.

    >>> from sqlanon.support.expressions import col
    >>> fragment("coalesce(sum(:n), 0) >= :k")(n=col("rows"), k=5).sql("duckdb")
    'COALESCE(SUM("rows"), 0) >= 5'
    >>> fragment("least((SELECT n FROM :one), (SELECT n FROM :two))")(one=col("a"), two=col("b")).sql("duckdb")
    'LEAST((SELECT "n" FROM "a"), (SELECT "n" FROM "b"))'
    """

    @lru_cache(maxsize=1)
    def parsed() -> tuple[exp.Expr, list[tuple[str, _Path]]]:
        statement = _parsed(sql, dialect)
        return statement, [(name, _path(node)) for name, node in _placeholders(statement)]

    def fill(**filled: TemplateValue) -> exp.Expr:
        empty, places = parsed()
        if unknown := filled.keys() - {name for name, _ in places}:
            raise KeyError(f"the statement has no {', '.join(sorted(unknown))}")
        statement = empty.copy()
        for name, node in [(name, _at(statement, path)) for name, path in places]:
            if node is statement:
                return _one(filled[name])
            _put(node, filled[name])
        return statement

    return fill


_TABLE = "sqlanon_table_"

_Path: TypeAlias = "list[tuple[str, int | None]]"
"""The way from a statement down to a part of it: arguments, and places in lists."""


def _placeholders(statement: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    for node in statement.find_all(exp.Placeholder, exp.Parameter, exp.Table):
        if isinstance(node, exp.Table) and not node.name.startswith(_TABLE):
            continue
        if not isinstance(node.this, exp.Literal):  # $1 is a parameter of the statement itself
            yield node.name.removeprefix(_TABLE), node


def _path(node: exp.Expr) -> _Path:
    path: _Path = []
    while node.parent is not None:
        assert node.arg_key is not None
        path.append((node.arg_key, node.index))
        node = node.parent
    return path[::-1]


def _at(statement: exp.Expr, path: _Path) -> exp.Expr:
    node = statement
    for key, index in path:
        node = node.args[key] if index is None else node.args[key][index]
    return node


def _parsed(sql: str, dialect: str) -> exp.Expr:
    # No placeholder stands for a table in SQL: there it is parsed as a table of that name. DuckDB's are $name.
    relations = re.sub(r"(?<!DISTINCT )\b(FROM|JOIN|INTO|UPDATE|TABLE|VIEW) :(?=\w)", rf"\1 {_TABLE}", sql)
    statement: exp.Expr = parse_one(re.sub(r"(?<!:):(?=[a-z])", "$", relations), dialect=dialect)
    for node in statement.walk():
        node._meta = None  # places in the text: they would be copied with each filling
        if isinstance(node, exp.Literal) and node.is_string and re.search(r"\$[a-z]", node.this):
            raise ValueError(f"a template cannot have :name inside a text: {node.sql(dialect)}")
    for identifier in statement.find_all(exp.Identifier):
        identifier.set("quoted", True)
    for cast_ in statement.find_all(exp.Cast):
        if not cast_.args["to"].find(exp.Placeholder, exp.Parameter):
            cast_.set("to", native_type(cast_.args["to"].sql(dialect).replace("TEXT", "VARCHAR")))
    # sqlglot reads DuckDB's any_value with an IGNORE NULLS that DuckDB does not take.
    for ignoring in list(statement.find_all(exp.IgnoreNulls)):
        if isinstance(ignoring.this, exp.AnyValue):
            statement = _replaced(statement, ignoring, ignoring.this)
    # sqlglot's own would guard against NULL at great length.
    for call in list(statement.find_all(exp.Greatest, exp.Least)):
        statement = _replaced(statement, call, anonymous(call.sql_names()[0], call.this, *call.expressions))
    # Lists are translated by the names of their functions.
    for function in list(statement.find_all(*_OF_LISTS)):
        name, *keys = _OF_LISTS[type(function)]
        statement = _replaced(statement, function, anonymous(name, *(function.args[key] for key in keys)))
    return statement


def _replaced(statement: exp.Expr, part: exp.Expr, new: exp.Expr) -> exp.Expr:
    """A statement with a part replaced, which may be all of it."""
    if part is statement:
        new.pop()  # detached from the tree it was taken from
        return new
    part.replace(new)
    return statement


_OF_LISTS: Mapping[type[exp.Expr], tuple[str, ...]] = {
    exp.ArrayAppend: ("list_append", "this", "expression"),
    exp.ArrayPrepend: ("list_prepend", "expression", "this"),
    exp.ArraySort: ("list_sort", "this"),
    exp.Transform: ("list_transform", "this", "expression"),
}


def _put(node: exp.Expr, value: TemplateValue) -> None:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if isinstance(node.parent, exp.Ordered):
            node = node.parent
        parent, key = node.parent, node.arg_key
        assert parent is not None
        assert key is not None
        before = parent.args[key]
        if isinstance(parent, exp.Coalesce) and node is parent.this:
            parent.set("this", _one(value[0]))
            parent.set("expressions", [_one(one) for one in value[1:]])
            return
        at = next(i for i, one in enumerate(before) if one is node)
        after = [*before[:at], *(_one(one) for one in value), *before[at + 1 :]]
        parent.set(key, after)
        if not after and isinstance(parent, exp.Group | exp.Order):
            parent.pop()
        return
    new = _one(value)
    if isinstance(new, exp.Query) and isinstance(node, exp.Table) and not isinstance(new, exp.Subquery):
        new = exp.Subquery(this=new)
    elif _binds_less(new, node.parent):
        new = exp.Paren(this=new)
    if isinstance(node, exp.Table) and node.alias:
        new.set("alias", node.args["alias"])
    node.replace(new)


def _binds_less(operand: exp.Expr, operator: exp.Expr | None) -> bool:
    """Whether an operand needs parentheses under an operator: sqlglot prints none of its own."""
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


def _one(value: TemplateValue) -> exp.Expr:
    if isinstance(value, exp.Subquery | exp.Alias) and value.parent is None:
        return value  # made for this place: copies of long queries would take longer than the rest
    return value.copy() if isinstance(value, exp.Expr) else exp.convert(value)


_Relation = TypeVar("_Relation", bound=exp.Expr)

Namer: TypeAlias = Callable[[str], exp.Table]
"""Gives the name of a table in a run's own schema of the work database."""


def ident(name: str) -> exp.Identifier:
    """A quoted identifier."""
    return exp.Identifier(this=name, quoted=True)


def col(name: str, table: str | None = None) -> exp.Column:
    """A column, of a table alias if one is given."""
    return exp.Column(this=ident(name), table=ident(table) if table else None)


def table(name: str, schema: str | None = None, catalog: str | None = None, alias: str | None = None) -> exp.Table:
    """A table by its name, schema and catalog."""
    return exp.Table(
        this=ident(name),
        db=ident(schema) if schema else None,
        catalog=ident(catalog) if catalog else None,
        alias=exp.TableAlias(this=ident(alias)) if alias else None,
    )


def unused_name(name: str, taken: Iterable[str]) -> str:
    """A name that no column has, whatever the case.

    >>> unused_name("n", ["N", "zip"])
    'n_'
    """
    lower = {one.lower() for one in taken}
    while name in lower:
        name += "_"
    return name


def aliased(relation: _Relation, alias: str) -> _Relation:
    """The same table, or subquery, under an alias."""
    copy = relation.copy()
    copy.set("alias", exp.TableAlias(this=ident(alias)))
    return copy


def named(expression: exp.Expr, name: str) -> exp.Alias:
    """An expression with an output name."""
    return exp.Alias(this=expression, alias=ident(name))


def text(value: str) -> exp.Literal:
    """A string literal."""
    return exp.Literal.string(value)


def literal_path(path: str) -> exp.Literal:
    """A path for a reader that takes patterns: this file, whatever its name. An address stands for itself."""
    return text(path if "://" in path else glob.escape(path))


def read_parquet(paths: Iterable[str]) -> exp.Table:
    """``read_parquet([...])`` of these files, with the columns that they have themselves."""
    files = exp.Array(expressions=[literal_path(path) for path in paths])
    own = exp.Var(this="hive_partitioning").eq(exp.false())
    return exp.Table(this=exp.Anonymous(this="read_parquet", expressions=[files, own]))


def number(value: int | float) -> exp.Expr:
    """A number literal."""
    return exp.convert(value)


def native_type(spelling: str) -> exp.DataType:
    """A type in the engine's own spelling, whatever it is: it goes through unread."""
    return exp.DataType(this=exp.DataType.Type.USERDEFINED, kind=spelling)


def cast(expression: exp.Expr, type_: str) -> exp.Cast:
    """A cast to a type in the engine's own spelling."""
    return exp.Cast(this=expression, to=native_type(type_))


def all_of(conditions: Iterable[exp.Expr]) -> exp.Expr:
    """The conjunction of conditions; TRUE where there are none."""
    parts = list(conditions)
    return reduce(_and, parts) if parts else exp.true()


def _and(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    return exp.And(this=left, expression=right)


def same(left: exp.Expr, right: exp.Expr, nullable: bool = True) -> exp.Expr:
    """Equality that takes NULL as a value of its own; plain equality where there are no NULLs (it is faster)."""
    return exp.NullSafeEQ(this=left, expression=right) if nullable else left.eq(right)


def is_null(value: exp.Expr) -> exp.Is:
    """Whether a value is NULL."""
    return exp.Is(this=value, expression=exp.null())


def is_there(value: exp.Expr) -> exp.Not:
    """Whether a value is not NULL."""
    return ~is_null(value)


def filter_where(aggregate: exp.Expr, condition: exp.Expr) -> exp.Filter:
    """An aggregate over the rows that meet a condition."""
    return exp.Filter(this=aggregate, expression=exp.Where(this=condition))


def total(expression: exp.Expr, condition: exp.Expr | None = None) -> exp.Cast:
    """A sum of counts, over the rows that meet a condition, as BIGINT.

    DuckDB's SUM widens to HUGEINT, which is slower to work with.
    """
    added = exp.Sum(this=expression)
    return cast(filter_where(added, condition) if condition else added, "BIGINT")


def double_total(expression: exp.Expr) -> exp.Cast:
    """A sum as DOUBLE."""
    return cast(exp.Sum(this=expression), "DOUBLE")


def or_zero(figure: exp.Expr) -> exp.Coalesce:
    """A figure; 0 where it is NULL, such as that of no rows."""
    return exp.Coalesce(this=figure, expressions=[number(0)])


def anonymous(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of an engine's function, as it is."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def greatest(*values: exp.Expr) -> exp.Anonymous:
    """The greatest of some numbers that are not NULL. (sqlglot's own would guard against NULL at great length.)"""
    return anonymous("GREATEST", *values)


def least(*values: exp.Expr) -> exp.Anonymous:
    """The least of some numbers; one that is NULL is passed over."""
    return anonymous("LEAST", *values)


ARBITRARY_ROW_NUMBER = "any number"
"""The mark of `arbitrary_row_number`, for translations."""

ROW_LEVEL = "of rows"
"""The mark of `mark_row_level`, for engines."""

REPEATABLE = "repeatable"
"""The mark of `mark_repeatable`, for engines."""


def arbitrary_row_number() -> exp.Window:
    """A number for each row, no two alike: here from 1 on; where the rows are in several places, with gaps."""
    numbered = exp.Window(this=exp.RowNumber())
    numbered.meta[ARBITRARY_ROW_NUMBER] = True
    return numbered


def mark_row_level(query: exp.Select) -> exp.Select:
    """The same query, marked: it groups by rows, so that its result is as large, and as private, as these."""
    query.meta[ROW_LEVEL] = True
    return query


def mark_repeatable(query: exp.Select) -> exp.Select:
    """The same query, marked: it has the same rows each time, so that what is lost of them may be made again."""
    query.meta[REPEATABLE] = True
    return query


def select(expressions: list[exp.Expr], source: exp.Expr, group: list[exp.Expr] | None = None) -> exp.Select:
    """``SELECT expressions FROM source [GROUP BY group]``, put together without copies: checks are a hot loop."""
    query = exp.Select(expressions=expressions)
    query.set("from_", exp.From(this=source))
    if group:
        query.set("group", exp.Group(expressions=group))
    return query


def all_columns(alias: str) -> exp.Column:
    """``alias.*``."""
    return exp.Column(this=exp.Star(), table=ident(alias))


def union_all(*queries: exp.Query) -> exp.Query:
    """The rows of one or more queries, without copies of these."""
    return exp.union(*queries, distinct=False, copy=False) if len(queries) > 1 else queries[0]


def subquery(query: exp.Query, alias: str | None = None) -> exp.Subquery:
    """A query in parentheses, without a copy."""
    return exp.Subquery(this=query, alias=exp.TableAlias(this=ident(alias)) if alias else None)


def create_table(target: exp.Table, query: exp.Query) -> exp.Create:
    """``CREATE TABLE target AS query``."""
    return exp.Create(this=target, kind="TABLE", expression=query)


def create_temporary_table(target: exp.Table, query: exp.Query) -> exp.Create:
    """``CREATE TEMPORARY TABLE target AS query``."""
    temporary = exp.Properties(expressions=[exp.TemporaryProperty()])
    return exp.Create(this=target, kind="TABLE", expression=query, properties=temporary)


def create_view(target: exp.Table, query: exp.Expr) -> exp.Create:
    """``CREATE VIEW target AS query``."""
    return exp.Create(this=target, kind="VIEW", expression=query)


def create_secure_view(target: exp.Table, query: exp.Expr) -> exp.Create:
    """``CREATE SECURE VIEW target AS query``: the engine hides what is behind it. (sqlglot itself drops the word.)

    >>> create_secure_view(table("v"), star(table("t"))).sql("duckdb")
    'CREATE SECURE VIEW "v" AS SELECT * FROM "t"'
    """
    return exp.Create(this=target, kind="SECURE VIEW", expression=query)


def create_temporary_view(target: exp.Table, query: exp.Expr) -> exp.Create:
    """``CREATE TEMPORARY VIEW target AS query``: it stays out of the file.

    In a database that is named, an in-memory one of ours, it is a usual view.
    """
    if target.catalog not in ("", "temp"):
        return create_view(target, query)
    temporary = exp.Properties(expressions=[exp.TemporaryProperty()])
    return exp.Create(this=target, kind="VIEW", expression=query, properties=temporary)


def create_schema(name: str, catalog: str) -> exp.Create:
    """``CREATE SCHEMA catalog.name``."""
    return exp.Create(this=exp.Table(db=ident(name), catalog=ident(catalog)), kind="SCHEMA")


def drop_table(target: exp.Table, exists: bool = False) -> exp.Drop:
    """``DROP TABLE [IF EXISTS] target``."""
    return exp.Drop(tables=[target], kind="TABLE", exists=exists)


def drop_view(target: exp.Table) -> exp.Drop:
    """``DROP VIEW IF EXISTS target``."""
    return exp.Drop(tables=[target], kind="VIEW", exists=True)


def drop_schema(name: str, catalog: str) -> exp.Drop:
    """``DROP SCHEMA catalog.name CASCADE``."""
    return exp.Drop(tables=[exp.Table(db=ident(name), catalog=ident(catalog))], kind="SCHEMA", cascade=True)


def star(relation: exp.Expr) -> exp.Select:
    """``SELECT * FROM relation``."""
    return select([exp.Star()], relation)


def insert_rows(target: exp.Table, columns: Iterable[str], count: int = 1) -> exp.Insert:
    """``INSERT INTO target (columns) VALUES (?, ...), ...``: rows as parameters."""
    names = [ident(name) for name in columns]
    rows = [exp.Tuple(expressions=[exp.Placeholder() for _ in names]) for _ in range(count)]
    values = exp.Values(expressions=rows)
    return exp.Insert(this=exp.Schema(this=target, expressions=names), expression=values)


def column_definitions(target: exp.Table, types: Iterable[tuple[str, str]]) -> exp.Create:
    """``CREATE TABLE target (name type, ...)``, types in the engine's own spelling."""
    columns = [exp.ColumnDef(this=ident(name), kind=native_type(type_)) for name, type_ in types]
    return exp.Create(this=exp.Schema(this=target, expressions=columns), kind="TABLE")


def values_query(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> exp.Select:
    """A query of columns, by name with their types, and rows of plain values.

    >>> values_query({"n": "BIGINT"}, [(1,), (2,)]).sql("duckdb")
    'SELECT CAST("n" AS BIGINT) AS "n" FROM (VALUES (1), (2)) AS "v"("n")'
    """
    none = [[None] * len(columns)]
    values = exp.Values(
        expressions=[exp.Tuple(expressions=[exp.convert(value) for value in row]) for row in rows or none],
        alias=exp.TableAlias(this=ident("v"), columns=[ident(name) for name in columns]),
    )
    query = select([named(cast(col(name), type_), name) for name, type_ in columns.items()], values)
    return query if rows else query.where(exp.false(), copy=False)


def quote_name(*parts: str) -> str:
    """The text that names a relation, each part quoted.

    >>> quote_name("clinic", 'a"b')
    '"clinic"."a""b"'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def full_name(found: exp.Table) -> str:
    """A table's full name."""
    return quote_name(*(part for part in (found.catalog, found.db, found.name) if part))


def column_names(query: exp.Expr) -> frozenset[str]:
    """All names of columns in a query."""
    return frozenset(column.name for column in query.find_all(exp.Column))


def release_order(keys: Iterable[str]) -> list[exp.Expr]:
    """What rows of a release are sorted by: the keys of their classes, and at random inside a class.

    Of 100 million rows of one class some 18 pairs draw the same 48 bits, and may stay in the order of the source.
    """
    sizes = (("INTEGER", 2**32 - 1, 2**31), ("SMALLINT", 2**16 - 1, 2**15))
    drawn = [cast((anonymous("RANDOM") * number(size)) - number(half), type_) for type_, size, half in sizes]
    return [*(col(key) for key in keys), *drawn]


row_count = template("SELECT count(*) FROM :rows")
"""One row: how many rows a relation has."""
