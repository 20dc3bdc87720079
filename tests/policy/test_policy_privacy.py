"""The policy's privacy requirements, its population and its persons: what is accepted, and what is said of mistakes."""

from __future__ import annotations

import json
import math
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sqlanon.errors import PolicyError
from sqlanon.policy import (
    AlphaK,
    BetaLikeness,
    DeltaDisclosure,
    DeltaPresence,
    LDiversity,
    NullMap,
    Policy,
    PopulationSection,
    PopulationUniqueness,
    PrivacySection,
    Shield,
    SourceSection,
    TCloseness,
    WrongMap,
)
from support.policy_problems import Schema, load, only_problem, problems, schema

__all__ = ["schema"]  # fixtures

ATTRIBUTES: dict[str, Any] = {
    "name": {"role": "identifying"},
    "zip": {"role": "quasi", "hierarchy": {"mask": "right"}},
    "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10]}},
    "diagnosis": {"role": "sensitive", "hierarchy": {"table": "icd"}},
    "income": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
}

EVERYTHING = """
[source]
database = "hospital.duckdb"
table = "patients"
person = "patient_id"

[population]
table = "voters"
person = "voter_id"

[attributes]
zip       = { role = "quasi", hierarchy = { mask = "right" } }
age       = { role = "quasi", hierarchy = { intervals = [5, 10] } }
diagnosis = { role = "sensitive", hierarchy = { table = "icd" } }
income    = { role = "sensitive" }

[privacy]
k = 5
k_map = 6
average_risk = 0.05
sample_uniqueness = 0.01
delta_presence = { min = 0.0, max = 0.5 }
null_map = { max = 0.02 }
wrong_map = { max = 0.03 }
population_uniqueness = { limit = 0.01, population = 300000000, estimator = "pitman" }
[[privacy.k_anonymity]]
quasi = ["zip"]
k = 3
[[privacy.k_anonymity]]
quasi = ["zip", "age"]
k = 7
[[privacy.l_diversity]]
attribute = "diagnosis"
kind = "entropy"
l = 2.5
[[privacy.l_diversity]]
attribute = "diagnosis"
kind = "recursive"
l = 3
c = 4
joint = true
[[privacy.l_diversity]]
attribute = "income"
kind = "distinct"
l = 2
[[privacy.t_closeness]]
attribute = "diagnosis"
distance = "hierarchical"
t = 0.2
[[privacy.t_closeness]]
attribute = "income"
distance = "ordered"
t = 0.3
[[privacy.delta_disclosure]]
attribute = "diagnosis"
delta = 1.0
[[privacy.beta_likeness]]
attribute = "diagnosis"
kind = "basic"
beta = 2.0
[[privacy.alpha_k]]
attribute = "diagnosis"
alpha = 0.5
"""

EVERY_REQUIREMENT = PrivacySection(
    k=5,
    k_map=6,
    average_risk=0.05,
    sample_uniqueness=0.01,
    delta_presence=DeltaPresence(min=0.0, max=0.5),
    null_map=NullMap(max=0.02),
    wrong_map=WrongMap(max=0.03),
    population_uniqueness=PopulationUniqueness(limit=0.01, population=300_000_000, estimator="pitman"),
    k_anonymity=(Shield(quasi=("zip",), k=3), Shield(quasi=("zip", "age"), k=7)),
    l_diversity=(
        LDiversity(attribute="diagnosis", kind="entropy", l=2.5),
        LDiversity(attribute="diagnosis", kind="recursive", l=3, c=4, joint=True),
        LDiversity(attribute="income", kind="distinct", l=2),
    ),
    t_closeness=(
        TCloseness(attribute="diagnosis", distance="hierarchical", t=0.2),
        TCloseness(attribute="income", distance="ordered", t=0.3),
    ),
    delta_disclosure=(DeltaDisclosure(attribute="diagnosis", delta=1),),
    beta_likeness=(BetaLikeness(attribute="diagnosis", kind="basic", beta=2),),
    alpha_k=(AlphaK(attribute="diagnosis", alpha=0.5),),
)

# One sound requirement of each kind that is written as a table.
ONE_OF_EACH: dict[str, dict[str, Any]] = {
    "delta_presence": {"max": 0.5},
    "null_map": {"max": 0.01},
    "wrong_map": {"max": 0.01},
    "population_uniqueness": {"limit": 0.01, "population": 1000},
    "k_anonymity": {"quasi": ["zip"], "k": 3},
    "l_diversity": {"attribute": "diagnosis", "kind": "distinct", "l": 2},
    "t_closeness": {"attribute": "diagnosis", "distance": "equal", "t": 0.2},
    "delta_disclosure": {"attribute": "diagnosis", "delta": 1.0},
    "beta_likeness": {"attribute": "diagnosis", "beta": 2.0},
    "alpha_k": {"attribute": "diagnosis", "alpha": 0.5},
}
OF_POPULATION = ("k_map", "delta_presence", "null_map", "wrong_map")
LISTED = [kind for kind in ONE_OF_EACH if kind not in (*OF_POPULATION, "population_uniqueness")]


def tree(privacy: Any, **sections: Any) -> dict[str, Any]:
    """A policy around requirements, with a population where they need one; ``None`` leaves a section out."""
    needs_population = isinstance(privacy, dict) and any(kind in privacy for kind in OF_POPULATION)
    compares = isinstance(privacy, dict | PrivacySection) and dict(privacy).get("wrong_map") is not None
    who = {"person": "id"} if compares else {}
    sound = {
        "source": {"database": "hospital.duckdb", "table": "patients", **who},
        "population": {"table": "voters", **who} if needs_population else None,
        "attributes": ATTRIBUTES,
        "privacy": privacy,
    }
    return {key: value for key, value in {**sound, **sections}.items() if value is not None}


# --- reading -----------------------------------------------------------------------------------------


def test_every_key_is_read(tmp_path: Path) -> None:
    policy = load(tmp_path, EVERYTHING)
    assert policy.privacy == EVERY_REQUIREMENT
    assert policy.source.person == "patient_id"
    assert policy.population == PopulationSection(table="voters", person="voter_id")


def test_only_set_keys_are_requirements() -> None:
    assert Policy(**tree({"k": 5})).requirements == {"k": 5}
    closeness = ONE_OF_EACH["t_closeness"]
    policy = Policy(**tree({"average_risk": 0.1, "t_closeness": [closeness]}))
    assert policy.requirements == {"average_risk": 0.1, "t_closeness": (closeness,)}
    assert policy.privacy.k is None and policy.privacy.k_anonymity == ()


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_each_requirement_is_enough_by_itself(kind: str) -> None:
    assert set(Policy(**tree({kind: ONE_OF_EACH[kind]})).requirements) == {kind}


@pytest.mark.parametrize("privacy", [{}, {kind: [] for kind in LISTED}])
def test_policy_without_requirements_is_refused(privacy: dict[str, Any]) -> None:
    place, message = only_problem(**tree(privacy))
    assert place == "privacy"
    assert "at least one requirement" in message


def test_unset_privacy_keys_have_defaults() -> None:
    diversity = LDiversity(attribute="a", kind="entropy", l=2)
    assert (diversity.c, diversity.joint) == (None, False)
    assert BetaLikeness(attribute="a", beta=1).kind == "enhanced"
    assert DeltaPresence(max=1).min == 0
    assert PopulationUniqueness(limit=0, population=9).estimator == "dankar"
    assert SourceSection().person is None
    assert Policy(**tree({"k": 2})).population is None


@pytest.mark.parametrize("kind", LISTED)
def test_one_requirement_may_be_written_as_one_table(kind: str, tmp_path: Path) -> None:
    requirement = ONE_OF_EACH[kind]
    single, several = Policy(**tree({kind: requirement})), Policy(**tree({kind: [requirement]}))
    assert single == several
    assert len(getattr(single.privacy, kind)) == 1
    keys = "\n".join(f"{key} = {json.dumps(value)}" for key, value in requirement.items())
    roles = "\n".join(f'{name} = {{ role = "{spec["role"]}" }}' for name, spec in ATTRIBUTES.items() if name != "zip")
    roles = roles.replace('age = { role = "quasi" }', 'age = { role = "insensitive" }')
    text = f'[attributes]\nzip = {{ role = "quasi", hierarchy = "suppress" }}\n{roles}\n[privacy.{kind}]\n{keys}\n'
    assert load(tmp_path, text).privacy == single.privacy


def test_classes_and_tables_are_the_same() -> None:
    sections: dict[str, Any] = {"population": PopulationSection(table="voters", person="id")}
    as_tables = Policy(**tree(EVERY_REQUIREMENT.model_dump(), **sections))
    as_classes = Policy(**tree(EVERY_REQUIREMENT, **sections))
    mixed = Policy(**tree(dict(EVERY_REQUIREMENT), **sections))
    assert as_tables == as_classes == mixed
    assert as_tables.fingerprint() == as_classes.fingerprint() == mixed.fingerprint()


def test_requirements_do_not_change() -> None:
    with pytest.raises(ValidationError):
        EVERY_REQUIREMENT.l_diversity[0].l = 1


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("l_diversity", {"l": 1}),
        ("l_diversity", {"kind": "entropy", "l": 1}),
        ("l_diversity", {"kind": "entropy", "l": 2.5}),
        ("l_diversity", {"kind": "entropy", "l": 3.0}),
        ("l_diversity", {"kind": "recursive", "l": 1, "c": 0.1}),
        ("t_closeness", {"t": 0}),
        ("t_closeness", {"t": 1}),
        ("t_closeness", {"t": Decimal("0.2")}),
        ("t_closeness", {"distance": "hierarchical"}),
        ("delta_disclosure", {"delta": 100}),
        ("beta_likeness", {"beta": 1e-9}),
        ("alpha_k", {"alpha": 1}),
        ("delta_presence", {"min": 0.5, "max": 0.5}),
        ("delta_presence", {"max": 3}),
        ("population_uniqueness", {"limit": 0}),
        ("population_uniqueness", {"limit": 1, "population": 1}),
        ("population_uniqueness", {"population": None, "sampling_fraction": 1}),
    ],
)
def test_requirements_at_their_limits_are_allowed(kind: str, changes: dict[str, Any]) -> None:
    Policy(**tree({kind: {**ONE_OF_EACH[kind], **changes}}))


@pytest.mark.parametrize(
    "privacy", [{"average_risk": 1}, {"sample_uniqueness": 0}, {"sample_uniqueness": 1}, {"k": 1}, {"k_map": 1}]
)
def test_limits_of_the_table_that_are_just_allowed(privacy: dict[str, Any]) -> None:
    Policy(**tree(privacy))


OF_ONE_ATTRIBUTE = [kind for kind, requirement in ONE_OF_EACH.items() if "attribute" in requirement]


def of_several(kind: str, names: Any, **changes: Any) -> dict[str, Any]:
    """A requirement that names several attributes."""
    keys = {key: value for key, value in ONE_OF_EACH[kind].items() if key != "attribute"}
    return {"attributes": names, **keys, **changes}


@pytest.mark.parametrize("kind", OF_ONE_ATTRIBUTE)
def test_several_attributes_are_a_requirement_of_each(kind: str) -> None:
    lines = [{**ONE_OF_EACH[kind], "attribute": name} for name in ("income", "diagnosis")]
    two, joined = Policy(**tree({kind: lines})), Policy(**tree({kind: of_several(kind, ["income", "diagnosis"])}))
    assert joined == two and joined.fingerprint() == two.fingerprint() and joined.redact() == two.redact()
    assert Policy(**joined.model_dump(exclude_none=True)) == two
    mixed = Policy(**tree({kind: [of_several(kind, ("income",)), ONE_OF_EACH[kind]]}))
    assert mixed == two


def test_the_schema_knows_attribute_and_attributes() -> None:
    schema = Policy.model_json_schema()["$defs"]
    for kind in OF_ONE_ATTRIBUTE:
        part = schema[type(getattr(PrivacySection(**{kind: ONE_OF_EACH[kind]}), kind)[0]).__name__]
        assert list(part["properties"])[:2] == ["attribute", "attributes"]
        assert part["oneOf"] == [{"required": ["attribute"]}, {"required": ["attributes"]}]
        assert "attribute" not in part["required"]


def test_whole_numbers_stay_whole() -> None:
    policy = Policy(**tree(EVERY_REQUIREMENT, population=PopulationSection(table="voters", person="id")))
    document = json.loads(json.dumps(policy.model_dump(mode="json")["privacy"]))
    ls = [item["l"] for item in document["l_diversity"]]
    assert ls == [2.5, 3, 2] and list(map(type, ls)) == [float, int, int]
    assert type(document["population_uniqueness"]["population"]) is int
    assert type(policy.privacy.delta_disclosure[0].delta) is float


# --- mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "changes", "place", "words"),
    [
        ("k_anonymity", {"quasi": []}, ".quasi", "must not be empty"),
        ("k_anonymity", {"quasi": "zip"}, ".quasi", "must be a list"),
        ("k_anonymity", {"quasi": ["zip", ""]}, ".quasi[1]", "must not be empty"),
        ("k_anonymity", {"quasi": ["zip", 3]}, ".quasi[1]", "must be a text"),
        ("k_anonymity", {"quasi": ["zip", "aeg"]}, ".quasi[1]", "unknown attribute 'aeg'; did you mean 'age'?"),
        ("k_anonymity", {"quasi": ["Zip"]}, ".quasi[0]", "unknown attribute 'Zip'; did you mean 'zip'?"),
        ("k_anonymity", {"quasi": ["zip", "income"]}, ".quasi[1]", "'income' is sensitive"),
        ("k_anonymity", {"quasi": ["zip", "age", "zip"]}, ".quasi[2]", "'zip' is listed twice"),
        ("k_anonymity", {"k": 0}, ".k", "at least 1, not 0"),
        ("k_anonymity", {"k": 2.5}, ".k", "whole number, not 2.5"),
        ("k_anonymity", {"k": "3"}, ".k", "whole number, not the text '3'"),
        ("k_anonymity", {"quazi": ["zip"]}, ".quazi", "did you mean 'quasi'?"),
        ("l_diversity", {"attribute": "diagnosys"}, ".attribute", "did you mean 'diagnosis'?"),
        ("l_diversity", {"attribute": "Diagnosis"}, ".attribute", "did you mean 'diagnosis'?"),
        (
            "l_diversity",
            {"attribute": "qqq"},
            ".attribute",
            "unknown attribute 'qqq'; the sensitive attributes are diagnosis, income",
        ),
        (
            "l_diversity",
            {"attribute": "zap"},
            ".attribute",
            "unknown attribute 'zap'; the sensitive attributes are diagnosis, income",
        ),
        ("l_diversity", {"attribute": ""}, ".attribute", "must not be empty"),
        ("l_diversity", {"attribute": 5}, ".attribute", "must be a text"),
        ("l_diversity", {"attribute": "zip"}, ".attribute", "'zip' is quasi"),
        ("l_diversity", {"attribute": "cost"}, ".attribute", "'cost' is insensitive"),
        ("l_diversity", {"attribute": None}, ".attribute", "name a sensitive attribute, or several with attributes = "),
        ("l_diversity", {"attribute": ["diagnosis"]}, ".attribute", "must be one name: for several, write attributes"),
        ("l_diversity", {"attributes": ["income"]}, ".attributes", "attribute = ... or attributes = [...], not both"),
        ("l_diversity", {"kind": "entropie"}, ".kind", "did you mean 'entropy'?"),
        ("l_diversity", {"l": 0}, ".l", "at least 1, not 0"),
        ("l_diversity", {"l": 2.5}, ".l", 'whole number, not 2.5: only kind = "entropy"'),
        ("l_diversity", {"l": 2.0}, ".l", "whole number, not 2.0"),
        ("l_diversity", {"kind": "recursive", "c": 2, "l": 1.5}, ".l", "whole number, not 1.5"),
        ("l_diversity", {"kind": "entropy", "l": 0.9}, ".l", "at least 1, not 0.9"),
        ("l_diversity", {"l": "2"}, ".l", "must be a number, not '2'"),
        ("l_diversity", {"l": True}, ".l", "must be a number, not true"),
        ("l_diversity", {"kind": "entropy", "l": math.inf}, ".l", "finite"),
        ("l_diversity", {"kind": "entropy", "l": math.nan}, ".l", "finite"),
        ("l_diversity", {"l": 10**400}, ".l", "out of range"),
        ("l_diversity", {"kind": "recursive"}, ".c", "is missing: recursive"),
        ("l_diversity", {"kind": "recursive", "c": 0}, ".c", "more than 0, not 0"),
        ("l_diversity", {"kind": "recursive", "c": "4"}, ".c", "must be a number, not '4'"),
        ("l_diversity", {"c": 4}, ".c", "this one is distinct: leave it out"),
        ("l_diversity", {"kind": "entropy", "c": 4}, ".c", "this one is entropy: leave it out"),
        ("l_diversity", {"joint": "yes"}, ".joint", "must be true or false, not 'yes'"),
        ("l_diversity", {"joint": 1}, ".joint", "must be true or false, not 1"),
        ("t_closeness", {"distance": "hierarchic"}, ".distance", "did you mean 'hierarchical'?"),
        ("t_closeness", {"attribute": "income", "distance": "hierarchical"}, ".distance", "needs a hierarchy"),
        ("t_closeness", {"t": -0.1}, ".t", "at least 0, not -0.1"),
        ("t_closeness", {"t": 1.1}, ".t", "at most 1, not 1.1"),
        ("t_closeness", {"t": math.nan}, ".t", "finite number, not nan"),
        ("t_closeness", {"t": math.inf}, ".t", "finite number, not inf"),
        ("t_closeness", {"t": False}, ".t", "must be a number, not false"),
        ("t_closeness", {"t": "0.2"}, ".t", "must be a number, not '0.2'"),
        ("delta_disclosure", {"delta": 0}, ".delta", "more than 0, not 0"),
        ("delta_disclosure", {"delta": math.inf}, ".delta", "finite"),
        ("delta_disclosure", {"delta": Decimal("1e399")}, ".delta", "out of range"),
        ("beta_likeness", {"beta": -1}, ".beta", "more than 0, not -1"),
        ("beta_likeness", {"kind": "simple"}, ".kind", "must be one of basic, enhanced"),
        ("alpha_k", {"alpha": 0}, ".alpha", "more than 0, not 0"),
        ("alpha_k", {"alpha": 1.5}, ".alpha", "at most 1, not 1.5"),
        ("delta_presence", {"min": -0.1}, ".min", "at least 0, not -0.1"),
        ("delta_presence", {"min": 0.6}, ".min", "0.6 is greater than max, 0.5"),
        ("delta_presence", {"max": True}, ".max", "must be a number, not true"),
        ("population_uniqueness", {"limit": 1.5}, ".limit", "at most 1"),
        ("population_uniqueness", {"population": 0}, ".population", "at least 1"),
        ("population_uniqueness", {"population": 1e6}, ".population", "whole number"),
        ("population_uniqueness", {"population": 10**400}, ".population", "at most 9223372036854775807"),
        ("population_uniqueness", {"population": None}, "", "population = ... (its rows) or sampling_fraction = ..."),
        ("population_uniqueness", {"sampling_fraction": 0.1}, ".sampling_fraction", "not both"),
        (
            "population_uniqueness",
            {"population": None, "sampling_fraction": 0},
            ".sampling_fraction",
            "more than 0, not 0",
        ),
        ("population_uniqueness", {"estimator": "danker"}, ".estimator", "did you mean 'dankar'?"),
    ],
)
def test_mistakes_of_a_requirement_are_named(kind: str, changes: dict[str, Any], place: str, words: str) -> None:
    requirement = ONE_OF_EACH[kind]
    wrong = {key: value for key, value in {**requirement, **changes}.items() if value is not None}
    where, message = only_problem(**tree({kind: wrong}))
    assert where == f"privacy.{kind}{place}"
    assert words in message
    if kind in LISTED:  # in a list the place has its number
        assert only_problem(**tree({kind: [requirement, wrong]})) == (f"privacy.{kind}[1]{place}", message)


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_missing_keys_of_a_requirement_are_named(kind: str) -> None:
    mistakes = dict(problems(**tree({kind: {}})))
    needed = set(ONE_OF_EACH[kind]) - {"population"}
    assert set(mistakes) == {f"privacy.{kind}.{key}" for key in needed}
    assert all(message.startswith("is missing: ") for message in mistakes.values())


@pytest.mark.parametrize("kind", ONE_OF_EACH)
@pytest.mark.parametrize("wrong", [5, "distinct"])
def test_a_requirement_must_be_a_table(kind: str, wrong: Any) -> None:
    place, message = only_problem(**tree({kind: wrong}))
    assert place == f"privacy.{kind}"
    assert message.startswith("must be a table, not ")


@pytest.mark.parametrize(
    ("privacy", "place", "words"),
    [
        ({"k_map": 0}, "k_map", "at least 1"),
        ({"k_map": 2.0}, "k_map", "whole number"),
        ({"average_risk": 0}, "average_risk", "more than 0, not 0"),
        ({"average_risk": 1.01}, "average_risk", "at most 1"),
        ({"average_risk": "5%"}, "average_risk", "must be a number, not '5%'"),
        ({"sample_uniqueness": -1}, "sample_uniqueness", "at least 0"),
        ({"sample_uniqueness": True}, "sample_uniqueness", "must be a number, not true"),
        ({"sample_uniqueness": math.nan}, "sample_uniqueness", "finite"),
        ({"l_divresity": []}, "l_divresity", "unknown key 'l_divresity'; did you mean 'l_diversity'?"),
    ],
)
def test_mistakes_of_the_privacy_section_are_named(privacy: dict[str, Any], place: str, words: str) -> None:
    where, message = only_problem(**tree(privacy))
    assert where == f"privacy.{place}"
    assert words in message


@pytest.mark.parametrize(
    ("names", "changes", "place", "words"),
    [
        (["diagnosis", "incom"], {}, ".attributes[1]", "unknown attribute 'incom'; did you mean 'income'?"),
        (["zip", "income"], {}, ".attributes[0]", "'zip' is quasi"),
        (["income", "diagnosis", "income"], {}, ".attributes[2]", "'income' is listed twice"),
        (["income", 3], {}, ".attributes[1]", "must be the name of an attribute, not 3"),
        ([""], {}, ".attributes[0]", "must be the name of an attribute, not ''"),
        ([], {}, ".attributes", "must not be empty"),
        ("income", {}, ".attributes", "must be a list of names, not 'income'"),
        (["income", "diagnosis"], {"distance": "hierarchical"}, ".distance", "needs a hierarchy of 'income'"),
        (["income", "diagnosis"], {"t": 2}, ".t", "at most 1, not 2"),
        (["income", "diagnosis"], {"tt": 2}, ".tt", "unknown key 'tt'"),
    ],
)
def test_mistakes_of_several_attributes_are_reported_once(
    names: Any, changes: dict[str, Any], place: str, words: str
) -> None:
    """Each is reported once, where it is written."""
    lines = [ONE_OF_EACH["t_closeness"], of_several("t_closeness", names, **changes)]
    mistake = only_problem(**tree({"t_closeness": lines}))
    assert mistake[0] == f"privacy.t_closeness[1]{place}"
    assert words in mistake[1]


def test_alpha_k_refuses_an_undeclared_attribute() -> None:
    attributes = {"zip": ATTRIBUTES["zip"]}
    place, message = only_problem(**tree({"alpha_k": ONE_OF_EACH["alpha_k"]}, attributes=attributes))
    assert place == "privacy.alpha_k.attribute"
    assert "unknown attribute 'diagnosis'; declare it under [attributes]" in message


def test_joint_diversity_needs_another_sensitive_attribute() -> None:
    joint = {**ONE_OF_EACH["l_diversity"], "joint": True}
    Policy(**tree({"l_diversity": joint}))
    alone = {name: spec for name, spec in ATTRIBUTES.items() if name != "income"}
    place, message = only_problem(**tree({"l_diversity": joint}, attributes=alone))
    assert place == "privacy.l_diversity.joint"
    assert "a second sensitive attribute besides 'diagnosis'" in message


def test_all_mistakes_show_at_once_each_with_its_place(tmp_path: Path) -> None:
    text = (
        EVERYTHING.replace("k_map = 6", "k_map = 0")
        .replace("max = 0.5 }", "max = 0.5, mox = 1 }")
        .replace('["zip", "age"]', '["zip", "zip", "income", "ego"]')
        .replace('attribute = "income"\nkind = "distinct"\nl = 2', 'attribute = "incom"\nkind = "distinct"\nl = 2.5')
        .replace("c = 4\n", "")
        .replace('"hierarchical"', '"hierarchic"')
        .replace('attribute = "income"\ndistance = "ordered"', 'attribute = "income"\ndistance = "hierarchical"')
        .replace("delta = 1.0", 'delta = "1.0"')
        .replace("alpha = 0.5", "alpha = nan")
        .replace('person = "patient_id"', 'person = "income"')
        .replace('table = "voters"', 'files = "voters.csv"\ntable = "voters"')
    )
    with pytest.raises(PolicyError) as caught:
        load(tmp_path, text)
    assert [problem.place for problem in caught.value.problems] == [
        "population.table",
        "privacy.k_map",
        "privacy.delta_presence.mox",
        "privacy.l_diversity[1].c",
        "privacy.l_diversity[2].l",
        "privacy.t_closeness[0].distance",
        "privacy.delta_disclosure[0].delta",
        "privacy.alpha_k[0].alpha",
        "privacy.l_diversity[2].attribute",
        "privacy.t_closeness[1].distance",
        "privacy.k_anonymity[1].quasi[1]",
        "privacy.k_anonymity[1].quasi[2]",
        "privacy.k_anonymity[1].quasi[3]",
        "source.person",
    ]


@pytest.mark.parametrize(
    ("attributes", "places"),
    [
        (None, ["attributes"]),
        ("zip", ["attributes"]),
        ({**ATTRIBUTES, "diagnosis": {"role": "sensitif"}}, ["attributes.diagnosis.role"]),
        ({**ATTRIBUTES, "zip": {"role": "quasi"}}, ["attributes.zip"]),
    ],
)
def test_a_mistake_in_the_attributes_makes_no_other(attributes: Any, places: list[str]) -> None:
    privacy = {"l_diversity": {**ONE_OF_EACH["l_diversity"], "joint": True}, "k_anonymity": ONE_OF_EACH["k_anonymity"]}
    assert [place for place, _ in problems(**tree(privacy, attributes=attributes))] == places


def test_an_attribute_that_may_be_meant_to_be_sensitive_counts_for_joint() -> None:
    privacy = {"l_diversity": {**ONE_OF_EACH["l_diversity"], "joint": True}}
    attributes = {**ATTRIBUTES, "income": {"role": "sensitif"}}
    assert [place for place, _ in problems(**tree(privacy, attributes=attributes))] == ["attributes.income.role"]


# --- population --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "population",
    [
        {"table": "voters"},
        {"query": "SELECT * FROM voters"},
        {"database": "state.duckdb", "table": "voters"},
        {"database": "state.duckdb", "query": "SELECT * FROM voters"},
        {"files": ["voters/*.csv"]},
        {"files": "voters.csv", "person": "id"},
    ],
)
def test_a_population_accepts_each_kind_of_source(population: dict[str, Any]) -> None:
    policy = Policy(**tree({"k_map": 2}, population=population))
    assert policy.population is not None
    assert set(policy.population.model_dump(exclude_defaults=True)) == set(population)


def test_the_files_of_a_population_are_beside_the_policy(tmp_path: Path) -> None:
    text = EVERYTHING.replace('table = "voters"', 'files = ["voters/*.csv"]')
    population = load(tmp_path, text).population
    assert population is not None and population.files == (f"{tmp_path}/voters/*.csv",)


@pytest.mark.parametrize(
    ("population", "place", "words"),
    [
        ({}, "", "names no table: add table = ..., query = ... or files = ..."),
        ({"person": "id"}, "", "names no table"),
        ({"database": "a.duckdb"}, "", "names a database but no table"),
        ({"table": "t", "query": "q"}, ".query", "not both"),
        ({"files": "a.csv", "table": "t"}, ".table", "not both"),
        ({"files": "a.csv", "query": "q"}, ".query", "applies to a database"),
        ({"database": "a.duckdb", "table": "t", "files": "a.csv"}, ".files", "not both"),
        ({"table": ""}, ".table", "must not be empty"),
        ({"table": "t", "person": ""}, ".person", "must not be empty"),
        ({"tabel": "t"}, ".tabel", "did you mean 'table'?"),
        ({"table": "t", "undeclared": "drop"}, ".undeclared", "unknown key"),
        ("voters", "", "must be a table, not 'voters'"),
    ],
)
def test_mistakes_of_a_population_are_named(population: Any, place: str, words: str) -> None:
    mistakes = problems(**tree({"k_map": 2}, population=population))
    assert mistakes[0][0] == f"population{place}"
    assert words in mistakes[0][1]
    assert all(where.startswith("population") for where, _ in mistakes)


@pytest.mark.parametrize("kind", OF_POPULATION)
def test_population_requirements_need_a_population_section(kind: str) -> None:
    privacy = {"k_map": 2, "delta_presence": {"max": 1}, "null_map": {"max": 0}, "wrong_map": {"max": 0}}
    place, message = only_problem(**tree({kind: privacy[kind]}) | {"population": None})
    assert place == f"privacy.{kind}"
    assert "add [population]" in message
    assert len(problems(**tree(privacy) | {"population": None})) == 4


@pytest.mark.parametrize("section", ["source", "population"])
def test_wrong_map_needs_persons_in_both_tables(section: str) -> None:
    sections = tree({"wrong_map": {"max": 0}})
    del sections[section]["person"]
    place, message = only_problem(**sections)
    assert (place, message) == ("privacy.wrong_map", f"compares persons: add person = ... to [{section}]")


@pytest.mark.parametrize("privacy", [{"k": 5}, {"population_uniqueness": ONE_OF_EACH["population_uniqueness"]}])
def test_an_unused_population_is_refused(privacy: dict[str, Any]) -> None:
    place, message = only_problem(**tree(privacy, population={"table": "voters"}))
    assert place == "population"
    assert "is not used: only k_map and delta_presence" in message


def test_a_misspelled_name_is_not_missing_too() -> None:
    sections = tree({"k_map": 2}) | {"population": None, "popluation": {"table": "voters"}}
    assert [place for place, _ in problems(**sections)] == ["popluation"]
    sections = tree({"k": 2, "k_mpa": 2}, population={"table": "voters"})
    assert [place for place, _ in problems(**sections)] == ["privacy.k_mpa"]


def test_masked_rows_cannot_be_compared_with_a_population() -> None:
    masked = {"database": "release.duckdb", "suppressed": "mask"}
    Policy(**tree({"k_map": 2}, release=masked))
    place, message = only_problem(**tree({"delta_presence": {"max": 0.5}}, release=masked))
    assert place == "release.suppressed"
    assert "masked" in message and "delta_presence" in message
    Policy(**tree({"delta_presence": {"max": 0.5}}, release={**masked, "suppressed": "drop"}))


@pytest.mark.parametrize(
    ("population", "output", "place"),
    [
        ({"database": "v.duckdb", "table": "t"}, {"release": {"database": "./v.duckdb"}}, "release.database"),
        ({"database": "v.duckdb", "table": "t"}, {"release": {"database": "link.duckdb"}}, "release.database"),
        ({"database": "v.duckdb", "table": "t"}, {"release": {"database": "hard.duckdb"}}, "release.database"),
        ({"database": "v.duckdb", "table": "t"}, {"catalog": {"database": "v.duckdb"}}, "catalog.database"),
        ({"files": "p/*.parquet"}, {"release": {"file": "p/out.parquet"}}, "release.file"),
        ({"files": "p/*.parquet"}, {"release": {"file": "out.parquet"}}, None),
        ({"database": "v.duckdb", "table": "t"}, {"release": {"database": "w.duckdb"}}, None),
    ],
)
def test_a_population_is_not_written(
    population: dict[str, Any],
    output: dict[str, Any],
    place: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v.duckdb").touch()
    (tmp_path / "link.duckdb").symlink_to("v.duckdb")
    os.link("v.duckdb", "hard.duckdb")
    sections = tree({"k_map": 2}, population=population, **output)
    if place is None:
        Policy(**sections)
        return
    where, message = only_problem(**sections)
    assert where == place
    assert "is the population" in message


def test_a_population_in_the_source_is_named_once() -> None:
    population = {"database": "hospital.duckdb", "table": "voters"}
    place, message = only_problem(**tree({"k_map": 2}, population=population, release={"database": "hospital.duckdb"}))
    assert place == "release.database"
    assert "is the source" in message


# --- persons -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("person", ["patient_id", "name", "NAME"])
def test_any_name_can_be_the_person_column(person: str) -> None:
    assert Policy(**tree({"k": 2}, source={"table": "t", "person": person})).source.person == person


def test_false_states_that_each_row_is_a_person() -> None:
    source = Policy(**tree({"k": 2}, source={"table": "t", "person": False})).source
    assert source.person is False
    assert source.person_column is None


@pytest.mark.parametrize(
    ("person", "words"),
    [
        ("zip", "'zip' is a quasi-identifier"),
        ("ZIP", "'zip' is a quasi-identifier"),
        ("income", "'income' is declared sensitive"),
        ("cost", "'cost' is declared insensitive"),
        ("", "must be the name of a column, or false"),
        (5, "must be the name of a column, or false"),
        (True, "must be the name of a column, or false"),
    ],
)
def test_mistakes_of_the_person_column_are_named(person: Any, words: str) -> None:
    place, message = only_problem(**tree({"k": 2}, source={"table": "t", "person": person}))
    assert place == "source.person"
    assert words in message


def test_population_person_cannot_be_quasi_identifier() -> None:
    # A population has columns for the quasi attributes only: another of its columns may have any name.
    Policy(**tree({"k_map": 2}, population={"table": "voters", "person": "income"}))
    place, message = only_problem(**tree({"k_map": 2}, population={"table": "voters", "person": "Age"}))
    assert place == "population.person"
    assert "'age' is a quasi-identifier" in message


# --- what is written can be read ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["python", "json"])
def test_a_policy_of_everything_is_written_and_read(mode: str, tmp_path: Path) -> None:
    policy = load(tmp_path, EVERYTHING)
    document = policy.model_dump(mode=mode)
    assert Policy(**(json.loads(json.dumps(document)) if mode == "json" else document)) == policy
    # Keys unset in the policy are unset in the dump.
    assert set(Policy(**tree({"k": 2})).model_dump(mode=mode, exclude_none=True)["privacy"]) == {"k"}


_PARTS = (*ONE_OF_EACH.values(), {"c": 2.0, "joint": True, "kind": "recursive", "min": 0.1, "sampling_fraction": 0.5})
_KEYS = st.sampled_from([*{key for part in _PARTS for key in part}, *PrivacySection.model_fields, "x"])
_WORDS = st.sampled_from([*ATTRIBUTES, "entropy", "recursive", "ordered", "hierarchical", "basic", "snb", "voters", ""])
_SCALARS = _WORDS | st.booleans() | st.none() | st.integers(-1, 5) | st.floats() | st.decimals() | st.binary()
_VALUES = _SCALARS | st.lists(_SCALARS, max_size=3)
_LOOSE = st.dictionaries(_KEYS, _VALUES, max_size=5)


def _requirement(kind: str) -> st.SearchStrategy[Any]:
    """A sound requirement with some of its keys changed, a list of these, or anything."""
    changed = st.dictionaries(_KEYS, _VALUES, max_size=2).map(lambda changes: {**ONE_OF_EACH[kind], **changes})
    return changed | st.lists(changed | _LOOSE, max_size=2) | _LOOSE | _VALUES


@given(
    privacy=st.fixed_dictionaries({}, optional={kind: _requirement(kind) for kind in ONE_OF_EACH})
    | st.dictionaries(st.sampled_from([*PrivacySection.model_fields]), _VALUES, max_size=3),
    population=st.none() | st.dictionaries(st.sampled_from([*PopulationSection.model_fields]), _VALUES, max_size=2),
    person=_VALUES,
)
def test_any_tree_gives_a_policy_or_its_problems(privacy: dict[str, Any], population: Any, person: Any) -> None:
    sections = tree(privacy, source={"table": "t", "person": person})
    try:
        policy = Policy(**(sections if population is None else sections | {"population": population}))
    except PolicyError as error:
        assert all(problem.message for problem in error.problems)
    else:
        json.dumps(policy.redact(), allow_nan=False)
        assert Policy(**policy.model_dump()) == policy
        as_json = json.loads(json.dumps(policy.model_dump(mode="json"), allow_nan=False))
        assert Policy(**as_json).fingerprint() == policy.fingerprint()


# --- fingerprint -------------------------------------------------------------------------------------


def test_a_policy_without_the_new_keys_has_the_fingerprint_that_it_had() -> None:
    policy = Policy(
        source={"database": "hospital.duckdb", "table": "patients", "undeclared": "drop"},
        attributes={
            "name": {"role": "identifying"},
            "zip": {"role": "quasi", "hierarchy": [{"mask": "right", "levels": 2}, {"file": "zip.csv"}], "weight": 2},
            "age": {"role": "quasi", "hierarchy": {"intervals": [5, 10], "below": 0}, "max_level": 2},
            "diagnosis": {"role": "sensitive", "hierarchy": {"table": "icd"}},
        },
        privacy={"k": 5},
        search={"suppression_limit": 0.29},
        release={"database": "release.duckdb", "suppressed": "mask"},
        catalog={"database": "private.duckdb"},
    )
    # Made by the version before the requirements beyond k: releases of that time stay the policy's own.
    assert policy.fingerprint() == "13aa09f2d83601d0255701ec512815202f6519e8e0c181d6f668a52118a0f5cd"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("k_map = 6", "k_map = 7"),
        ("average_risk = 0.05", "average_risk = 0.06"),
        ("sample_uniqueness = 0.01", "sample_uniqueness = 0.02"),
        ("min = 0.0", "min = 0.1"),
        ("population = 300000000", "sampling_fraction = 0.5"),
        ('"pitman"', '"snb"'),
        ('quasi = ["zip"]', 'quasi = ["age"]'),
        ("l = 2.5", "l = 2.6"),
        ("c = 4", "c = 5"),
        ("joint = true", "joint = false"),
        ('"ordered"', '"equal"'),
        ("delta = 1.0", "delta = 1.1"),
        ('"basic"', '"enhanced"'),
        ("alpha = 0.5", "alpha = 0.6"),
        ('person = "patient_id"', 'person = "insured_id"'),
        ('table = "voters"', 'table = "citizens"'),
    ],
)
def test_the_fingerprint_is_that_of_the_requirements(old: str, new: str, tmp_path: Path) -> None:
    assert EVERYTHING.count(old) == 1
    fingerprint = load(tmp_path, EVERYTHING).fingerprint()
    assert load(tmp_path, EVERYTHING.replace(old, new)).fingerprint() != fingerprint


def test_equal_numbers_have_one_fingerprint_and_folders_none(tmp_path: Path) -> None:
    text = EVERYTHING.replace("l = 2.5", "l = 2").replace('table = "voters"', 'files = "voters.csv"')
    assert "l = 2\n" in text and "files" in text
    rewritten = text.replace("l = 2\n", "l = 2.0\n", 1).replace("delta = 1.0", "delta = 1").replace("c = 4", "c = 4.0")
    (tmp_path / "moved").mkdir()
    assert load(tmp_path, text).fingerprint() == load(tmp_path / "moved", rewritten).fingerprint()


# --- redaction ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "population",
    [
        {"database": "/data/secret_state.duckdb", "table": "secret_voters"},
        {"query": "SELECT secret_column FROM secret_voters"},
        {"files": "/data/secret_voters/*.csv"},
    ],
)
def test_a_redacted_policy_shows_the_requirements_and_no_name_beyond_attributes(population: dict[str, Any]) -> None:
    policy = Policy(
        source={"database": "/data/secret.duckdb", "table": "secret_patients", "person": "secret_patient"},
        population={**population, "person": "secret_voter"},
        attributes=ATTRIBUTES,
        privacy=EVERY_REQUIREMENT,
    )
    redacted = policy.redact()
    text = json.dumps(redacted, allow_nan=False)
    assert "secret" not in text and "SELECT" not in text and "/data" not in text
    assert redacted["persons"] is True and redacted["population"] is True
    assert set(redacted) == {"undeclared", "persons", "population", "attributes", "privacy", "search", "suppressed"}
    # All requirements, with all parameters: what reads a manifest can make them again.
    assert PrivacySection.model_validate(redacted["privacy"]) == EVERY_REQUIREMENT
    assert redacted["privacy"]["l_diversity"][1] == {
        "attribute": "diagnosis",
        "kind": "recursive",
        "l": 3,
        "c": 4.0,
        "joint": True,
    }


def test_a_redacted_policy_shows_only_set_requirements() -> None:
    redacted = Policy(**tree({"alpha_k": ONE_OF_EACH["alpha_k"]})).redact()
    assert redacted["privacy"] == {"alpha_k": [ONE_OF_EACH["alpha_k"]]}
    assert redacted["persons"] is False and redacted["population"] is False


# --- schema ------------------------------------------------------------------------------------------


def test_json_schema_accepts_valid_requirements(schema: Schema) -> None:
    sections = tree(
        EVERY_REQUIREMENT.model_dump(mode="json"),
        population={"files": "voters.csv", "person": "id"},
        source={"table": "t", "person": "id"},
    )
    assert schema.accepts(json.loads(json.dumps(sections)))
    for kind, requirement in ONE_OF_EACH.items():
        assert schema.accepts(tree({kind: requirement})), kind
    for kind in OF_ONE_ATTRIBUTE:
        assert schema.accepts(tree({kind: [of_several(kind, ["diagnosis", "income"])]})), kind


@pytest.mark.parametrize(
    ("privacy", "sections"),
    [
        ({"k_mpa": 3}, {}),
        ({"k_map": 0}, {}),
        ({"average_risk": 0}, {}),
        ({"sample_uniqueness": 1.5}, {}),
        ({"delta_presence": {"min": 0.1}}, {}),
        ({"k_anonymity": {"quasi": [], "k": 2}}, {}),
        ({"l_diversity": {**ONE_OF_EACH["l_diversity"], "l": 0.5}}, {}),
        ({"l_diversity": [{**ONE_OF_EACH["l_diversity"], "kind": "entropie"}]}, {}),
        ({"l_diversity": [{**ONE_OF_EACH["l_diversity"], "joint": "yes"}]}, {}),
        ({"l_diversity": of_several("l_diversity", [])}, {}),
        ({"l_diversity": of_several("l_diversity", ["income", "income"])}, {}),
        ({"l_diversity": of_several("l_diversity", ["income"], attribute="income")}, {}),
        ({"t_closeness": {**ONE_OF_EACH["t_closeness"], "t": "0.2"}}, {}),
        ({"beta_likeness": {**ONE_OF_EACH["beta_likeness"], "beta": 0}}, {}),
        ({"population_uniqueness": {**ONE_OF_EACH["population_uniqueness"], "estimator": "x"}}, {}),
        ({"k_map": 2}, {"population": {"tabel": "t"}}),
        ({"k_map": 2}, {"population": {"table": "t", "undeclared": "drop"}}),
        ({"k": 2}, {"source": {"table": "t", "person": ""}}),
    ],
)
def test_json_schema_refuses_invalid_requirements(
    privacy: dict[str, Any], sections: dict[str, Any], schema: Schema
) -> None:
    wrong = tree(privacy, **sections)
    assert problems(**wrong)
    assert not schema.accepts(wrong)


def test_the_json_schema_explains_every_key(schema: Schema) -> None:
    budget_keys = {"epsilon", "epsilon_total", "linkable_noise", "confidence", "dependencies"}
    assert set(schema.whole["$defs"]["PrivacySection"]["properties"]) == {*EVERY_REQUIREMENT.requirements, *budget_keys}
    names = ("PrivacySection", "PopulationSection", "Shield", "LDiversity", "TCloseness", "DeltaPresence")
    for name in (*names, "DeltaDisclosure", "BetaLikeness", "AlphaK", "PopulationUniqueness"):
        part = schema.whole["$defs"][name]
        assert all(field["description"] for field in part["properties"].values()), name
        assert part["additionalProperties"] is False
