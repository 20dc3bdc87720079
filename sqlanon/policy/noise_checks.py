"""Checks of noise, its budget and its confidence against the rest of a policy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlanon.errors import Problem
from sqlanon.policy.noise import ROUNDING, Noise
from sqlanon.policy.privacy import PrivacySection
from sqlanon.policy.problems import join
from sqlanon.policy.sections import Attribute, SearchSection, SourceSection


def noise_check(parts: Mapping[str, Any], names: Sequence[str]) -> Iterator[Problem]:
    """Yield what is wrong between noise and the rest of a policy.

    Parameters
    ----------
    parts:
        The sections that are sound, by name; ``attributes`` holds the sound attributes.
    names:
        The names of all attributes, sound or not.
    """
    attributes: Mapping[str, Attribute] = parts.get("attributes", {})
    privacy: PrivacySection | None = parts.get("privacy")
    noisy = {name: one.noise for name, one in attributes.items() if one.noise is not None}
    if privacy is None:
        return
    # An unsound attribute may be meant to have noise.
    if not noisy and len(attributes) == len(names):
        for name in ("epsilon", "epsilon_total", "confidence"):
            if getattr(privacy, name) is not None:
                message = "is for attributes with noise, and there is none: add noise = {} to one, or leave it out"
                yield Problem(join("privacy", name), message)
    if noisy:
        yield from _budget(noisy, privacy)
        yield from _classes(noisy, privacy)
        search: SearchSection = parts.get("search", SearchSection())
        if search.traits.of_combinations:
            message = f"{search.strategy} makes no classes of k rows, which noise needs: use optimal, for example"
            yield Problem("search.strategy", message)
        yield from _suppressed_last(attributes, privacy, parts.get("source", SourceSection()))


def _budget(noisy: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """What own budgets add up to must leave something for the others, and be the record's if there are none."""
    record, most = privacy.epsilon, privacy.epsilon_total
    spent = math.fsum(noise.epsilon for noise in noisy.values() if noise.epsilon is not None)
    others = [name for name, noise in noisy.items() if noise.epsilon is None]
    least = max(spent, record or 0)
    if most is not None and least > most * (1 + ROUNDING):
        message = f"{most:g} is for all releases, and this one adds {least:g}: raise it, or lower the epsilon"
        yield Problem("privacy.epsilon_total", message)
    if record is None:
        for name in others:
            yield Problem(
                join(join("attributes", name), "noise"),
                "has no epsilon: add one here, or epsilon = ... under [privacy], which is shared out",
            )
    elif others and spent >= record * (1 - ROUNDING):
        yield Problem(
            "privacy.epsilon",
            f"{record:g} is the record's, and attributes with their own epsilon take {spent:g} of it: "
            f"nothing is left for {', '.join(others)}",
        )
    elif not others and not math.isclose(spent, record, rel_tol=ROUNDING):
        yield Problem(
            "privacy.epsilon",
            f"{record:g} is the record's, and those of the attributes add up to {spent:g}: make them equal, "
            "or leave it out",
        )


def _classes(noisy: Mapping[str, Noise], privacy: PrivacySection) -> Iterator[Problem]:
    """Noise hides a record among those of its class: there must be others, and they cannot be told by the noise."""
    if privacy.k is None or privacy.k < 2:
        yield Problem(
            "privacy.k", "noise hides a record among those of its class, which must have others: add k = 5, for example"
        )
    for i, shield in enumerate(privacy.k_anonymity):
        for j, name in enumerate(shield.quasi):
            if name in noisy:
                yield Problem(
                    f"privacy.k_anonymity[{i}].quasi[{j}]",
                    f"{name!r} has noise, and a shield is over attributes that are generalized: leave it out",
                )


def _suppressed_last(
    attributes: Mapping[str, Attribute], privacy: PrivacySection, source: SourceSection
) -> Iterator[Problem]:
    """Some rows are left out when all else is decided: what cannot be asked again of the rest is refused."""
    late = [
        join(join("attributes", name), "on_unknown")
        for name, one in attributes.items()
        if one.noise is not None and one.on_unknown == "suppress"
    ]
    if privacy.confidence is not None:
        late.append("privacy.confidence")
        if source.person is not None:
            message = "counts rows, and source.person asks for persons: leave one of them out"
            yield Problem("privacy.confidence", message)
    persons_and_shields = bool(privacy.k_anonymity) and source.person is not None
    for place in late:
        for name in ("delta_presence", "population_uniqueness"):
            if getattr(privacy, name) is not None:
                yield Problem(place, f"suppresses rows after {name} was decided: leave one of them out")
        if persons_and_shields and place != "privacy.confidence":
            yield Problem(place, "suppresses rows after shields over persons were decided: leave one of them out")
