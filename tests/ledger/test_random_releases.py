"""Random releases of one table: what is accepted beside an earlier release is safe for readers of both."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from properties.random_releases import KINDS, draw_case, is_unsafe, pairs
from support.lanes import examples

seldom = settings(
    max_examples=examples(8),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.slow
@seldom
@given(st.integers(0, 2**32))
def test_pairs_that_are_accepted_are_safe(seed: int) -> None:
    for pair in pairs(draw_case(seed, KINDS)):
        event(f"{pair.case.kind}: {pair.verdict}")
        assert not (pair.accepted and is_unsafe(pair.findings)), str(pair)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["same", "coarser", "grown after"])
def test_usual_pairs_that_are_safe_are_accepted(kind: str) -> None:
    """Of the same rows, coarser, or based on the earlier release."""
    verdicts = Counter(pair.verdict for seed in range(examples(6)) for pair in pairs(draw_case(seed, [kind])))
    assert verdicts["accepted safe"] and not verdicts["refused safe"] and not verdicts["accepted UNSAFE"]
