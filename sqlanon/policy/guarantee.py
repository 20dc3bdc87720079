"""k-anonymity of combinations of two or three attributes, in place of all quasi-identifiers: what µ-Argus guarantees.

Each attribute is *identifying*, *more* or *most* identifying. The combinations are those of three attributes of which
one is in the most identifying class in use, another in the two most identifying classes in use, and the third anywhere.
So with all three in use: one that is most identifying, one that is at least more identifying, and one more; where no
attribute stands out, all combinations of three. What is k-anonymous in three attributes is so in any two of them, and
in each alone, so that those need no check of their own; with fewer than three attributes there is one combination, of
all.

Sources: the rule of Statistics Netherlands for its microdata, by which each combination of an extremely identifying, a
very identifying and an identifying variable must occur often enough, very identifying variables being identifying too
(A. Hundepool, L. Willenborg, "µ- and τ-ARGUS: software for statistical disclosure control", 1996; so does the program
µ-ARGUS make its tables from identification levels); L. Sweeney, "Achieving k-anonymity privacy protection using
generalization and suppression" (2002), section 5: 2- and 3-combinations of Identifying, More and Most. With two classes
in use µ-ARGUS stops at pairs; ours are of three there too.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

from sqlanon.policy.strategies import strategy_traits

CLASSES = ("most", "more", "identifying")
"""The classes, the most identifying first."""


GUARANTEES = ("quasi-identifiers", "combinations")
"""Of what a release's k-anonymity holds: of all quasi-identifiers together, or of some at a time."""


def strategy_guarantee(strategy: object) -> str:
    return GUARANTEES[strategy_traits(strategy).protects_combinations_only]


def guaranteed_combinations(policy: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The combinations in which a release is k-anonymous in place of all quasi-identifiers together; empty where it is
    so in these.
    """
    if strategy_guarantee(policy.get("search", {}).get("strategy", "optimal")) != GUARANTEES[1]:
        return ()
    attributes = policy.get("attributes", {})
    quasi = {name: spec for name, spec in attributes.items() if spec.get("role") == "quasi"}
    return select_combinations({name: spec.get("identification", CLASSES[-1]) for name, spec in quasi.items()})


def select_combinations(identification: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """The combinations of attributes in which each tuple of released values occurs k times, if any row has it.

    A blank is a value of its own there, as it is for whoever groups by the columns. That is stricter than µ-Argus,
    which leaves a missing value out of account.

    >>> select_combinations({"birth": "most", "zip": "more", "sex": "identifying", "race": "identifying"})
    (('birth', 'zip', 'sex'), ('birth', 'zip', 'race'))
    >>> select_combinations({"zip": "identifying", "sex": "identifying"})
    (('zip', 'sex'),)
    """
    names = list(identification)
    if len(names) < 3:
        return (tuple(names),)
    used = [one for one in CLASSES if one in identification.values()]
    first = {name for name in names if identification[name] == used[0]}
    second = {name for name in names if identification[name] in used[:2]}
    return tuple(
        three
        for three in combinations(names, 3)
        if any(a != b for a, b in product(first.intersection(three), second.intersection(three)))
    )
