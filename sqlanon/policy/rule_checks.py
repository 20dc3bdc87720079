"""What makes a hierarchy rule wrong on its own, before any data is seen: each check yields its flaws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, get_args

from sqlanon.fields import Flaw, Leaf, shown

# Each granularity, and those that contain it whole. A week lies in no month, quarter, year or decade.
CONTAINERS: Mapping[str, tuple[str, ...]] = {
    "day": ("week", "month", "quarter", "year", "decade"),
    "week": (),
    "month": ("quarter", "year", "decade"),
    "quarter": ("year", "decade"),
    "year": ("decade",),
    "decade": (),
}


def width_flaws(widths: Sequence[Decimal], days: bool) -> Iterator[Flaw]:
    """Check that each interval lies within one of the next level; ``days``: the widths are days."""
    for index, width in enumerate(widths):
        before = widths[index - 1] if index else None
        place = ("widths", index)
        if width <= 0:
            yield place, f"a width must be more than 0, not {width}"
        elif before is not None and before > 0 and (width <= before or Fraction(width) % Fraction(before)):
            yield (
                place,
                f"{width} is no multiple of {before}, the width before it: "
                "each interval has to lie within one of the next level",
            )
        elif days and width != width.to_integral_value():
            yield place, f"the widths of intervals of dates are whole days, not {width}"


def bound_flaws(bounds: Mapping[str, Decimal | date]) -> Iterator[Flaw]:
    """Check that ``origin``, ``below`` and ``above``, as far as given, are of one kind and in order."""
    dates = [name for name, bound in bounds.items() if isinstance(bound, date)]
    # An origin of 0 is the default: beside dates it means the default, too.
    numbers = [name for name in bounds if name not in dates and not (name == "origin" and bounds[name] == 0)]
    if dates and numbers:
        yield (numbers[0],), f"is a number and {dates[0]} is a date: give dates only, or numbers only"
        return
    below: Any = bounds.get("below")
    above: Any = bounds.get("above")
    if below is not None and above is not None and below >= above:
        yield ("below",), f"must be less than above: {below} is not less than {above}"


def date_flaws(dates: Sequence[str]) -> Iterator[Flaw]:
    """Check that each calendar level contains the one before."""
    for index, (fine, coarse) in enumerate(pairwise(dates), start=1):
        if fine == "week" and coarse in CONTAINERS["month"] + ("month",):
            yield (index,), f"a week can lie in two {coarse}s: week can only be the last of the levels"
        elif coarse not in CONTAINERS[fine]:
            yield (index,), f"{coarse} is not coarser than {fine}: write the levels from fine to coarse"


def branches(tree: Mapping[str, Any], outer: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each list of ground values under the labels that lead to it, outermost first."""
    for label, node in tree.items():
        labels = (*outer, label)
        if isinstance(node, Mapping) and node:
            yield from branches(node, labels)
        else:
            yield labels, node


def category_flaws(categories: Mapping[str, Any]) -> Iterator[Flaw]:
    """Check that all lists of ground values lie equally deep, are not empty, and share no value."""
    if not categories:
        yield (), "has no category: give at least one, with its values"
    depth: int | None = None
    homes: dict[tuple[bool, Leaf], str] = {}
    for labels, leaves in branches(categories):
        if not all(isinstance(label, str) for label in labels):
            yield (), "the categories' names must be texts"
            continue
        if not isinstance(leaves, list | tuple):
            yield labels, f"must be a list of ground values or a table of categories, not {shown(leaves)}"
            continue
        if not leaves:
            yield labels, "has no ground value: give at least one, or leave the category out"
        depth = len(labels) if depth is None else depth
        if len(labels) != depth:
            yield (
                labels,
                f"lies {len(labels)} deep where the first lies {depth} deep: all lists need one depth",
            )
        for index, leaf in enumerate(leaves):
            if problem := _leaf_problem(leaf, ".".join(labels), homes):
                yield (*labels, index), problem


def _leaf_problem(leaf: Any, home: str, homes: dict[tuple[bool, Leaf], str]) -> str | None:
    """Say what is wrong with a ground value; note its category in ``homes``."""
    if isinstance(leaf, datetime) or not isinstance(leaf, get_args(Leaf)):
        return f"a ground value is a text, a number, a boolean or a date, not {shown(leaf)}"
    key = (isinstance(leaf, bool), leaf)  # True == 1 in Python; in a column they are two values
    if key in homes:
        return f"{shown(leaf)} is in {homes[key]} already: a ground value has one place"
    homes[key] = home
    return None
