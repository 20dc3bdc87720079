"""Noise in a policy: what is accepted, how its budget is shared out, and what is said of mistakes."""

from __future__ import annotations

import json
import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlanon.errors import PolicyError
from sqlanon.policy import Policy
from support.lanes import examples
from support.policy_problems import Schema, load, only_problem, problems

ATTRIBUTES: dict[str, Any] = {
    "name": {"role": "identifying"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
    "height": {"role": "quasi", "noise": {"epsilon": 1.0}},
    "diagnosis": {"role": "sensitive"},
}

TEXT = """
[source]
database = "hospital.duckdb"
table = "patients"

[attributes]
zip    = { role = "quasi", hierarchy = { mask = "right" } }
height = { role = "quasi", noise = { epsilon = 1.0, bounds = [50, 250], round = 0.5 } }
weight = { role = "quasi", noise = {}, on_unknown = "suppress" }
born   = { role = "quasi", noise = { epsilon = 0.25, bounds = [1900-01-01, 2020-12-31], round = 7 } }

[privacy]
k = 5
epsilon = 2.0
confidence = 0.99
"""


def tree(
    height: Any = None, privacy: Any = None, more: dict[str, Any] | None = None, **sections: Any
) -> dict[str, Any]:
    """A policy with noise on heights; ``height`` is the attribute's table, or is added to it as its ``noise``."""
    attributes = dict(ATTRIBUTES)
    if height is not None:
        attributes["height"] = height if isinstance(height, dict) and "role" in height else noisy(height)
    sound = {
        "source": {"database": "hospital.duckdb", "table": "patients"},
        "attributes": attributes | (more or {}),
        "privacy": {"k": 5, **(privacy or {})},
    }
    return {key: value for key, value in {**sound, **sections}.items() if value is not None}


def noisy(noise: Any, **more: Any) -> dict[str, Any]:
    return {"role": "quasi", "noise": noise, **more}


# --- reading -----------------------------------------------------------------------------------------


def test_every_key_is_read(tmp_path: Path) -> None:
    policy = load(tmp_path, TEXT)
    height, weight, born = (policy.attributes[name].noise for name in ("height", "weight", "born"))
    assert height is not None and weight is not None and born is not None
    assert (height.epsilon, height.bounds, height.round) == (1.0, (Decimal(50), Decimal(250)), Decimal("0.5"))
    assert (weight.epsilon, weight.bounds, weight.round) == (None, None, None)
    assert (born.epsilon, born.bounds, born.round) == (0.25, (date(1900, 1, 1), date(2020, 12, 31)), Decimal(7))
    assert policy.attributes["weight"].on_unknown == "suppress"
    assert (policy.privacy.epsilon, policy.privacy.confidence) == (2.0, 0.99)


def test_the_quasi_identifiers_are_split() -> None:
    policy = Policy(**tree())
    assert policy.quasi_identifiers == ("zip", "age", "height")
    assert policy.generalized_attributes == ("zip", "age")
    assert policy.noisy_attributes == ("height",)


def test_a_policy_without_noise_has_no_budget() -> None:
    attributes = {name: spec for name, spec in ATTRIBUTES.items() if name != "height"}
    policy = Policy(**tree(attributes=attributes))
    assert (policy.generalized_attributes, policy.noisy_attributes) == (("zip", "age"), ())
    assert (policy.epsilons, policy.epsilon) == ({}, None)
    assert (policy.privacy.epsilon, policy.privacy.confidence) == (None, None)


@pytest.mark.parametrize("strategy", ["k_minimal", "ola", "flash", "datafly", "iab", "mondrian", "k-similar", "local"])
def test_any_other_strategy_may_make_the_classes(strategy: str) -> None:
    Policy(**tree(search={"strategy": strategy}))


def test_cells_may_be_blanked_beside_noise() -> None:
    Policy(**tree(search={"suppression": "cells"}))


@pytest.mark.parametrize(
    ("noise", "privacy"),
    [
        ({}, {"epsilon": 1}),
        ({"epsilon": 1}, {}),
        ({"epsilon": 1}, {"epsilon": 1.0}),
        ({"epsilon": 0.001}, {}),
        ({"epsilon": 10}, {}),
        ({"epsilon": 100}, {"linkable_noise": True}),
        ({"epsilon": 1}, {"linkable_noise": True}),
        ({"epsilon": 10}, {"epsilon_total": 10}),
        ({"epsilon": 1}, {"epsilon_total": 30, "linkable_noise": True}),
        ({"epsilon": 1, "bounds": [-5, 0]}, {}),
        ({"epsilon": 1, "bounds": (0.1, 0.2)}, {}),
        ({"epsilon": 1, "round": 0.001}, {}),
        ({"epsilon": 1, "round": 1000}, {}),
        ({"epsilon": 1}, {"k": 2}),
        ({"epsilon": 1}, {"confidence": 0.5}),
        ({"epsilon": 1}, {"confidence": 1e-6}),
        ({"epsilon": 1}, {"confidence": 0.999999}),
        ({"epsilon": 1}, {"confidence": 0.9, "k_anonymity": {"quasi": ["zip"], "k": 7}}),
        ({"epsilon": 1}, {"k_anonymity": {"quasi": ["zip", "age"], "k": 7}}),
        ({"epsilon": 1}, {"l_diversity": {"attribute": "diagnosis", "kind": "distinct", "l": 2}, "confidence": 0.9}),
        ({"epsilon": 1}, {"average_risk": 0.1}),
    ],
)
def test_noise_at_the_limits_is_allowed(noise: dict[str, Any], privacy: dict[str, Any]) -> None:
    Policy(**tree(noise, privacy))


@pytest.mark.parametrize(
    ("noise", "privacy", "place"),
    [
        ({"epsilon": 10.1}, {}, "attributes.height.noise.epsilon"),
        ({"epsilon": 10.1}, {"linkable_noise": False}, "attributes.height.noise.epsilon"),
        ({}, {"epsilon": 11}, "privacy.epsilon"),
        ({"epsilon": 2}, {"epsilon_total": 10.5}, "privacy.epsilon_total"),
    ],
)
def test_weak_noise_is_refused_unless_accepted(noise: dict[str, Any], privacy: dict[str, Any], place: str) -> None:
    where, message = only_problem(**tree(noise, privacy))
    assert where == place
    assert "above 10 noise hides little" in message and "links most rows" in message
    assert "set linkable_noise = true under [privacy]" in message


def test_the_epsilon_of_a_record_counts_not_that_of_an_attribute() -> None:
    more = {"weight": noisy({"epsilon": 6}), "bmi": noisy({"epsilon": 1})}
    place, message = only_problem(**tree({"epsilon": 4}, more=more))
    assert place == "attributes.weight.noise.epsilon"
    assert "the epsilon of a record is 11" in message


# --- the budget --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budgets", "record", "epsilons", "epsilon"),
    [
        ({"height": 1.0}, None, {"height": 1.0}, 1.0),
        ({"height": None}, 0.3, {"height": 0.3}, 0.3),
        ({"height": None, "weight": None}, 1.0, {"height": 0.5, "weight": 0.5}, 1.0),
        ({"height": None, "weight": None, "bmi": None}, 3.0, {"height": 1.0, "weight": 1.0, "bmi": 1.0}, 3.0),
        ({"height": 0.5, "weight": None, "bmi": None}, 1.5, {"height": 0.5, "weight": 0.5, "bmi": 0.5}, 1.5),
        ({"height": 0.1, "weight": 0.2}, None, {"height": 0.1, "weight": 0.2}, 0.3),
        ({"height": 0.1, "weight": 0.2}, 0.3, {"height": 0.1, "weight": 0.2}, 0.3),  # in binary 0.1 + 0.2 is not 0.3
        ({"height": 0.1, "weight": None}, 0.3, {"height": 0.1, "weight": 0.2}, 0.3),
        ({"height": 0.7, "weight": 0.1, "bmi": None}, 1, {"height": 0.7, "weight": 0.1, "bmi": 0.2}, 1.0),
    ],
)
def test_the_budget_of_a_record_is_shared_out(
    budgets: dict[str, float | None], record: float | None, epsilons: dict[str, float], epsilon: float
) -> None:
    attributes = {name: noisy({} if budget is None else {"epsilon": budget}) for name, budget in budgets.items()}
    privacy = {} if record is None else {"epsilon": record}
    policy = Policy(**tree(privacy=privacy, attributes={"zip": ATTRIBUTES["zip"], **attributes}))
    assert list(policy.epsilons) == list(budgets)
    assert policy.epsilons == pytest.approx(epsilons, rel=1e-12)
    assert policy.epsilon == pytest.approx(epsilon, rel=1e-12)
    assert all(policy.epsilons[name] == budget for name, budget in budgets.items() if budget is not None)


@settings(max_examples=examples(50), deadline=None, derandomize=True)
@given(
    budgets=st.lists(st.none() | st.integers(1, 99).map(lambda n: n / 100), min_size=1, max_size=6),
    left=st.integers(1, 500),
)
def test_budget_shares_stay_within_the_record_budget(budgets: list[float | None], left: int) -> None:
    record = sum(round(100 * budget) for budget in budgets if budget is not None) / 100
    record += left / 100 if None in budgets else 0
    attributes = {f"n{i}": noisy({} if budget is None else {"epsilon": budget}) for i, budget in enumerate(budgets)}
    policy = Policy(**tree(privacy={"epsilon": record}, attributes={"zip": ATTRIBUTES["zip"], **attributes}))
    shares = policy.epsilons
    assert math.fsum(shares.values()) == pytest.approx(record, rel=1e-9)
    assert policy.epsilon == pytest.approx(record, rel=1e-9)
    equal = {shares[f"n{i}"] for i, budget in enumerate(budgets) if budget is None}
    assert len(equal) == (None in budgets)


# --- mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("noise", "place", "words"),
    [
        ({"epsilon": 0}, ".epsilon", "not 0"),
        ({"epsilon": -1}, ".epsilon", "not -1"),
        ({"epsilon": math.inf}, ".epsilon", "finite"),
        ({"epsilon": math.nan}, ".epsilon", "finite"),
        ({"epsilon": "1"}, ".epsilon", "must be a number, not '1'"),
        ({"epsilon": True}, ".epsilon", "must be a number, not true"),
        ({"epsilon": [1]}, ".epsilon", "must be a number, not a list"),
        ({"epsilon": 10**400}, ".epsilon", "out of range"),
        ({"epsilon": 1, "round": 0}, ".round", "more than 0, not 0"),
        ({"epsilon": 1, "round": -0.5}, ".round", "more than 0, not -0.5"),
        ({"epsilon": 1, "round": math.nan}, ".round", "finite"),
        ({"epsilon": 1, "round": math.inf}, ".round", "finite"),
        ({"epsilon": 1, "round": "0.5"}, ".round", "must be a number, not '0.5'"),
        ({"epsilon": 1, "round": True}, ".round", "must be a number, not true"),
        ({"epsilon": 1, "bounds": [5, 5]}, ".bounds", "must be less than"),
        ({"epsilon": 1, "bounds": [250, 50]}, ".bounds", "must be less than"),
        ({"epsilon": 1, "bounds": [date(2020, 1, 1), date(1990, 1, 1)]}, ".bounds", "must be less than"),
        ({"epsilon": 1, "bounds": [0, date(1990, 1, 1)]}, ".bounds", "a number and a date"),
        ({"epsilon": 1, "bounds": [0, "9"]}, ".bounds[1]", "must be a number or a date"),
        ({"epsilon": 1, "bounds": [True, 9]}, ".bounds[0]", "must be a number"),
        ({"epsilon": 1, "bounds": [0, math.inf]}, ".bounds[1]", "finite"),
        ({"epsilon": 1, "bounds": [0, math.nan]}, ".bounds[1]", "finite"),
        ({"epsilon": 1, "epsilom": 2}, ".epsilom", "did you mean 'epsilon'?"),
        ({"epsilon": 1, "bound": [0, 1]}, ".bound", "did you mean 'bounds'?"),
        ({"epsilon": 1, "seed": 7}, ".seed", "unknown key 'seed'"),
        (1.0, "", "must be a table, not 1.0"),
        (True, "", "must be a table, not true"),
        ("laplace", "", "must be a table, not 'laplace'"),
    ],
)
def test_mistakes_of_noise_are_named(noise: Any, place: str, words: str) -> None:
    where, message = only_problem(**tree(noise))
    assert where == f"attributes.height.noise{place}"
    assert words in message


@pytest.mark.parametrize("bounds", [[1], [1, 2, 3], [], 5, {"low": 1}])
def test_bounds_are_two(bounds: Any) -> None:
    """In the words of people who write policies, not in those of a library."""
    places = problems(**tree({"epsilon": 1, "bounds": bounds}))
    assert places and all(place.startswith("attributes.height.noise.bounds") for place, _ in places)
    assert all(message and "tuple" not in message.lower() and "validation" not in message for _, message in places)


def test_noise_stands_in_place_of_a_hierarchy() -> None:
    place, message = only_problem(**tree(noisy({"epsilon": 1}, hierarchy="suppress")))
    assert place in ("attributes.height.noise", "attributes.height.hierarchy", "attributes.height")
    assert "hierarchy" in message and "remove one" in message


@pytest.mark.parametrize(
    "more", [{"weight": 2.0}, {"min_level": 1}, {"max_level": 1}, {"forbidden": ["*"]}, {"identification": "most"}]
)
def test_keys_of_hierarchies_are_refused_beside_noise(more: dict[str, Any]) -> None:
    mistakes = dict(problems(**tree(noisy({"epsilon": 1}, **more))))
    (name,) = more
    assert "remove it" in mistakes[f"attributes.height.{name}"]
    assert all(place == f"attributes.height.{name}" for place in mistakes)


def test_unknown_values_may_be_suppressed() -> None:
    policy = Policy(**tree(noisy({"epsilon": 1}, on_unknown="suppress")))
    assert policy.attributes["height"].on_unknown == "suppress"


@pytest.mark.parametrize("role", ["identifying", "sensitive", "insensitive"])
def test_noise_is_for_quasi_attributes(role: str) -> None:
    place, message = only_problem(**tree({"role": role, "noise": {"epsilon": 1}}))
    assert place == "attributes.height.noise"
    assert "applies to quasi-identifiers" in message and role in message


def test_a_quasi_attribute_needs_a_hierarchy_or_noise() -> None:
    place, message = only_problem(**tree({"role": "quasi"}))
    assert place == "attributes.height"
    assert "hierarchy" in message and "noise" in message


def test_something_must_make_classes() -> None:
    attributes = {"height": noisy({"epsilon": 1}), "weight": noisy({"epsilon": 1}), "diagnosis": {"role": "sensitive"}}
    place, message = only_problem(**tree(attributes=attributes))
    assert place == "attributes"
    assert "hierarchy" in message and "noise" in message


@pytest.mark.parametrize("privacy", [{"k": 1}, {"k": None}])
def test_noise_needs_classes_of_two(privacy: dict[str, Any]) -> None:
    alpha = {"attribute": "diagnosis", "alpha": 0.5}
    privacy = {name: value for name, value in {**privacy, "alpha_k": alpha}.items() if value is not None}
    place, message = only_problem(**_with(privacy))
    assert place == "privacy.k"
    assert "k = " in message and "noise" in message


def _with(privacy: dict[str, Any]) -> dict[str, Any]:
    """A policy with these requirements, and no others."""
    return {**tree(), "privacy": privacy}


def test_mu_argus_makes_no_classes() -> None:
    place, message = only_problem(**tree(search={"strategy": "mu-argus"}))
    assert place == "search.strategy"
    assert "mu-argus" in message and "noise" in message and "optimal" in message


def test_shield_covers_generalized_attributes_only() -> None:
    shields = [{"quasi": ["zip"], "k": 6}, {"quasi": ["age", "height"], "k": 7}]
    place, message = only_problem(**tree(privacy={"k_anonymity": shields}))
    assert place == "privacy.k_anonymity[1].quasi[1]"
    assert "'height' has noise" in message and "give it a hierarchy" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budgets", "record", "place", "words"),
    [
        ([None], None, "attributes.n0.noise", "epsilon"),
        ([None, 1, None], None, "attributes.n0.noise", "epsilon"),
        ([1], 2, "privacy.epsilon", "add up to 1"),
        ([1, 1.5], 2, "privacy.epsilon", "add up to 2.5"),
        ([0.1, 0.2], 0.31, "privacy.epsilon", "add up to 0.3"),
        ([2, None], 2, "privacy.epsilon", "nothing is left for n1"),
        ([3, None, None], 2, "privacy.epsilon", "nothing is left for n1, n2"),
    ],
)
def test_mistakes_of_the_budget_are_named(budgets: list[Any], record: float | None, place: str, words: str) -> None:
    attributes = {f"n{i}": noisy({} if budget is None else {"epsilon": budget}) for i, budget in enumerate(budgets)}
    privacy = {} if record is None else {"epsilon": record}
    mistakes = problems(**tree(privacy=privacy, attributes={"zip": ATTRIBUTES["zip"], **attributes}))
    assert mistakes[0][0].startswith(place)
    assert words in mistakes[0][1]
    # Without a budget each attribute that needs one is named; else it is one mistake.
    assert len(mistakes) == (budgets.count(None) if record is None else 1)


@pytest.mark.parametrize("key", ["epsilon", "confidence"])
def test_a_budget_and_a_confidence_are_for_noise(key: str) -> None:
    attributes = {name: spec for name, spec in ATTRIBUTES.items() if name != "height"}
    place, message = only_problem(**tree(privacy={key: 0.5}, attributes=attributes))
    assert place == f"privacy.{key}"
    assert "noise" in message and "leave it out" in message


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("epsilon", 0, "not 0"),
        ("epsilon", -2, "not -2"),
        ("epsilon", "2", "must be a number, not '2'"),
        ("epsilon", math.inf, "finite"),
        ("confidence", 0, "more than 0, not 0"),
        ("confidence", 1, "less than 1, not 1"),
        ("confidence", -0.5, "more than 0, not -0.5"),
        ("confidence", 99, "less than 1, not 99"),
        ("confidence", "99%", "must be a number, not '99%'"),
        ("confidence", True, "must be a number, not true"),
        ("confidence", math.nan, "finite"),
    ],
)
def test_mistakes_of_the_privacy_section_are_named(key: str, value: Any, words: str) -> None:
    place, message = only_problem(**tree({}, {"epsilon": 1.0, key: value}))
    assert place == f"privacy.{key}"
    assert words in message


def test_a_confidence_needs_k() -> None:
    mistakes = dict(problems(**_with({"confidence": 0.9, "alpha_k": {"attribute": "diagnosis", "alpha": 0.5}})))
    assert "privacy.k" in mistakes or "privacy.confidence" in mistakes
    assert "k = " in "".join(mistakes.values())


@pytest.mark.parametrize(
    ("privacy", "sections"),
    [
        ({"delta_presence": {"max": 0.5}}, {"population": {"table": "voters"}}),
        ({"population_uniqueness": {"limit": 0.1, "population": 1000}}, {}),
        (
            {"k_anonymity": {"quasi": ["zip"], "k": 6}},
            {"source": {"database": "hospital.duckdb", "table": "patients", "person": "name"}},
        ),
    ],
    ids=["delta_presence", "population_uniqueness", "shields over persons"],
)
def test_requirements_that_suppress_rows_are_refused_beside_a_confidence(
    privacy: dict[str, Any], sections: dict[str, Any]
) -> None:
    """Confidence suppresses rows after these requirements are decided; without it, noise can be combined with them."""
    Policy(**tree(None, privacy, **sections))
    place, message = only_problem(**tree(None, {**privacy, "confidence": 0.9}, **sections))
    assert place == "privacy.confidence"
    assert "give the attribute a hierarchy" in message


def test_all_mistakes_show_at_once_each_with_its_place(tmp_path: Path) -> None:
    text = (
        TEXT.replace("bounds = [50, 250]", "bounds = [250, 50]")
        .replace("epsilon = 0.25", "epsilon = -0.25")
        .replace("confidence = 0.99", "confidence = 99")
        .replace("k = 5\n", "k = 0\n")
    )
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, text)
    places = {problem.place for problem in caught.value.problems}
    assert places == {
        "attributes.height.noise.bounds", "attributes.born.noise.epsilon", "privacy.confidence", "privacy.k",
    }  # fmt: skip


def test_mistakes_between_sections_show_at_once(tmp_path: Path) -> None:
    text = TEXT.replace("epsilon = 2.0", "epsilon = 1.25").replace("k = 5\n", "k = 1\n")
    text += '[[privacy.k_anonymity]]\nquasi = ["zip", "born"]\nk = 6\n[search]\nstrategy = "mu-argus"\n'
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, text)
    places = {problem.place for problem in caught.value.problems}
    assert {"privacy.epsilon", "privacy.k", "privacy.k_anonymity[0].quasi[1]", "search.strategy"} <= places


def test_a_mistake_in_an_attribute_makes_no_other() -> None:
    """The attribute may be the only one that forms classes, or the one that the budget is for."""
    broken = {"zip": {"role": "quasi", "hierarchy": {"mask": "rigth"}}, "height": noisy({"epsilon": 1})}
    assert all(place.startswith("attributes.zip") for place, _ in problems(**tree(attributes=broken)))
    broken = {"zip": ATTRIBUTES["zip"], "height": noisy({"epsilon": -1})}
    mistakes = problems(**tree(privacy={"epsilon": 1.0, "confidence": 0.9}, attributes=broken))
    assert all(place.startswith("attributes.height") for place, _ in mistakes)


# --- what is written can be read ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_policy_with_noise_is_written_and_read(mode: str, tmp_path: Path) -> None:
    text = TEXT if mode == "python" else TEXT.replace("bounds = [1900-01-01, 2020-12-31], ", "")  # JSON has no dates
    policy = load(tmp_path, text)
    document = policy.model_dump(mode=mode)
    again = Policy(**(json.loads(json.dumps(document)) if mode == "json" else document))
    assert again.fingerprint() == policy.fingerprint()
    if mode == "python":
        assert again == policy
    assert Policy(**policy.model_dump(mode=mode, exclude_none=True)).epsilons == policy.epsilons


def test_unset_noise_is_not_written() -> None:
    document = Policy(**tree({"epsilon": 1})).model_dump(mode="json", exclude_none=True)
    assert document["attributes"]["height"]["noise"] == {"epsilon": 1.0}
    assert "noise" not in document["attributes"]["zip"]
    assert set(document["privacy"]) == {"k"}


_KEYS = st.sampled_from(["epsilon", "bounds", "round", "seed"])
_SCALARS = st.sampled_from(["1", ""]) | st.booleans() | st.none() | st.integers(-2, 3) | st.floats() | st.dates()
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=3) | st.decimals()
_NOISE = st.dictionaries(_KEYS, _VALUES, max_size=3) | _SCALARS


@settings(max_examples=examples(150), deadline=None, derandomize=True)
@given(
    noises=st.lists(_NOISE, min_size=1, max_size=2),
    privacy=st.dictionaries(st.sampled_from(["epsilon", "confidence", "k"]), _VALUES, max_size=3),
)
def test_any_tree_gives_a_policy_or_its_problems(noises: list[Any], privacy: dict[str, Any]) -> None:
    more = {f"n{i}": noisy(noise) for i, noise in enumerate(noises)}
    try:
        policy = Policy(**tree({"epsilon": 1}, privacy, more))
    except PolicyError as error:
        assert all(problem.message for problem in error.problems)
        return
    json.dumps(policy.redact(), allow_nan=False)
    assert Policy(**policy.model_dump()) == policy
    json.dumps(policy.model_dump(mode="json"), allow_nan=False)
    assert all(epsilon > 0 for epsilon in policy.epsilons.values())


# --- fingerprint -------------------------------------------------------------------------------------

PLAIN: dict[str, Any] = {
    "name": {"role": "identifying"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
    "diagnosis": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
}
LIMITED = {"weight": 2.0, "on_unknown": "suppress", "min_level": 1, "max_level": 2, "forbidden": ["*"]}
# Made by the version before noise: releases of that time stay the policy's own.
FINGERPRINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "k alone": (
        "d3fc5cfef0b09d909a6e728592733bbb2a3ebfdfd100a5686dd9f13564a3aec5",
        {"attributes": {"zip": PLAIN["zip"]}, "privacy": {"k": 5}},
    ),
    "everything of an attribute": (
        "05acfba2cb6945ae1de15b076511ce9cf28b0f6041283dde2efc32a27348d725",
        {
            "source": {"database": "hospital.duckdb", "table": "patients", "undeclared": "drop"},
            "attributes": {**PLAIN, "age": {**PLAIN["age"], **LIMITED}},
            "privacy": {"k": 5},
            "search": {"suppression_limit": 0.29},
            "release": {"database": "release.duckdb", "suppressed": "mask"},
            "catalog": {"database": "private.duckdb"},
        },
    ),
    "requirements": (
        "7afdc6c896dc369ee5e056110f3454f7f96dcaa99d4eb420598c9161904c0e85",
        {
            "source": {"table": "t", "person": "who"},
            "attributes": PLAIN,
            "privacy": {
                "k": 3,
                "k_anonymity": {"quasi": ["zip"], "k": 7},
                "l_diversity": {"attribute": "diagnosis", "kind": "entropy", "l": 2.5},
                "t_closeness": {"attribute": "diagnosis", "distance": "ordered", "t": 0.2},
            },
        },
    ),
    "mondrian": (
        "3b33ddd0a2c24b937e52523efc757f851e1e8eefbafcd5413dde878fbee03c83",
        {
            "attributes": PLAIN,
            "privacy": {"k": 2},
            "search": {"strategy": "mondrian", "summary": "median", "cuts": "relaxed"},
        },
    ),
    "mu-argus": (
        "2c78694bdfd4a0cd6d7f4cb1cdfac94d5f576ff26d693ed72301145a00e6c94b",
        {
            "attributes": {**PLAIN, "zip": {**PLAIN["zip"], "identification": "most"}},
            "privacy": {"k": 2},
            "search": {"strategy": "mu-argus"},
        },
    ),
}


@pytest.mark.parametrize("case", FINGERPRINTS)
def test_a_policy_without_noise_has_the_fingerprint_that_it_had(case: str) -> None:
    fingerprint, sections = FINGERPRINTS[case]
    assert Policy(**sections).fingerprint() == fingerprint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("epsilon = 1.0", "epsilon = 1.1"),
        ("epsilon = 2.0", "epsilon = 2.1"),
        ("confidence = 0.99", "confidence = 0.98"),
        ("confidence = 0.99", ""),
        ("[50, 250]", "[50, 251]"),
        (", bounds = [50, 250]", ""),
        ("1900-01-01", "1900-01-02"),
        ("round = 0.5", "round = 0.25"),
        (", round = 7", ""),
        ('noise = {}, on_unknown = "suppress"', "noise = {}"),
    ],
)
def test_the_fingerprint_is_that_of_the_noise(old: str, new: str, tmp_path: Path) -> None:
    assert TEXT.count(old) == 1
    assert load(tmp_path, TEXT).fingerprint() != load(tmp_path, TEXT.replace(old, new)).fingerprint()


def test_equal_numbers_have_one_fingerprint(tmp_path: Path) -> None:
    text = TEXT.replace("epsilon = 1.0", "epsilon = 1").replace("[50, 250]", "[50.0, 250.0]")
    text = text.replace("round = 0.5", "round = 0.50").replace("round = 7 ", "round = 7.0 ")
    assert text != TEXT
    assert load(tmp_path, text).fingerprint() == load(tmp_path, TEXT).fingerprint()


# --- redaction ---------------------------------------------------------------------------------------


def test_a_redacted_policy_shows_the_noise_and_no_more(tmp_path: Path) -> None:
    redacted = load(tmp_path, TEXT.replace('"hospital.duckdb"', '"secret.duckdb"')).redact()
    text = json.dumps(redacted, allow_nan=False)
    assert "secret" not in text and str(tmp_path) not in text
    height, weight, born = (redacted["attributes"][name] for name in ("height", "weight", "born"))
    assert height["role"] == "quasi"
    assert height["noise"] == {"epsilon": 1.0, "bounds": [50, 250], "round": 0.5}
    assert weight["noise"] == {}
    assert weight["on_unknown"] == "suppress"
    assert born["noise"] == {"epsilon": 0.25, "bounds": ["1900-01-01", "2020-12-31"], "round": 7}
    assert redacted["privacy"] == {"k": 5, "epsilon": 2.0, "confidence": 0.99}
    assert "noise" not in redacted["attributes"]["zip"]


def test_a_redacted_policy_without_noise_is_unchanged() -> None:
    redacted = Policy(attributes=PLAIN, privacy={"k": 5}).redact()
    assert redacted["attributes"]["zip"] == {
        "role": "quasi",
        "hierarchy": redacted["attributes"]["zip"]["hierarchy"],
        "weight": 1.0,
        "on_unknown": "error",
        "min_level": 0,
    }
    assert redacted["privacy"] == {"k": 5}


# --- schema ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(json.loads(json.dumps(Policy.model_json_schema())))


def test_json_schema_accepts_valid_policies(schema: Schema) -> None:
    noises: list[dict[str, Any]] = [
        {},
        {"epsilon": 1},
        {"epsilon": 0.5, "round": 0.5},
        {"bounds": [50, 250.5]},
        {"bounds": ["1900-01-01", "2020-12-31"], "round": 7},
    ]
    for noise in noises:
        assert schema.accepts(tree(noise, {"epsilon": 2, "confidence": 0.9})), noise
    assert schema.accepts(tree(noisy({"epsilon": 1}, on_unknown="suppress")))


@pytest.mark.parametrize(
    ("noise", "privacy"),
    [
        ({"epsilon": 0}, {}),
        ({"epsilon": -1}, {}),
        ({"epsilon": "1"}, {}),
        ({"epsilon": 1, "round": 0}, {}),
        ({"epsilon": 1, "bounds": [1]}, {}),
        ({"epsilon": 1, "bounds": [1, 2, 3]}, {}),
        ({"epsilon": 1, "bounds": 5}, {}),
        ({"epsilon": 1, "seed": 7}, {}),
        (1.0, {}),
        ({"epsilon": 1}, {"confidence": 1}),
        ({"epsilon": 1}, {"confidence": 0}),
        ({}, {"epsilon": 0}),
    ],
)
def test_json_schema_refuses_invalid_policies(noise: Any, privacy: dict[str, Any], schema: Schema) -> None:
    wrong = tree(noise, privacy)
    assert problems(**wrong)
    assert not schema.accepts(wrong)


def test_the_json_schema_explains_every_key(schema: Schema) -> None:
    definitions = schema.whole["$defs"]
    assert set(definitions["Noise"]["properties"]) == {"epsilon", "bounds", "round"}
    assert definitions["Noise"]["additionalProperties"] is False
    for part in (definitions["Noise"], definitions["PrivacySection"], definitions["Attribute"]):
        assert all(field["description"] for field in part["properties"].values())
    assert {"epsilon", "confidence"} <= set(definitions["PrivacySection"]["properties"])
    assert "noise" in definitions["Attribute"]["properties"]
