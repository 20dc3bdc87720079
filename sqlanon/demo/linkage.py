"""The attack of the demo: names come back by joining a table without names to a list with names.

So the medical record of a governor of Massachusetts was found: ZIP, birth date and sex were in the hospital
data and in the voter list. (L. Sweeney, k-anonymity: a model for protecting privacy, International Journal on
Uncertainty, Fuzziness and Knowledge-based Systems 10(5), 2002.)

The attacker sees labels in a release (``021**``, ``1960s``) and knows what they mean. He writes his own list
in the same way: by the rules, not by the data holder's hierarchy tables, which he does not have and which
lack the values of voters who are no patients. Pure builders; nothing runs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.expressions import (
    aliased,
    all_of,
    cast,
    col,
    ident,
    named,
    number,
    select,
    subquery,
    text,
    total,
    where,
)

SHARED = ("zip", "birth_date", "sex")
"""What a table of patients and a voter list have in common."""

GROUND = dict.fromkeys(SHARED, 0)
"""The generalization of a table as it came."""

_ZIP_LENGTH = 5
_MONTH, _DECADE = 1, 3
_TOPS = {"zip": _ZIP_LENGTH, "birth_date": _DECADE + 1, "sex": 1}
_IN_TABLE, _ON_LIST = "in_table", "on_list"


@dataclass(frozen=True)
class Linkage:
    """What the join of a table to the voter list gives away.

    Attributes
    ----------
    rows:
        Rows of the table.
    unique:
        Rows that share their ZIP, birth date and sex, as the table shows them, with no other row.
    matched:
        Rows that at least one voter fits.
    identified:
        Unique rows that exactly one voter fits: these patients have a name now.
    """

    rows: int
    unique: int
    matched: int
    identified: int


def link(people: exp.Table, voters: exp.Table, levels: Mapping[str, int]) -> exp.Select:
    """Build the query that links a table to the voter list: one row, the fields of `Linkage` in order.

    Examples
    --------
    >>> link(exp.to_table("patients"), exp.to_table("voters"), GROUND).named_selects
    ['rows', 'unique', 'matched', 'identified']
    """
    figures = {
        "rows": total(col(_IN_TABLE)),
        "unique": exp.CountIf(this=_one(_IN_TABLE)),
        "matched": cast(where(exp.Sum(this=col(_IN_TABLE)), col(_ON_LIST).is_(exp.null()).not_()), "BIGINT"),
        "identified": exp.CountIf(this=all_of([_one(_IN_TABLE), _one(_ON_LIST)])),
    }
    return select(
        [named(exp.Coalesce(this=figure, expressions=[number(0)]), name) for name, figure in figures.items()],
        subquery(_classes(people, voters, levels), "classes"),
    )


def right_names(people: exp.Table, voters: exp.Table) -> exp.Select:
    """Build the query for how many of the patients that `link` identifies get the right name.

    `people` is the private table: it knows. A patient who is no voter can get the name of another person.
    """
    return _rightly_named(people, voters).select(exp.Count(this=exp.Star()))


def one_by_name(people: exp.Table, voters: exp.Table, sensitive: str) -> exp.Select:
    """Build the query for one patient that `link` identifies, rightly: name, `SHARED`, the sensitive value.

    The same patient on every run; which one is up to a hash of the address.
    """
    columns = [col(name, "patient") for name in ("name", *SHARED, sensitive)]
    order = [exp.MD5(this=col("address", "patient")), col("name", "patient")]
    return _rightly_named(people, voters).select(*columns).order_by(*order).limit(1)


def fitting(people: exp.Table, voter: exp.Select, levels: Mapping[str, int], sensitive: str) -> exp.Select:
    """Build the query for what a table says about one voter, by all its rows that fit.

    `voter` is a query of one row with the columns `SHARED`. The result: that voter's labels in the table, the
    number of rows that have these, the number of sensitive values in them.
    """
    different = exp.Count(this=exp.Distinct(expressions=[col(sensitive, "people")]))
    labels = [col(name, "voter") for name in SHARED]
    fits = all_of(col(name, "people").eq(col(name, "voter")) for name in SHARED)
    return (
        exp.select(*labels, exp.Count(this=col(sensitive, "people")), different)
        .from_(select(_labels(levels), subquery(voter, "voter")).subquery("voter"))
        .join(aliased(people, "people"), join_type="left", on=fits)
        .group_by(*labels)
    )


def smallest_class(people: exp.Table, attributes: tuple[str, ...]) -> exp.Select:
    """Build the query for the size of the smallest equivalence class: the k that a table has."""
    classes = _frequencies([col(name) for name in attributes], people, _IN_TABLE)
    return select([exp.Min(this=col(_IN_TABLE))], subquery(classes, "classes"))


def label(attribute: str, level: int) -> exp.Expr:
    r"""Build the label that a release shows for a ground value, by the rules of the demo's policy.

    Examples
    --------
    >>> label("zip", 2).sql("duckdb")
    'LEFT("zip", 3) || \'**\''
    """
    value = col(attribute)
    if level == 0:
        return value
    if level == _TOPS[attribute]:
        return text("*")
    if attribute == "zip":
        shown = exp.Left(this=value, expression=number(_ZIP_LENGTH - level))
        return exp.DPipe(this=shown, expression=text("*" * level))
    written = exp.TimeToStr(this=value, format=text("%Y-%m" if level == _MONTH else "%Y"))
    if level < _DECADE:
        return written
    return exp.DPipe(this=exp.Left(this=written, expression=number(3)), expression=text("0s"))


def _rightly_named(people: exp.Table, voters: exp.Table) -> exp.Select:
    """Build the join of the identified patients with the voters they are; it selects nothing yet."""
    alone = _classes(people, voters, GROUND).where(_one(_IN_TABLE), _one(_ON_LIST))
    same = (col(name, "patient").eq(col(name, "voter")) for name in ("name", "address"))
    return (
        exp.Select()
        .from_(aliased(people, "patient"))
        .join(aliased(voters, "voter"), using=_using())
        .join(alone.subquery("alone"), using=_using())
        .where(*same)
    )


def _classes(people: exp.Table, voters: exp.Table, levels: Mapping[str, int]) -> exp.Select:
    """Build the classes of a table on `SHARED`, each with its size and how many voters fit (NULL: none)."""
    classes = _frequencies([col(name) for name in SHARED], people, _IN_TABLE)
    listed = select(_labels(levels), voters.copy())
    candidates = _frequencies([col(name) for name in SHARED], subquery(listed, "listed"), _ON_LIST)
    return (
        exp.select(*(col(name) for name in SHARED), col(_IN_TABLE), col(_ON_LIST))
        .from_(classes.subquery("classes"))
        .join(candidates.subquery("candidates"), join_type="left", using=_using())
    )


def _frequencies(columns: list[exp.Expr], source: exp.Expr, count: str) -> exp.Select:
    size = named(exp.Count(this=exp.Star()), count)
    return select([*columns, size], source.copy(), group=[column.copy() for column in columns])


def _labels(levels: Mapping[str, int]) -> list[exp.Expr]:
    return [named(label(name, levels[name]), name) for name in SHARED]


def _using() -> list[int | str | exp.Expr]:
    return [ident(name) for name in SHARED]


def _one(count: str) -> exp.Expr:
    return col(count).eq(1)
