"""Leakage: how much an attacker learns who learns the value of an attribute, or of several, of somebody.

Source: the entropy measure of the paper on Intelligent Anonymity Balance (IAB), after Longpré: of n rows, the one that
is looked for takes S0 = log2 n bits to find; once its class E_j over the attributes is known, S_j = log2 |E_j|. The
gain is the mean, Σ |E_j|/n (S0 − S_j), and normalized, by S0: 1 where the attributes tell all rows apart, 0 where they
tell nothing. (It is the entropy of the attributes' values in the table.)
The published examples cut digits off: 60 persons, 27 women and 33 men, give 0.9928 and 0.1681, in print 0.99 and 0.16.

Rows are counted, also where the policy counts persons.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlanon.risk.sets import SetFigures


@dataclass(frozen=True)
class Leakage:
    """What a set of attributes leaks.

    Attributes
    ----------
    attributes:
        Their names in the policy.
    gain:
        In bits.
    normalized:
        Its share of log2 n, 0 to 1; 0 in a table of one row.
    classes, uniques:
        The classes that they make, and those of one row.
    """

    attributes: tuple[str, ...]
    gain: float
    normalized: float
    classes: int
    uniques: int

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {**vars(self), "attributes": list(self.attributes)}


def leakage(bits: float, rows: int) -> tuple[float, float]:
    """The gain and its normalized form.

    >>> gain, normalized = leakage(27 * math.log2(27) + 33 * math.log2(33), 60)
    >>> round(gain, 4), round(normalized, 4)
    (0.9928, 0.1681)
    """
    if rows < 2:
        return 0.0, 0.0
    whole = math.log2(rows)
    gain = min(max(whole - bits / rows, 0.0), whole)
    return gain, gain / whole


def ranked(sets: Iterable[SetFigures], names: Sequence[str], rows: int) -> tuple[Leakage, ...]:
    """The leakages, the most leaking first; of equal ones, the set of fewer attributes, then as the policy orders."""
    found = []
    for one in sets:
        gain, normalized = leakage(one.bits, rows)
        named = tuple(names[i] for i in one.attributes)
        found.append((-round(gain, 9), len(one.attributes), one.attributes, named, gain, normalized, one))
    found.sort(key=lambda one: one[:3])
    return tuple(Leakage(named, gain, share, one.classes, one.uniques) for *_, named, gain, share, one in found)
