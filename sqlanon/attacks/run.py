"""The attacks, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlanon.attacks import alone, pairs, with_source
from sqlanon.attacks.attacker import Attacker, Found
from sqlanon.attacks.report import NAMES, Attack

ATTACKS: Mapping[str, Callable[[Attacker], Found]] = dict(
    zip(
        NAMES,
        (
            alone.homogeneity,
            alone.background_knowledge,
            alone.skewness,
            alone.similarity,
            pairs.unsorted_matching,
            pairs.complementary_release,
            pairs.temporal,
            pairs.composition,
            with_source.minimality,
            with_source.downcoding,
            with_source.linking,
        ),
        strict=True,
    )
)
"""The attacks, by name."""


def make(name: str, attacker: Attacker) -> Attack:
    """Make one attack."""
    findings, reasons = ATTACKS[name](attacker)
    return Attack(name, tuple(findings), "; ".join(dict.fromkeys(reasons)) or None)
