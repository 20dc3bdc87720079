"""k-anonymity of combinations of up to three attributes instead of all quasi-identifiers, the guarantee of µ-Argus.

Each attribute is *identifying*, *more* or *most* identifying. A combination has three attributes: one of the most
identifying class in use, another of the two most identifying classes in use, and any third. With all three classes in
use, this is one most identifying attribute, one that is at least more identifying, and one more; if all attributes have
the same class, all combinations of three. k-anonymity in three attributes implies it in any two of them and in each
alone, so pairs and single attributes need no check. With fewer than three attributes there is one combination, of all.

Sources: the rule of Statistics Netherlands for its microdata, by which each combination of an extremely identifying, a
very identifying and an identifying variable must occur often enough, where very identifying variables are also
identifying (A. Hundepool, L. Willenborg, "µ- and τ-ARGUS: software for statistical disclosure control", 1996; the
program µ-ARGUS builds its tables from identification levels in the same way); L. Sweeney, "Achieving k-anonymity
privacy protection using generalization and suppression" (2002), section 5: 2- and 3-combinations of Identifying, More
and Most. With two classes in use µ-ARGUS stops at pairs; sqlanon uses combinations of three there as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from typing import Any

from sqlanon.policy.strategies import strategy_traits

CLASSES = ("most", "more", "identifying")
"""The identification classes, the most identifying first."""

GUARANTEES = ("quasi-identifiers", "combinations")
"""The scope of a release's k-anonymity: all quasi-identifiers together, or combinations of some."""


def strategy_guarantee(strategy: object) -> str:
    return GUARANTEES[strategy_traits(strategy).protects_combinations_only]


def guaranteed_combinations(policy: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """The combinations in which a release is k-anonymous; none if it is k-anonymous in all quasi-identifiers."""
    if strategy_guarantee(policy.get("search", {}).get("strategy", "optimal")) != GUARANTEES[1]:
        return ()
    attributes = policy.get("attributes", {})
    quasi = {name: spec for name, spec in attributes.items() if spec.get("role") == "quasi"}
    return select_combinations({name: spec.get("identification", CLASSES[-1]) for name, spec in quasi.items()})


def select_combinations(identification: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    """The combinations of attributes in which each tuple of released values occurs at least k times.

    A blank counts as a value, as in GROUP BY. This is stricter than µ-Argus, which ignores missing values.

    >>> select_combinations({"birth": "most", "zip": "more", "sex": "identifying", "race": "identifying"})
    (('birth', 'zip', 'sex'), ('birth', 'zip', 'race'))
    >>> select_combinations({"zip": "identifying", "sex": "identifying"})
    (('zip', 'sex'),)
    """
    names = list(identification)
    if len(names) < 3:
        return (tuple(names),)
    used = [class_ for class_ in CLASSES if class_ in identification.values()]
    first = {name for name in names if identification[name] == used[0]}
    second = {name for name in names if identification[name] in used[:2]}
    return tuple(
        combination
        for combination in combinations(names, 3)
        if any(a != b for a, b in product(first.intersection(combination), second.intersection(combination)))
    )
