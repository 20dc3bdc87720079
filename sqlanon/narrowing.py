"""Dependencies: released columns that narrow a generalized quasi-identifier beyond its released label.

ZIP codes are generalized, the district is released as it is, and a district has four ZIP codes: a reader knows more of
the ZIP code than its label says. Source: L. Sweeney, "Achieving k-anonymity privacy protection using generalization and
suppression" (2002), section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from sqlglot import exp

from sqlanon.anonymization import Chosen
from sqlanon.errors import SourceError
from sqlanon.policy import SourceSection, table_parts
from sqlanon.preparation import Prepared
from sqlanon.queries.looks import some_rows
from sqlanon.queries.names import Namer, col, star, subquery, table, union_all
from sqlanon.queries.narrowing import narrowing, positional, shown_narrowing, smallest_group
from sqlanon.queries.recode import Column
from sqlanon.steps import Steps

FACTOR = 2.0
"""A column narrows if knowing it makes two people this many times as likely to share the ground value."""

PINNED = 0.05
"""It also narrows if it gives away the ground value of this share of the rows."""

ENOUGH = 20_000
"""About this many rows of a larger table are measured."""

PAIRS = 6
"""Pairs of columns are measured if there are no more than this many columns."""

_SURE = 5.0  # standard deviations
_FEWEST = 10.0  # pairs of rows that share a value, beyond those expected


@dataclass(frozen=True)
class Narrowing:
    """A released column, or two, that narrow a generalized quasi-identifier.

    Attributes
    ----------
    columns, quasi:
        The column or columns, and the quasi-identifier.
    before, after:
        Ground values of the quasi-identifier under its released label, and those left where the columns are known, too:
        means over the rows.
    alike_before, alike_after:
        The probability that two people with one label have the same ground value; and if the columns are equal, too.
    pinned:
        The share of the rows whose ground value the columns give away.
    smallest_group:
        The fewest rows that are equal in all released quasi-identifiers and the columns. None of a sample, and where
        nothing is generalized yet.
    query:
        Shows it, on the source: the values that are left, the fewest first.
    """

    columns: tuple[str, ...]
    quasi: str
    before: float
    after: float
    alike_before: float
    alike_after: float
    pinned: float
    smallest_group: int | None
    query: str

    @property
    def factor(self) -> float:
        """How many times as often two people share the ground value."""
        return self.alike_after / self.alike_before

    @property
    def message(self) -> str:
        """The figures, for people."""
        names, size, one = _listed(self.columns), self.smallest_group, len(self.columns) == 1
        verb, are, them = ("narrows", "is", "it") if one else ("narrow", "are", "them")
        smallest = "" if size is None else f"; with {names}, the smallest group has {size:,} rows"
        return (
            f"{names} {verb} {self.quasi!r}: a released label stands for {self.before:,.1f} values of it on average, "
            f"and for {self.after:,.1f} where {names} {are} known{smallest}; make {them} quasi or leave {them} out. "
            f"To see the values left: {self.query}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return asdict(self) | {"columns": list(self.columns), "factor": self.factor}


def _listed(columns: Sequence[str]) -> str:
    return " and ".join(map(repr, columns))


def narrowing_columns(steps: Steps, work: Namer, prepared: Prepared, chosen: Chosen) -> tuple[Narrowing, ...]:
    """The released columns that narrow the quasi-identifiers of a version of a source; none if its rows are elsewhere.

    Makes ``narrowing_sample`` and ``narrowing_rows`` in the work schema, and drops them.

    Raises
    ------
    SourceError
        The policy refuses such columns, and the rows are elsewhere.
    """
    if not prepared.source.rows_at_hand:
        if prepared.policy.privacy.dependencies == "error":
            raise SourceError(
                'privacy.dependencies = "error" needs the rows of the source, and they are not in DuckDB: leave it out'
            )
        return ()
    released, policy = prepared.released, prepared.policy
    names = {column: name for name, column in prepared.columns.by_attribute.items()}
    levels = {name.lower(): level for name, level in chosen.generalization.items()}
    others = [j for j, one in enumerate(released) if one.quasi is None and one.name not in prepared.columns.noisy]
    quasi = [j for j, one in enumerate(released) if one.quasi is not None and levels.get(names[one.name].lower()) != 0]
    if not others or not quasi:
        return ()
    recoding, rows = chosen.recoding, prepared.marginals.rows
    sampled = rows > 2 * ENOUGH
    if sampled:
        needed = list(dict.fromkeys([*(one.name for one in released), *prepared.columns.generalized]))
        sample = some_rows(prepared.source.relation, needed, rows // ENOUGH)
        recoding = recoding.of_rows(steps.make(work("narrowing_sample"), sample))
    for j in quasi:
        recoding = recoding.with_column(Column(released[j].name))
    looked = positional(recoding.select(shuffled=False), len(released) + len(quasi))
    relation = steps.make(work("narrowing_rows"), star(looked))
    ground = {j: len(released) + i for i, j in enumerate(quasi)}
    labels = [col(f"r{j}") for j, one in enumerate(released) if one.quasi is not None]
    found = []
    for columns, j, figures in _figures(steps, relation, others, {j: (f"r{j}", f"r{ground[j]}") for j in quasi}):
        keys = [*labels, *(col(f"r{one}") for one in columns)]
        smallest = None if sampled else steps.ask(smallest_group(relation, keys), [(0,)])[0][0]
        shown = [released[one].name for one in columns]
        found.append(_narrowing(shown, released[j].name, figures, smallest, policy.source))
    steps.drop_all_but(())
    return tuple(found)


def narrowing_columns_of_source(
    steps: Steps,
    work: Namer,
    relation: exp.Table,
    rows: int,
    columns: Sequence[str],
    quasi: Sequence[str],
    at: SourceSection,
) -> tuple[Narrowing, ...]:
    """What narrows the quasi-identifiers of a source as it stands, if nothing else is known of them.

    Makes ``narrowing_rows`` in the work schema.

    Parameters
    ----------
    relation, rows:
        The source, and how many rows it has.
    columns, quasi:
        The columns that are to be released as they are, and those to be generalized.
    at:
        The source, for the query that is shown.
    """
    if not columns or not quasi:
        return ()
    step = rows // ENOUGH if rows > 2 * ENOUGH else 1
    names = [*columns, *quasi]
    looked = positional(some_rows(relation, names, step), len(names))
    sample = steps.make(work("narrowing_rows"), star(looked))
    ground = {len(columns) + i: ("", f"r{len(columns) + i}") for i in range(len(quasi))}
    return tuple(
        _narrowing([columns[one] for one in some], names[j], figures, None, at)
        for some, j, figures in _figures(steps, sample, range(len(columns)), ground)
    )


def _figures(
    steps: Steps, rows: exp.Table, others: Sequence[int], quasi: Mapping[int, tuple[str, str]]
) -> Iterator[tuple[tuple[int, ...], int, Mapping[str, Any]]]:
    """The columns that narrow a quasi-identifier, one by one and then two at a time; by their numbers, with figures.

    Two are told of where they say clearly more than the better of them alone.
    """
    sets: list[tuple[int, ...]] = [(one,) for one in others]
    sets += combinations(others, 2) if len(others) <= PAIRS else []
    asked = [(some, j) for j in quasi for some in sets]
    queries = []
    for some, j in asked:
        label, ground = quasi[j]
        by = col(label) if label else exp.null()
        queries.append(narrowing(rows, by, col(ground), [col(f"r{one}") for one in some]))
    names = queries[0].named_selects
    together = star(subquery(union_all(*(star(subquery(one)) for one in queries)), "u"))
    answers = [dict(zip(names, row, strict=True)) for row in steps.ask(together, [])]
    alone: dict[tuple[int, int], float] = {}
    for (some, j), figures in zip(asked, answers, strict=False):
        if not _is_sure(figures):
            continue
        factor = figures["alike_after"] / figures["alike_before"]
        if len(some) == 1:
            alone[some[0], j] = factor
        best = max((alone.get((one, j), 1.0) for one in some), default=1.0) if len(some) > 1 else 1.0
        pinned = figures["pinned"] >= PINNED * figures["rows"] and len(some) == 1
        if factor >= FACTOR * best or (pinned and factor > 1):
            yield some, j, figures


def _is_sure(figures: Mapping[str, Any]) -> bool:
    """Whether more pairs of rows share a value than chance would have it, by far."""
    pairs = figures["rows"] / 2
    if not pairs or not figures["alike_before"]:
        return False
    expected = figures["alike_before"] * pairs
    return bool(figures["alike_after"] * pairs > expected + _SURE * math.sqrt(expected) + _FEWEST)


def _narrowing(
    columns: Sequence[str], quasi: str, figures: Mapping[str, Any], smallest: int | None, source: SourceSection
) -> Narrowing:
    return Narrowing(
        tuple(columns),
        quasi,
        figures["before"],
        figures["after"],
        figures["alike_before"],
        figures["alike_after"],
        figures["pinned"] / figures["rows"],
        smallest,
        shown_narrowing(_source(source), quasi, columns).sql("duckdb"),
    )


def _source(section: SourceSection) -> exp.Expr:
    """The source as its holder names it."""
    if section.files:
        return table(section.files[0])
    *place, own = table_parts(section.table or "source")
    return table(own, *reversed(place))
