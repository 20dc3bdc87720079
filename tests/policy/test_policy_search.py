"""The policy's [search]: the strategies, and the settings that each refuses."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest

import sqlanon
from sqlanon.policy import sections
from sqlanon.policy.strategies import STRATEGIES

LOCAL = ("forest", "iab", "k-similar", "local", "mondrian", "mu-argus", "subtree")


def tree(search: dict[str, Any], privacy: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "source": {"table": "t"},
        "attributes": {
            "zip": {"role": "quasi", "hierarchy": {"mask": "right"}, "max_level": 3},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}, "weight": 2.0},
            "ill": {"role": "sensitive"},
        },
        "privacy": privacy or {"k": 5},
        "search": search,
    }


def problems(search: dict[str, Any], privacy: dict[str, Any] | None = None) -> str:
    with pytest.raises(sqlanon.PolicyError) as caught:
        sqlanon.Policy(**tree(search, privacy))
    return str(caught.value)


def test_every_strategy_of_the_policy_has_a_module() -> None:
    names = set(sections.SearchSection.model_json_schema()["properties"]["strategy"]["enum"])
    assert names == set(STRATEGIES)
    assert set(LOCAL) == {name for name, strategy in STRATEGIES.items() if strategy.traits.is_local}
    for strategy in STRATEGIES.values():
        assert strategy.module is not None and callable(import_module(strategy.module).run), strategy.name


@pytest.mark.slow
def test_a_policy_is_read_without_the_code_of_a_strategy() -> None:
    """Nor with that of an engine, or of the search."""
    code = "import sys, sqlanon; sqlanon.Policy(attributes={'a': {'role': 'quasi', 'hierarchy': 'suppress'}}, "
    code += "privacy={'k': 2}); print(*(one for one in sys.modules if one.startswith('sqlanon.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "sqlanon.policy.strategies" in loaded
    assert not [module for module in loaded if module.split(".")[1] in ("search", "recode", "engines", "sources")]


def test_unset_new_keys_keep_the_fingerprint() -> None:
    diverse = {"attribute": "ill", "kind": "distinct", "l": 2}
    document = tree({"suppression_limit": 0.05}, {"k": 5, "l_diversity": [diverse]})
    policy = sqlanon.Policy(**document, release={"database": "/x/r.duckdb"})
    assert policy.fingerprint() == "026e78054f4a5559af6a650b5886097b0898fe62fc43cb70925e4a032bf20ab6"
    assert sqlanon.Policy(**tree({"strategy": "mondrian"})).redact()["search"]["summary"] == "range"


@pytest.mark.parametrize("strategy", LOCAL)
@pytest.mark.parametrize("measure", ["height", "relative_height", "entropy"])
def test_measures_of_levels_are_refused_for_local_strategies(strategy: str, measure: str) -> None:
    assert f"search.measure: measure {measure} needs one level per attribute" in problems(
        {"strategy": strategy, "measure": measure}
    )


@pytest.mark.parametrize("search", [*({"strategy": name} for name in LOCAL), {"suppression": "cells"}])
def test_the_whole_table_is_not_looked_at_below_the_full_domain(search: dict[str, Any]) -> None:
    messages = problems(search, {"k": 5, "average_risk": 0.1, "sample_uniqueness": 0.1})
    assert "privacy.average_risk" in messages
    assert "privacy.sample_uniqueness" in messages
    assert "decides class by class" in messages


@pytest.mark.parametrize("search", [*({"strategy": name} for name in LOCAL), {"suppression": "cells"}])
def test_a_population_is_not_looked_at_below_the_full_domain(search: dict[str, Any]) -> None:
    with pytest.raises(sqlanon.PolicyError) as caught:
        sqlanon.Policy(**tree(search, {"k": 5, "k_map": 3}), population={"table": "everybody"})
    assert "privacy.k_map" in str(caught.value)
    assert "does not use a population" in str(caught.value)


def test_some_strategies_know_k_only() -> None:
    shield = {"k": 5, "k_anonymity": [{"quasi": ["zip"], "k": 7}]}
    assert "privacy.k_anonymity: strategy mu-argus supports only k" in problems({"strategy": "mu-argus"}, shield)
    sqlanon.Policy(**tree({"strategy": "iab"}, shield))
    diverse = {"k": 5, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]}
    for strategy in ("mu-argus", "iab"):
        assert "privacy.l_diversity" in problems({"strategy": strategy}, diverse)
    sqlanon.Policy(**tree({"strategy": "mondrian"}, diverse))


@pytest.mark.parametrize(("option", "value"), [("summary", "median"), ("cuts", "relaxed")])
def test_options_are_for_the_strategies_that_know_them(option: str, value: str) -> None:
    assert f"search.{option}: applies to strategy mondrian" in problems({option: value})
    assert sqlanon.Policy(**tree({"strategy": "mondrian", option: value})).search.model_dump()[option] == value


def test_cells_are_blanked_after_a_full_domain_strategy_only() -> None:
    assert "search.suppression: strategy local already recodes below the full domain" in problems(
        {"strategy": "local", "suppression": "cells"}
    )
