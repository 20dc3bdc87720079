"""Counts of sensitive values, judged in plain Python: diversity and distances from their definitions.

Slow and obvious, in exact fractions where that matters; it imports nothing from sqlanon.
Counts are by value, NULL (``None``) a value too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from fractions import Fraction

from oracles.oracle import Hierarchy, Value

Counts = Mapping[Value, int]
Shares = Mapping[Value, Fraction]

TOLERANCE = Fraction(1, 10**12)


def exact(number: float | str) -> Fraction:
    """The exact decimal number: 0.1 is a tenth.

    >>> exact(0.1), exact(4)
    (Fraction(1, 10), Fraction(4, 1))
    """
    return Fraction(str(number))


def shares(counts: Counts) -> dict[Value, Fraction]:
    total = sum(counts.values())
    return {value: Fraction(n, total) for value, n in counts.items()}


# --- diversity --------------------------------------------------------------------------------------


def entropy(counts: Counts) -> float:
    """-Σ p ln p.

    >>> math.isclose(entropy({"flu": 3, "cold": 3}), math.log(2))
    True
    """
    return math.fsum(-p * math.log(p) for p in map(float, shares(counts).values()))


def is_entropy_diverse(counts: Counts, least: float) -> bool:
    """Entropy ≥ ln l."""
    return entropy(counts) >= math.log(least) - float(TOLERANCE)


def is_recursive_diverse(counts: Counts, c: float, least: int) -> bool:
    """r_1 < c (r_l + ... + r_m), r_i the i-th largest count, l the ``least``; 1-diversity always holds.

    >>> is_recursive_diverse({"flu": 3, "cold": 2, "cancer": 1}, 3, 3), is_recursive_diverse({"flu": 3}, 100, 2)
    (False, False)
    """
    if least == 1:
        return True
    ordered = sorted(counts.values(), reverse=True)
    tail = ordered[least - 1 :]
    return ordered[0] < exact(c) * sum(tail)


# --- t-closeness ------------------------------------------------------------------------------------


def equal_distance(p: Shares, q: Shares) -> Fraction:
    """½ Σ |p - q|."""
    return sum((abs(p.get(v, 0) - q.get(v, 0)) for v in {*p, *q}), Fraction(0)) / 2


def in_order(values: Mapping[Value, object]) -> list[Value]:
    """NULL first, then the type's own order (text by code points).

    >>> in_order({"b": 1, None: 1, "B": 1})
    [None, 'B', 'b']
    """
    null: list[Value] = [None] if None in values else []
    return null + sorted(v for v in values if v is not None)


def ordered_distance(p: Shares, q: Shares) -> Fraction:
    """Σ |cumulated p - cumulated q| / (m - 1), over the m values of the table; one value: 0."""
    assert set(p) <= set(q)
    values = in_order(q)
    if len(values) == 1:
        return Fraction(0)
    carried = distance = Fraction(0)
    for value in values:
        carried += p.get(value, 0) - q[value]
        distance += abs(carried)
    return distance / (len(values) - 1)


def hierarchical_distance(p: Shares, q: Shares, tree: Hierarchy) -> Fraction:
    """Transport over the tree, bottom-up: a node matches what its children have too much with what others of them lack.

    That costs level / height of the node where it is matched; what is left over moves up.
    """
    assert set(p) <= set(q)
    # Any ground value under a node identifies it.
    surplus = {value: p.get(value, Fraction(0)) - share for value, share in q.items()}
    cost = Fraction(0)
    for level in range(1, tree.height + 1):
        children: dict[Value, list[Value]] = defaultdict(list)
        for node in surplus:
            children[tree.label(node, level)].append(node)
        merged = {}
        for nodes in children.values():
            too_much = sum((surplus[node] for node in nodes if surplus[node] > 0), Fraction(0))
            too_little = sum((-surplus[node] for node in nodes if surplus[node] < 0), Fraction(0))
            cost += Fraction(level, tree.height) * min(too_much, too_little)
            merged[nodes[0]] = too_much - too_little
        surplus = merged
    assert not any(surplus.values())
    return cost


# --- others -----------------------------------------------------------------------------------------


def discloses_at_most(p: Shares, q: Shares, delta: float) -> bool:
    """|ln(p / q)| ≤ δ for every value of the table; one that is missing in the class fails."""
    return all(value in p and abs(math.log(p[value] / q[value])) <= delta + float(TOLERANCE) for value in q)


def is_beta_like(p: Shares, q: Shares, beta: float, kind: str) -> bool:
    """(p - q) / q ≤ β for every value with p > q; enhanced: ≤ min(β, -ln q)."""
    for value, share in p.items():
        if share > q[value]:
            bound = beta if kind == "basic" else min(beta, -math.log(q[value]))
            if float((share - q[value]) / q[value]) > bound + float(TOLERANCE):
                return False
    return True
