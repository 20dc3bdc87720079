"""The attacks, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlanon.attacks import alone, pairs, with_source
from sqlanon.attacks.attacker import Attacker, Found
from sqlanon.attacks.report import Attack

ATTACKS: Mapping[str, Callable[[Attacker], Found]] = {
    "homogeneity": alone.homogeneity,
    "background_knowledge": alone.background_knowledge,
    "skewness": alone.skewness,
    "similarity": alone.similarity,
    "unsorted_matching": pairs.unsorted_matching,
    "complementary_release": pairs.complementary_release,
    "temporal": pairs.temporal,
    "composition": pairs.composition,
    "minimality": with_source.minimality,
    "downcoding": with_source.downcoding,
    "linking": with_source.linking,
    "dependencies": with_source.dependencies,
}
"""The attacks, by name."""

NAMES = tuple(ATTACKS)
"""The attacks there are."""


def make(name: str, attacker: Attacker) -> Attack:
    """Make one attack."""
    findings, reasons = ATTACKS[name](attacker)
    decoys = attacker.decoys
    told = [replace(one, decoys=sum(decoys.get(path, 0) for path in one.releases)) for one in findings]
    return Attack(name, tuple(told), "; ".join(dict.fromkeys(reasons)) or None)
