"""The policy: what it accepts, and what it says when something is wrong."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sqlanon.errors import PolicyError
from sqlanon.policy import (
    Attribute,
    CatalogSection,
    CategoriesRule,
    DatesRule,
    FileRule,
    IntervalsRule,
    MaskRule,
    Policy,
    PrivacySection,
    ReleaseSection,
    SearchSection,
    SourceSection,
    SuppressRule,
    TableRule,
)

# The policy of the contract, as far as this version goes.
CONTRACT = """
[source]
database = "hospital.duckdb"
table = "patients"
undeclared = "error"

[attributes]
name      = { role = "identifying" }
zip       = { role = "quasi", hierarchy = { mask = "right" } }
age       = { role = "quasi", hierarchy = { intervals = [5, 10, 20, 40] } }
birth     = { role = "quasi", hierarchy = { dates = ["month", "year", "decade"] } }
education = { role = "quasi", hierarchy = { file = "hierarchy_education.csv" }, weight = 2.0 }
country   = { role = "quasi", hierarchy = { table = "geo_country" } }
sex       = { role = "quasi", hierarchy = "suppress" }
diagnosis = { role = "sensitive" }
cost      = { role = "insensitive" }

[privacy]
k = 5

[search]
strategy = "optimal"
suppression_limit = 0.29
measure = "loss"
aggregate = "mean"

[release]
database = "release.duckdb"
table = "patients"
suppressed = "drop"

[catalog]
database = "private.duckdb"
"""


def tree(**changes: Any) -> dict[str, Any]:
    """A small sound policy, with sections replaced; ``None`` leaves one out."""
    sound = {
        "attributes": {"zip": {"role": "quasi", "hierarchy": {"mask": "right"}}},
        "privacy": {"k": 5},
    }
    return {key: value for key, value in {**sound, **changes}.items() if value is not None}


def zip_with(**keys: Any) -> dict[str, Any]:
    return tree(attributes={"zip": {"role": "quasi", "hierarchy": "suppress", **keys}})


def hierarchy(spec: Any) -> tuple[Any, ...]:
    rules = Policy(**zip_with(hierarchy=spec)).attributes["zip"].hierarchy
    assert rules is not None
    return rules


def problems(**sections: Any) -> dict[str, str]:
    """The problems of a policy by place; two at one place fail the test."""
    with pytest.raises(PolicyError) as caught:
        Policy(**sections)
    reported = caught.value.problems
    by_place = {problem.place: problem.message for problem in reported}
    assert len(by_place) == len(reported), reported
    return by_place


def only_problem(**sections: Any) -> tuple[str, str]:
    mistakes = problems(**sections)
    assert len(mistakes) == 1, mistakes
    return next(iter(mistakes.items()))


def write(folder: Path, text: str, name: str = "policy.toml") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


# --- reading -----------------------------------------------------------------------------------------


def test_the_policy_of_the_contract_loads(tmp_path: Path) -> None:
    policy = Policy.load(write(tmp_path, CONTRACT))
    assert policy.quasi_identifiers == ("zip", "age", "birth", "education", "country", "sex")
    assert policy.attributes_with_role("identifying") == ("name",)
    assert policy.attributes_with_role("sensitive") == ("diagnosis",)
    assert policy.attributes_with_role("insensitive") == ("cost",)
    assert policy.requirements == {"k": 5}
    rules = [policy.attributes[name].hierarchy for name in policy.quasi_identifiers]
    assert rules == [
        (MaskRule(mask="right"),),
        (IntervalsRule(widths=(Decimal(5), Decimal(10), Decimal(20), Decimal(40))),),
        (DatesRule(dates=("month", "year", "decade")),),
        (FileRule(file=tmp_path / "hierarchy_education.csv"),),
        (TableRule(table="geo_country"),),
        (SuppressRule(),),
    ]
    assert policy.attributes["education"].weight == 2.0
    assert policy.source.database == tmp_path / "hospital.duckdb"
    assert policy.release == ReleaseSection(database=tmp_path / "release.duckdb", table="patients")
    assert policy.catalog == CatalogSection(database=tmp_path / "private.duckdb")


def test_unset_keys_have_defaults() -> None:
    policy = Policy(**tree())
    assert policy.search == SearchSection()
    assert (policy.search.strategy, policy.search.measure, policy.search.aggregate) == (
        "optimal",
        "loss",
        "mean",
    )
    assert policy.search.suppression_limit == 0
    assert policy.source.undeclared == "error"
    assert (policy.release, policy.catalog) == (None, None)
    attribute = policy.attributes["zip"]
    assert (attribute.weight, attribute.on_unknown) == (1.0, "error")
    assert (attribute.min_level, attribute.max_level) == (0, None)


def test_a_tree_a_file_and_classes_give_the_same_policy(tmp_path: Path) -> None:
    loaded = Policy.load(
        write(
            tmp_path,
            """
            source = { files = "data/*.parquet" }
            attributes.zip.role = "quasi"
            attributes.zip.hierarchy = [{ mask = "right", levels = 2 }, { file = "z.csv" }]
            privacy.k = 3
            search = { suppression_limit = 0.05 }
            release.file = "out.parquet"
            """,
        )
    )
    from_tree = Policy(
        source={"files": [f"{tmp_path}/data/*.parquet"]},
        attributes={
            "zip": {
                "role": "quasi",
                "hierarchy": [{"mask": "right", "levels": 2}, {"file": str(tmp_path / "z.csv")}],
            }
        },
        privacy={"k": 3},
        search={"suppression_limit": Decimal("0.05")},
        release={"file": tmp_path / "out.parquet"},
        catalog={"database": tmp_path / "sqlanon.catalog.duckdb"},
    )
    from_classes = Policy(
        source=SourceSection(files=(f"{tmp_path}/data/*.parquet",)),
        attributes={
            "zip": Attribute(
                role="quasi", hierarchy=(MaskRule(mask="right", levels=2), FileRule(file=tmp_path / "z.csv"))
            )
        },
        privacy=PrivacySection(k=3),
        search=SearchSection(suppression_limit=Decimal("0.05")),
        release=ReleaseSection(file=tmp_path / "out.parquet"),
        catalog=CatalogSection(database=tmp_path / "sqlanon.catalog.duckdb"),
    )
    assert loaded == from_tree == from_classes
    assert loaded.fingerprint() == from_tree.fingerprint() == from_classes.fingerprint()


@pytest.mark.parametrize("mode", ["python", "json"])
@pytest.mark.parametrize("measure", ["loss", "entropy"])
def test_a_written_policy_can_be_read(mode: str, measure: str) -> None:
    policy = Policy(
        source={"database": "a.duckdb", "table": "t"},
        attributes={
            "a": {"role": "quasi", "hierarchy": [{"intervals": [0.1, 0.5], "below": -1}, "suppress"]},
            "b": {"role": "quasi", "hierarchy": {"categories": {"x": ["p"], "y": ["q", 3]}}, "max_level": 2},
            "c": {"role": "sensitive"},
        },
        privacy={"k": 2},
        search={"measure": measure},
        release={"database": "r.duckdb"},
    )
    assert Policy(**policy.model_dump(mode=mode)) == policy


def test_the_order_of_attributes_is_kept(tmp_path: Path) -> None:
    lines = "\n".join(f'{name} = {{ role = "quasi", hierarchy = "suppress" }}' for name in "zaxm")
    policy = Policy.load(write(tmp_path, f"[attributes]\n{lines}\n[privacy]\nk = 2\n"))
    assert policy.quasi_identifiers == ("z", "a", "x", "m")


def test_a_policy_does_not_change() -> None:
    policy = Policy(**tree())
    with pytest.raises(ValidationError):
        policy.privacy = PrivacySection(k=2)


def test_the_suppression_limit_is_exact(tmp_path: Path) -> None:
    text = 'attributes.zip = { role = "quasi", hierarchy = "suppress" }\nprivacy.k = 2\n'
    policy = Policy.load(write(tmp_path, text + "search.suppression_limit = 0.29\n"))
    assert policy.search.suppression_limit == Decimal("0.29")
    assert int(policy.search.suppression_limit * 100) == 29  # 0.29 * 100 is 28.999999999999996 in binary
    assert Policy(**tree(search={"suppression_limit": 1})).search.suppression_limit == 1


# --- paths -------------------------------------------------------------------------------------------


def test_relative_paths_are_relative_to_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a [draft]"
    folder.mkdir()
    write(
        folder,
        """
        source.files = ["data/*.csv", "/abs/x.csv", "s3://bucket/*.parquet"]
        attributes.zip = { role = "quasi", hierarchy = { file = "../zip.csv" } }
        privacy.k = 2
        release.database = "out/r.duckdb"
        """,
        "q1.v2.toml",
    )
    monkeypatch.chdir(tmp_path)
    policy = Policy.load(Path("a [draft]") / "q1.v2.toml")
    # A bracket in a folder's name is not a pattern.
    assert policy.source.files == (
        f"{tmp_path}/a [[]draft]/data/*.csv",
        "/abs/x.csv",
        "s3://bucket/*.parquet",
    )
    assert policy.attributes["zip"].hierarchy == (FileRule(file=folder / "../zip.csv"),)
    assert policy.release is not None and policy.release.database == folder / "out/r.duckdb"
    assert policy.catalog is not None and policy.catalog.database == folder / "sqlanon.catalog.duckdb"


def test_paths_of_a_tree_stay_as_they_are() -> None:
    policy = Policy(**tree(catalog={"database": "c.duckdb"}))
    assert policy.catalog is not None and policy.catalog.database == Path("c.duckdb")


@pytest.mark.parametrize(
    ("source", "release", "table"),
    [
        ({"database": "a.duckdb", "table": "patients"}, {}, "patients"),
        ({"database": "a.duckdb", "table": "raw.patients"}, {}, "patients"),
        ({"database": "a.duckdb", "query": "SELECT 1"}, {}, "release"),
        ({"files": "a.csv"}, {}, "release"),
        ({"files": "a.csv", "table": "people"}, {}, "people"),
        ({"database": "a.duckdb", "table": "patients"}, {"table": "release"}, "release"),
    ],
)
def test_the_release_is_named_after_the_source(source: dict[str, Any], release: dict[str, Any], table: str) -> None:
    policy = Policy(**tree(source=source, release={"database": "r.duckdb", **release}))
    assert policy.release is not None and policy.release.table == table


# --- hierarchies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        {"intervals": [5, 10], "origin": 0, "below": 0, "above": 100},
        {"intervals": {"widths": [5, 10], "origin": 0, "below": 0, "above": 100}},
        {"intervals": {"widths": [5, 10]}, "origin": 0.0, "below": 0, "above": 100},
        {"widths": [5, 10], "below": 0, "above": 100},
        [{"intervals": [5.0, 10], "below": 0, "above": 100}],
    ],
)
def test_all_spellings_of_intervals_are_equal(spec: Any) -> None:
    assert hierarchy(spec) == (IntervalsRule(widths=(Decimal(5), Decimal(10)), below=Decimal(0), above=Decimal(100)),)


def test_spellings_of_intervals_in_toml(tmp_path: Path) -> None:
    policy = Policy.load(
        write(
            tmp_path,
            """
            privacy.k = 2
            [attributes]
            a = { role = "quasi", hierarchy = { intervals = [0.1, 0.3], levels = 1 } }
            b = { role = "quasi", hierarchy = { intervals = { widths = [0.1, 0.3] }, levels = 1 } }
            c = { role = "quasi", hierarchy = { widths = [7, 28], origin = 1980-01-07, above = 2000-01-01 } }
            """,
        )
    )
    exact = IntervalsRule(widths=(Decimal("0.1"), Decimal("0.3")), levels=1)
    assert policy.attributes["a"].hierarchy == policy.attributes["b"].hierarchy == (exact,)
    days = IntervalsRule(widths=(Decimal(7), Decimal(28)), origin=date(1980, 1, 7), above=date(2000, 1, 1))
    assert policy.attributes["c"].hierarchy == (days,)


def test_composed_rules_are_parsed() -> None:
    assert hierarchy([{"mask": "left", "levels": 2}, {"table": "x"}, "suppress"]) == (
        MaskRule(mask="left", levels=2),
        TableRule(table="x"),
        SuppressRule(),
    )


def test_categories_give_rows_from_leaf_to_root() -> None:
    (rule,) = hierarchy({"categories": {"EU": {"West": ["FR", "DE"], "North": ["SE"]}, "Asia": {"East": ["JP"]}}})
    assert isinstance(rule, CategoriesRule)
    assert rule.depth == 2
    assert rule.rows == (
        ("FR", "West", "EU"),
        ("DE", "West", "EU"),
        ("SE", "North", "EU"),
        ("JP", "East", "Asia"),
    )


def test_one_and_true_are_two_ground_values() -> None:
    (rule,) = hierarchy({"categories": {"a": [1], "b": [True], "c": ["1", date(2020, 1, 1)]}})
    assert len(rule.rows) == 4


@pytest.mark.parametrize(
    "dates",
    [
        ["day", "week"],
        ["week"],
        ["day", "month", "quarter", "year", "decade"],
        ["day", "year"],
        ["quarter", "decade"],
    ],
)
def test_nesting_calendar_levels_are_accepted(dates: list[str]) -> None:
    assert hierarchy({"dates": dates})[0].dates == tuple(dates)


@pytest.mark.parametrize(
    ("spec", "place", "words"),
    [
        ({"mask": "up"}, ".mask", "must be one of right, left, not 'up'"),
        ({"mask": "right", "levels": 0}, ".levels", "at least 1"),
        ({"mask": "right", "levels": "2"}, ".levels", "whole number, not the text '2'"),
        ({"mask": "right", "levels": True}, ".levels", "whole number, not true"),
        ({"mask": "right", "lvls": 2}, ".lvls", "did you mean 'levels'?"),
        ({"mask": "right", "dates": ["year"]}, "", "mask and dates in one rule"),
        ({"maks": "right"}, "", "did you mean 'mask'?"),
        ({}, "", "a rule is"),
        ("supress", "", "did you mean 'suppress'?"),
        ("mask", "", "needs its parameter"),
        (5, "", "not 5"),
        ([], "", "must not be empty"),
        (["suppress", {"mask": "up"}], "[1].mask", "must be one of"),
        ({"intervals": []}, ".intervals", "must not be empty"),
        ({"intervals": 5}, ".intervals", "must be a list"),
        ({"intervals": ["5"]}, ".intervals[0]", "must be a number, not '5'"),
        ({"intervals": [True]}, ".intervals[0]", "must be a number, not true"),
        ({"intervals": [float("inf")]}, ".intervals[0]", "finite"),
        ({"intervals": [0]}, ".intervals[0]", "more than 0"),
        ({"intervals": [5, 12]}, ".intervals[1]", "12 is not a multiple of 5"),
        ({"intervals": [5, 5]}, ".intervals[1]", "5 is not more than 5"),
        ({"intervals": [0.1, 0.25]}, ".intervals[1]", "0.25 is not a multiple of 0.1"),
        ({"intervals": [Decimal("0.1"), Decimal("1e40") + 0]}, "", None),
        ({"widths": [10, 5]}, ".widths[1]", "not more than"),
        ({"intervals": {"widths": [10, 5]}}, ".intervals.widths[1]", "not more than"),
        ({"intervals": {}}, ".intervals.widths", "is missing"),
        ({"intervals": {"widths": [5], "orign": 1}}, ".intervals.orign", "did you mean 'origin'?"),
        ({"intervals": [5], "orign": 1}, ".orign", "did you mean 'origin'?"),
        ({"intervals": [5], "below": 10, "above": 10}, ".below", "must be less than above"),
        ({"intervals": [5], "below": "10"}, ".below", "without quotes"),
        ({"intervals": {"widths": [5], "below": 0}, "below": 1}, "", "below is given twice"),
        ({"intervals": [5], "below": 0, "above": date(2000, 1, 1)}, ".below", "dates only, or numbers only"),
        ({"intervals": [0.5], "origin": date(2000, 1, 1)}, ".intervals[0]", "whole days"),
        ({"dates": "month"}, ".dates", "must be a list"),
        ({"dates": []}, ".dates", "must not be empty"),
        ({"dates": ["month", "yaer"]}, ".dates[1]", "did you mean 'year'?"),
        ({"dates": ["week", "month"]}, ".dates[1]", "week can only be the last"),
        ({"dates": ["year", "month"]}, ".dates[1]", "from fine to coarse"),
        ({"dates": ["month", "week"]}, ".dates[1]", "from fine to coarse"),
        ({"dates": ["year", "year"]}, ".dates[1]", "not coarser"),
        ({"categories": {}}, ".categories", "at least one category"),
        ({"categories": {"a": []}}, ".categories.a", "no ground value"),
        ({"categories": {"a": {}}}, ".categories.a", "must be a list"),
        ({"categories": {"a": "x"}}, ".categories.a", "must be a list"),
        ({"categories": {"a": ["x"], "b c": {"d": ["y"]}}}, '.categories."b c".d', "is at depth 2"),
        ({"categories": {"a": ["x"], "b": ["x"]}}, ".categories.b[0]", "'x' is already in a"),
        ({"categories": {"a": ["x", ["y"]]}}, ".categories.a[1]", "not a list"),
        ({"file": ""}, ".file", "path of a file"),
        ({"file": 3}, ".file", "path of a file"),
        ({"table": ""}, ".table", "must not be empty"),
    ],
)
def test_mistakes_of_a_hierarchy_are_named(spec: Any, place: str, words: str | None) -> None:
    if words is None:
        hierarchy(spec)  # exact whatever the size: no problem
        return
    where, message = only_problem(**zip_with(hierarchy=spec))
    assert where == f"attributes.zip.hierarchy{place}"
    assert words in message


# --- problems ----------------------------------------------------------------------------------------


def test_five_mistakes_are_five_problems_each_with_its_place(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        """
        [source]
        database = "a.duckdb"
        table = "patients"

        [attributes]
        name = { role = "identifier" }
        zip = { role = "quasi", hierachy = { mask = "right" } }
        age = { role = "quasi", hierarchy = { intervals = [5, 12] } }
        cost = { role = "insensitive", weight = 2 }

        [privacy]
        k = "5"
        """,
    )
    with pytest.raises(PolicyError) as caught:
        Policy.load(file)
    assert [problem.place for problem in caught.value.problems] == [
        "attributes.name.role",
        "attributes.zip.hierachy",
        "attributes.age.hierarchy.intervals[1]",
        "attributes.cost.weight",
        "privacy.k",
    ]
    assert str(caught.value).startswith("5 problems in the policy:\n  - attributes.name.role: must be one of")
    assert "unknown key 'hierachy'; did you mean 'hierarchy'?" in str(caught.value)


def test_mistakes_in_sections_and_between_them_show_together() -> None:
    mistakes = problems(
        source={"database": "a.duckdb", "table": "t", "query": "SELECT 1"},
        attributes={
            "zip": {"role": "quasi", "hierarchy": "suppress", "weight": 3},
            "ZIP": {"role": "sensitive"},
        },
        privacy={},
        search={"measure": "discernibility"},
        release={"database": "a.duckdb", "table": ""},
        catalog={"database": "b.duckdb", "mode": 1},
    )
    assert list(mistakes) == [
        "source.query",
        "privacy",
        "release.table",
        "catalog.mode",
        "attributes.ZIP",
        "attributes.zip.weight",
    ]


@pytest.mark.parametrize(
    ("keys", "place", "words"),
    [
        ({"role": "qausi"}, "role", "did you mean 'quasi'?"),
        ({"role": "secret"}, "role", "identifying, quasi, sensitive, insensitive"),
        ({"hierarchy": None}, "", "needs a hierarchy"),
        ({"weight": 0}, "weight", "more than 0"),
        ({"weight": 1e308}, "weight", "at most 1"),
        ({"weight": -1.5}, "weight", "more than 0"),
        ({"weight": float("nan")}, "weight", "finite"),
        ({"weight": "2"}, "weight", "number, not the text '2'"),
        ({"weight": True}, "weight", "not true"),
        ({"on_unknown": "drop"}, "on_unknown", "must be one of error, suppress"),
        ({"min_level": -1}, "min_level", "at least 0"),
        ({"max_level": 1.5}, "max_level", "whole number"),
        ({"min_level": 3, "max_level": 2}, "min_level", "3 is more than max_level, 2"),
        ({"role": "identifying"}, "hierarchy", "only quasi-identifiers are generalized"),
        ({"role": "insensitive"}, "hierarchy", "only quasi-identifiers are generalized"),
        ({"colour": "red"}, "colour", "unknown key 'colour'"),
    ],
)
def test_mistakes_of_an_attribute_are_named(keys: dict[str, Any], place: str, words: str) -> None:
    sound = {"role": "quasi", "hierarchy": "suppress"}
    mistakes = problems(**tree(attributes={"age": sound, "zip": {**sound, **keys}}))
    where = f"attributes.zip.{place}" if place else "attributes.zip"
    assert list(mistakes) == [where]
    assert words in mistakes[where]


@pytest.mark.parametrize("keys", [{"weight": 2}, {"on_unknown": "suppress"}, {"min_level": 1}, {"max_level": 1}])
@pytest.mark.parametrize("role", ["identifying", "sensitive", "insensitive"])
def test_keys_of_quasi_attributes_are_refused_on_other_roles(role: str, keys: dict[str, Any]) -> None:
    quasi = {"role": "quasi", "hierarchy": "suppress"}
    place, message = only_problem(**tree(attributes={"zip": quasi, "x": {"role": role, **keys}}))
    assert place == f"attributes.x.{next(iter(keys))}"
    assert role in message


def test_a_sensitive_attribute_may_have_a_hierarchy() -> None:
    quasi = {"role": "quasi", "hierarchy": "suppress"}
    Policy(**tree(attributes={"zip": quasi, "illness": {"role": "sensitive", "hierarchy": {"table": "icd"}}}))


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"attributes": {}}, "attributes", "no column has a role"),
        ({"attributes": None}, "attributes", "no column has a role"),
        ({"attributes": "zip"}, "attributes", "must be a table"),
        ({"attributes": {"zip": "quasi"}}, "attributes.zip", "must be a table"),
        ({"attributes": {"a": {"role": "sensitive"}}}, "attributes", 'no attribute has role = "quasi"'),
        ({"attributes": {"date of birth": {}}}, 'attributes."date of birth".role', "is missing"),
        ({"privacy": None}, "privacy", "at least one requirement"),
        ({"privacy": {}}, "privacy", "at least one requirement"),
        ({"privacy": {"k": 0}}, "privacy.k", "at least 1, not 0"),
        ({"privacy": {"k": 5.5}}, "privacy.k", "whole number, not 5.5"),
        ({"privacy": {"k": 5.0}}, "privacy.k", "whole number"),
        ({"privacy": {"k": True}}, "privacy.k", "whole number, not true"),
        ({"privacy": {"K": 5}}, "privacy.K", "did you mean 'k'?"),
        ({"privacy": 5}, "privacy", "must be a table"),
        (
            {"privcy": {"k": 5}, "privacy": None},
            "privcy",
            "unknown section 'privcy'; did you mean 'privacy'?",
        ),
        ({"search": {"suppression_limit": 1.01}}, "search.suppression_limit", "at most 1"),
        ({"search": {"suppression_limit": -0.1}}, "search.suppression_limit", "at least 0"),
        ({"search": {"suppression_limit": "5%"}}, "search.suppression_limit", "must be a number"),
        ({"search": {"suppression_limit": float("nan")}}, "search.suppression_limit", "finite"),
        ({"search": {"strategy": "fast"}}, "search.strategy", "must be one of optimal, k_minimal"),
        ({"search": {"measure": "los"}}, "search.measure", "did you mean 'loss'?"),
        ({"search": {"measure": "entropy", "aggregate": "mean"}}, "search.aggregate", "entropy has no aggregate"),
        ({"search": {"measure": "height", "aggregate": "sum"}}, "search.aggregate", "height has no aggregate"),
        ({"source": {"database": "a", "table": "t", "query": "q"}}, "source.query", "not both"),
        ({"source": {"database": "a", "table": "t", "files": "x.csv"}}, "source.files", "not both"),
        ({"source": {"query": "q", "files": "x.csv"}}, "source.query", "applies to a database"),
        ({"source": {"database": "a"}}, "source", "no table"),
        ({"source": {"database": "a", "table": ""}}, "source.table", "must not be empty"),
        ({"source": {"files": ["a.csv", 3]}}, "source.files[1]", "must be a path or a pattern"),
        ({"source": {"files": ""}}, "source.files", "must be a path or a pattern"),
        ({"source": {"undeclared": "keep"}}, "source.undeclared", "must be one of error, drop"),
        ({"release": {"database": "a", "file": "b.parquet"}}, "release.file", "not both"),
        ({"release": {"file": "b.csv"}}, "release.file", "must end in .parquet"),
        ({"release": {"database": "a", "table": ""}}, "release.table", "must not be empty"),
        ({"release": {"database": "a", "suppressed": "hide"}}, "release.suppressed", "drop, mask"),
        ({"release": {"storage_version": "1.4"}}, "release.storage_version", "such as 'v1.4.0', not '1.4'"),
        ({"release": {"storage_version": "v0.9.0"}}, "release.storage_version", "from v1.0.0 on"),
        ({"release": {"storage_version": 1.4}}, "release.storage_version", "must be"),
        ({"release": {"file": "b.parquet", "storage_version": "v1.0.0"}}, "release.storage_version", "leave it out"),
        ({"catalog": {}}, "catalog.database", "is missing"),
    ],
)
def test_mistakes_of_a_section_are_named(changes: dict[str, Any], place: str, words: str) -> None:
    where, message = only_problem(**tree(**changes))
    assert where == place
    assert words in message


@pytest.mark.parametrize(
    "search",
    [{"measure": "height"}, {"measure": "entropy"}, {"aggregate": "geometric"}, {"aggregate": "max"}],
)
def test_weights_need_a_weighted_mean_or_sum(search: dict[str, Any]) -> None:
    place, message = only_problem(**zip_with(weight=2), search=search)
    assert place == "attributes.zip.weight"
    assert "has no weights" in message
    Policy(**zip_with(weight=1), search=search)


@pytest.mark.parametrize("search", [{}, {"measure": "precision"}, {"aggregate": "sum"}])
def test_weights_are_accepted_where_they_count(search: dict[str, Any]) -> None:
    assert Policy(**zip_with(weight=2), search=search).attributes["zip"].weight == 2.0


def test_names_that_differ_in_case_only() -> None:
    quasi = {"role": "quasi", "hierarchy": "suppress"}
    place, message = only_problem(**tree(attributes={"zip": quasi, "Zip": quasi}))
    assert place == "attributes.Zip"
    assert "'zip'" in message


@pytest.mark.parametrize(
    ("sections", "place", "words"),
    [
        ({"source": "a.duckdb", "release": "./a.duckdb"}, "release.database", "is the source"),
        ({"source": "a.duckdb", "catalog": "b/../a.duckdb"}, "catalog.database", "is the source"),
        ({"release": "a.duckdb", "catalog": "a.duckdb"}, "release.database", "is the catalog"),
        ({"source": "a.duckdb", "release": "link.duckdb"}, "release.database", "is the source"),
        ({"source": "a.duckdb", "release": "hard.duckdb"}, "release.database", "is the source"),
    ],
)
def test_source_file_is_refused_as_output(
    sections: dict[str, str], place: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "a.duckdb").touch()
    (tmp_path / "link.duckdb").symlink_to("a.duckdb")
    os.link("a.duckdb", "hard.duckdb")
    changes: dict[str, Any] = {name: {"database": file} for name, file in sections.items()}
    if "source" in changes:
        changes["source"]["table"] = "t"
    where, message = only_problem(**tree(**changes))
    assert where == place
    assert words in message


@pytest.mark.parametrize(
    ("files", "file", "same"),
    [
        ("data/*.parquet", "data/out.parquet", True),
        ("data/*.parquet", "data/deep/out.parquet", False),
        ("data/**/*.parquet", "data/out.parquet", True),
        ("data/**/*.parquet", "data/very/deep/out.parquet", True),
        ("data/**/*.parquet", "other/out.parquet", False),
        ("./out.parquet", "out.parquet", True),
        ("data/*.csv", "data/out.parquet", False),
        ("s3://data/*.parquet", "data/out.parquet", False),
    ],
)
def test_source_file_is_refused_as_release(files: str, file: str, same: bool) -> None:
    sections = tree(source={"files": files}, release={"file": file})
    if same:
        place, message = only_problem(**sections)
        assert place == "release.file"
        assert "is the source" in message
    else:
        Policy(**sections)


def test_hierarchy_file_is_refused_as_release() -> None:
    place, message = only_problem(**zip_with(hierarchy={"file": "zip.csv"}), release={"database": "zip.csv"})
    assert place == "release.database"
    assert "hierarchy file of attributes.zip" in message


_WORDS = st.sampled_from(
    [
        *Attribute.model_fields,
        *SourceSection.model_fields,
        *SearchSection.model_fields,
        *ReleaseSection.model_fields,
        *IntervalsRule.model_fields,
        *("intervals", "mask", "dates", "categories", "k", "quasi", "sensitive", "suppress", "right"),
        *("week", "year", "drop", "entropy", "max", "a.parquet"),
    ]
)
_KEYS = _WORDS | st.text(max_size=3) | st.integers(0, 3)
_NUMBERS = st.booleans() | st.floats() | st.decimals()
_SCALARS = _KEYS | _NUMBERS | st.none() | st.dates() | st.datetimes() | st.binary()
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_TABLES = st.dictionaries(_KEYS, _VALUES, max_size=4)


@pytest.mark.slow
@given(
    spec=_VALUES,
    attributes=_VALUES | st.dictionaries(_KEYS, _TABLES, max_size=3),
    sections=st.dictionaries(
        st.sampled_from(["source", "search", "privacy", "release", "catalog", "extra"]), _VALUES | _TABLES
    ),
)
def test_any_tree_gives_a_policy_or_its_problems(spec: Any, attributes: Any, sections: dict[str, Any]) -> None:
    for tried in (zip_with(hierarchy=spec), tree(attributes=attributes), tree(**sections)):
        try:
            policy = Policy(**tried)
        except PolicyError as error:
            assert all(problem.message for problem in error.problems)
        else:
            json.dumps(policy.redact(), allow_nan=False)
            assert Policy(**policy.model_dump()) == policy


# --- files that are not policies ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[privacy]\nk = \n", "is not TOML: .*line 2"),
        (b"[privacy]\nk = 5\n[privacy]\n", "is not TOML: .*line 3"),
        (b"[privacy]\n# caf\xe9\nk = 5\n", "line 2 is not UTF-8"),
        (b"k = " + b"1" * 5000, "is not TOML"),
        (b"k = " + b"[" * 5000, "is not TOML"),
    ],
)
def test_a_malformed_toml_file_is_refused(content: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_bytes(content)
    with pytest.raises(PolicyError, match=words) as caught:
        Policy.load(file)
    assert caught.value.problems[0].place == str(file)


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"nowhere\.toml: file not found"):
        Policy.load(tmp_path / "nowhere.toml")
    with pytest.raises(PolicyError, match="is a folder"):
        Policy.load(tmp_path)


def test_a_missing_policy_is_not_mistaken_for_an_unlike_one(tmp_path: Path) -> None:
    (tmp_path / "9.toml").write_text("")
    with pytest.raises(PolicyError, match=r"1\.toml: file not found$"):
        Policy.load(tmp_path / "1.toml")
    (tmp_path / "policy.toml").write_text("")
    with pytest.raises(PolicyError, match=r"file not found; did you mean policy\.toml\?$"):
        Policy.load(tmp_path / "Polcy.toml")


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(CONTRACT, encoding="utf-8-sig")
    assert Policy.load(file).privacy.k == 5


# --- fingerprint, redaction, schema ------------------------------------------------------------------


def test_the_fingerprint_is_that_of_the_content(tmp_path: Path) -> None:
    fingerprint = Policy.load(write(tmp_path, CONTRACT)).fingerprint()
    assert len(fingerprint) == 64 and set(fingerprint) <= set("0123456789abcdef")
    other_spelling = CONTRACT.replace("{ intervals = [5, 10, 20, 40] }", "[{ widths = [5.0, 10, 20, 40], origin = 0 }]")
    assert other_spelling != CONTRACT
    assert Policy.load(write(tmp_path, other_spelling)).fingerprint() == fingerprint
    for old, new in [
        ("k = 5", "k = 6"),
        ("0.29", "0.28"),
        ("[5, 10, 20, 40]", "[5, 10, 20]"),
        ("geo_country", "geo_land"),
        ('"drop"', '"mask"'),
        ("weight = 2.0", "weight = 2.5"),
    ]:
        changed = CONTRACT.replace(old, new)
        assert changed != CONTRACT
        assert Policy.load(write(tmp_path, changed)).fingerprint() != fingerprint


def test_the_fingerprint_does_not_count_what_changes_no_release() -> None:
    """The policy differs in a draft, in notes about it, in the folders of files, and in a default that is written."""
    fingerprint = Policy(**tree(release={"database": "a/r.duckdb"})).fingerprint()
    for release, sections in (
        ({"database": "b/r.duckdb"}, {}),
        ({"database": "a/r.duckdb", "draft": True}, {}),
        ({"database": "a/r.duckdb", "suppressed": "drop"}, {}),
        ({"database": "a/r.duckdb"}, {"about": {"purpose": "for review"}}),
    ):
        assert Policy(**tree(release=release, **sections)).fingerprint() == fingerprint, (release, sections)
    for release in ({"database": "a/s.duckdb"}, {"database": "a/r.duckdb", "suppressed": "mask"}):
        assert Policy(**tree(release=release)).fingerprint() != fingerprint


@pytest.mark.parametrize(
    ("release", "table"),
    [
        ({"database": "a.duckdb", "table": "r"}, "r"),
        ({"file": "a.parquet", "table": "r"}, "r"),
        ({"postgres": "env:HERE", "table": "shared.r"}, None),  # a file has no schemas
        ({"spark": True, "table": "shared.r"}, None),
    ],
)
@pytest.mark.parametrize(("path", "key"), [("out.duckdb", "database"), ("out.PARQUET", "file")])
def test_a_policy_has_one_place_for_its_release(
    release: dict[str, Any], table: str | None, path: str, key: str
) -> None:
    original = Policy(**tree(release=release)).release
    assert original is not None and original.has_location
    section = Policy(**tree(release=release)).with_output_file(Path(path)).release
    assert section is not None and section.table == table
    places = {name: getattr(section, name) for name in section.LOCATION_KEYS}
    assert places == dict.fromkeys(places) | {key: Path(path)}


def test_the_fingerprint_counts_the_order_of_attributes() -> None:
    quasi = {"role": "quasi", "hierarchy": "suppress"}
    policy = Policy(**tree(attributes={"a": quasi, "b": quasi}))
    reordered = Policy(**tree(attributes={"b": quasi, "a": quasi}))
    assert policy.fingerprint() != reordered.fingerprint()


@pytest.mark.thorough
def test_the_fingerprint_is_the_same_in_every_process() -> None:
    code = "import json, sys; from sqlanon.policy import Policy; print(Policy(**json.loads(sys.argv[1])).fingerprint())"
    fingerprints = {
        subprocess.run(
            [sys.executable, "-c", code, json.dumps(tree())],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert fingerprints == {Policy(**tree()).fingerprint()}


def test_a_redacted_policy_shows_nothing_private() -> None:
    policy = Policy(
        source={"database": "/data/secret_source.duckdb", "query": "SELECT secret_column FROM secret_table"},
        attributes={
            "zip": {
                "role": "quasi",
                "hierarchy": [{"mask": "right", "levels": 2}, {"file": "/data/secret_zip.csv"}],
            },
            "age": {
                "role": "quasi",
                "hierarchy": {"intervals": [5, 10], "below": 18, "above": 90},
                "weight": 2,
            },
            "seen": {
                "role": "quasi",
                "hierarchy": {"widths": [7], "origin": date(2000, 1, 3)},
                "min_level": 1,
            },
            "birth": {"role": "quasi", "hierarchy": {"dates": ["month", "year"]}, "on_unknown": "suppress"},
            "country": {"role": "quasi", "hierarchy": {"categories": {"secret_label": ["secret_leaf"]}}},
            "job": {"role": "quasi", "hierarchy": {"table": "secret_jobs"}, "max_level": 2},
            "sex": {"role": "quasi", "hierarchy": "suppress", "forbidden": ["secret_sex", "secret"]},
            "illness": {"role": "sensitive"},
        },
        privacy={"k": 5},
        search={"suppression_limit": 0.05},
        release={"database": "/data/secret_release.duckdb", "table": "secret_name", "suppressed": "mask"},
        catalog={"database": "/data/secret_catalog.duckdb"},
    )
    redacted = policy.redact()
    text = json.dumps(redacted, allow_nan=False)
    assert "secret" not in text and "SELECT" not in text and "/data" not in text
    quasi = {"role": "quasi", "weight": 1.0, "on_unknown": "error", "min_level": 0}
    assert redacted == {
        "undeclared": "error",
        "persons": False,
        "population": False,
        "attributes": {
            "zip": {**quasi, "hierarchy": [{"rule": "mask", "mask": "right", "levels": 2}, {"rule": "file"}]},
            "age": {
                **quasi,
                "weight": 2.0,
                "hierarchy": [{"rule": "intervals", "widths": [5, 10], "origin": 0, "below": 18, "above": 90}],
            },
            "seen": {
                **quasi,
                "min_level": 1,
                "hierarchy": [{"rule": "intervals", "widths": [7], "origin": "2000-01-03"}],
            },
            "birth": {
                **quasi,
                "on_unknown": "suppress",
                "hierarchy": [{"rule": "dates", "dates": ["month", "year"]}],
            },
            "country": {**quasi, "hierarchy": [{"rule": "categories", "depth": 1}]},
            "job": {**quasi, "max_level": 2, "hierarchy": [{"rule": "table"}]},
            "sex": {**quasi, "hierarchy": [{"rule": "suppress"}], "forbidden": 2},
            "illness": {"role": "sensitive"},
        },
        "privacy": {"k": 5},
        "search": {"strategy": "optimal", "suppression_limit": 0.05, "measure": "loss", "aggregate": "mean"},
        "suppressed": "mask",
    }


def test_the_json_schema_describes_the_spellings() -> None:
    schema = Policy.model_json_schema()
    assert json.loads(json.dumps(schema)) == schema
    sections = {"source", "population", "attributes", "privacy", "risk", "search", "release", "catalog", "about"}
    assert set(schema["properties"]) == sections
    assert set(schema["required"]) == {"attributes", "privacy"}
    parts = schema["$defs"]
    single, several, _ = parts["Attribute"]["properties"]["hierarchy"]["anyOf"]
    assert several["type"] == "array" and several["items"] == single
    assert parts["SuppressRule"]["const"] == "suppress"
    short, plain = parts["IntervalsRule"]["anyOf"]
    assert "intervals" in short["properties"] and "widths" in plain["properties"]
    limit = parts["SearchSection"]["properties"]["suppression_limit"]
    assert (limit["type"], limit["minimum"], limit["maximum"], limit["default"]) == ("number", 0, 1, 0)
    assert parts["SourceSection"]["properties"]["files"]["anyOf"][0] == {"type": "string"}


@pytest.mark.slow
def test_the_policy_imports_no_engine() -> None:
    for file in (Path(__file__).parents[2] / "sqlanon" / "policy").glob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        foreign = {name for name in names if name.partition(".")[0] not in sys.stdlib_module_names}
        packages = ("errors", "measures", "places", "policy", "requirements", "support")
        allowed = ("pydantic", "sqlglot.", *(f"sqlanon.{name}" for name in packages))
        assert all(name.startswith(allowed) for name in foreign), (file.name, foreign)


def test_about_is_for_people_and_for_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(
        '[attributes]\nzip = { role = "quasi", hierarchy = "suppress" }\n[privacy]\nk = 5\n'
        '[about]\npurpose = "planning of <beds>"\nowner = "Quality"\napproved_by = "A. Huber"\n'
        "approved_on = 2026-11-23\n",
        encoding="utf-8",
    )
    policy = Policy.load(tmp_path / "policy.toml")
    assert policy.about is not None
    assert policy.about.model_dump() == {
        "purpose": "planning of <beds>", "owner": "Quality", "approved_by": "A. Huber", "approved_on": "2026-11-23",
    }  # fmt: skip
    assert policy.fingerprint() == policy.model_copy(update={"about": None}).fingerprint()
    assert "Huber" not in json.dumps(policy.redact())
    assert "beds" not in json.dumps(policy.redact())


def test_about_has_texts_alone() -> None:
    plain = {"attributes": {"zip": {"role": "quasi", "hierarchy": "suppress"}}, "privacy": {"k": 5}}
    with pytest.raises(PolicyError) as error:
        Policy(**plain, about={"purpose": 5, "signature": "x", "owner": ""})
    assert [problem.place for problem in error.value.problems] == ["about.purpose", "about.owner", "about.signature"]
