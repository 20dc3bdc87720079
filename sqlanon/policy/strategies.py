"""The strategies by name, and what of each the rest has to know: what it recodes, can be asked for, and guarantees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Strategy: TypeAlias = Literal[
    "optimal",
    "k_minimal",
    "samarati",
    "samarati-binary",
    "incognito",
    "ola",
    "flash",
    "datafly",
    "mu-argus",
    "iab",
    "mondrian",
    "k-similar",
    "subtree",
    "local",
]


@dataclass(frozen=True)
class Traits:
    """What a strategy is to the rest.

    Attributes
    ----------
    local:
        Whether it recodes below the full domain: each row, or each value, has a level of its own.
    summarises:
        Whether it may release what no hierarchy has: ranges, medians, sets.
    cuts:
        Whether it cuts classes in two, strictly or not.
    knows:
        The only requirements that it looks at; None: all that can be asked of classes.
    of_combinations:
        Whether it guarantees k-anonymity of some quasi-identifiers at a time, and not of all together.
    ends:
        Whether it ends by itself; else only a limit bounds what it looks at, for days.
    """

    local: bool = False
    summarises: bool = False
    cuts: bool = False
    knows: frozenset[str] | None = None
    of_combinations: bool = False
    ends: bool = True


_FULL_DOMAIN = Traits()

TRAITS: Mapping[Strategy, Traits] = {
    "optimal": _FULL_DOMAIN,
    "k_minimal": _FULL_DOMAIN,
    "samarati": _FULL_DOMAIN,
    "samarati-binary": _FULL_DOMAIN,
    "incognito": _FULL_DOMAIN,
    "ola": _FULL_DOMAIN,
    "flash": _FULL_DOMAIN,
    "datafly": _FULL_DOMAIN,
    "mu-argus": Traits(local=True, knows=frozenset({"k"}), of_combinations=True),
    "iab": Traits(local=True, knows=frozenset({"k", "k_anonymity"}), ends=False),
    "mondrian": Traits(local=True, summarises=True, cuts=True),
    "k-similar": Traits(local=True, summarises=True),
    "subtree": Traits(local=True),
    "local": Traits(local=True),
}
