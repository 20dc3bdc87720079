"""Random releases of one table: what is accepted after an earlier release is safe for readers of both."""

from __future__ import annotations

from collections import Counter

import pytest

from properties.random_releases import KINDS, draw_case, is_unsafe, pairs
from support.lanes import examples

pytestmark = pytest.mark.thorough


def test_pairs_that_are_accepted_are_safe() -> None:
    for seed in range(1, 1 + examples(8)):
        for pair in pairs(draw_case(seed, KINDS)):
            assert not (pair.accepted and is_unsafe(pair.findings)), str(pair)


@pytest.mark.parametrize("kind", ["same", "coarser", "grown after"])
def test_usual_pairs_that_are_safe_are_accepted(kind: str) -> None:
    """The same rows, coarser, or based on the earlier release."""
    verdicts = Counter(pair.verdict for seed in range(examples(6)) for pair in pairs(draw_case(seed, [kind])))
    assert verdicts["accepted safe"] and not verdicts["refused safe"] and not verdicts["accepted UNSAFE"]
