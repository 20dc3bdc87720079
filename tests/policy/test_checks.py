"""Checks of a policy's sections against one another, each at its border: a policy that one check alone refuses, and the
nearest that it accepts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from sqlanon.errors import PolicyError
from sqlanon.policy import Policy
from sqlanon.policy.checks import _segments_match

ATTRIBUTES: dict[str, Any] = {
    "zip": {"role": "quasi", "hierarchy": "suppress"},
    "illness": {"role": "sensitive"},
    "cost": {"role": "insensitive"},
    "ID": {"role": "identifying"},
}


def problems(**sections: Any) -> list[str]:
    """The places of the problems of a policy."""
    attributes = ATTRIBUTES | sections.pop("attributes", {})
    tree = {
        "source": {"table": "t", **sections.pop("source", {})},
        "attributes": {name: attribute for name, attribute in attributes.items() if attribute is not None},
        "privacy": {"k": 5, **sections.pop("privacy", {})},
    }
    try:
        Policy(**tree, **sections)
    except PolicyError as error:
        return [problem.place for problem in error.problems]
    return []


ROLES: dict[str, Any] = {
    "identifying": {"role": "identifying"},
    "insensitive": {"role": "insensitive"},
    "sensitive": {"role": "sensitive"},
    "quasi": {"role": "quasi", "hierarchy": "suppress"},
}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("column", ["id", "ID", "Id"])
@pytest.mark.parametrize("attribute", ["id", "iD"])
def test_columns_that_are_never_released_have_no_other_role(role: str, column: str, attribute: str) -> None:
    """Checks of a key, of persons, and of households, in any letter case."""
    columns = {"ID": None, attribute: ROLES[role]}
    is_sound = role == "identifying"
    assert problems(attributes=columns, source={"key": column}) == ([] if is_sound else ["source.key"])
    assert problems(attributes=columns, source={"key": ["other", column]}) == ([] if is_sound else ["source.key"])
    assert problems(attributes=columns, source={"person": column}) == ([] if is_sound else ["source.person"])
    assert problems(attributes=columns, risk={"household": column}) == ([] if is_sound else ["risk.household"])
    weights = ["risk.weights"] if role in ("sensitive", "quasi") else []
    assert problems(attributes=columns, risk={"weights": column}) == weights


def test_key_uses_only_the_named_columns() -> None:
    assert problems(source={"key": "number"}) == problems(source={"person": "number"}) == []
    assert problems(risk={"household": "home", "weights": "heft"}) == []
    assert problems(risk={"household": "home", "weights": "HOME"}) == ["risk.household"]


def test_persons_of_a_population_may_be_an_attribute_but_no_quasi_identifier() -> None:
    for role, attribute in ROLES.items():
        population = {"table": "p", "person": "id"}
        places = problems(attributes={"ID": attribute}, population=population, privacy={"k_map": 5})
        assert places == (["population.person"] if role == "quasi" else [])


NOISY = {"role": "quasi", "noise": {}}


def noisy(*epsilons: float | None) -> dict[str, Any]:
    return {
        f"n{i}": {"role": "quasi", "noise": {} if epsilon is None else {"epsilon": epsilon}}
        for i, epsilon in enumerate(epsilons)
    }


@pytest.mark.parametrize(
    ("epsilons", "privacy", "wrong"),
    [
        ((2, None), {"epsilon": 2}, ["privacy.epsilon"]),  # nothing is left for the other
        ((2, None), {"epsilon": 2 + 1e-15}, ["privacy.epsilon"]),
        ((2, None), {"epsilon": 2.01}, []),
        ((2, None), {"epsilon": 1.99}, ["privacy.epsilon"]),
        ((0.1, 0.2, None), {"epsilon": 0.3}, ["privacy.epsilon"]),  # whatever 0.1 + 0.2 is
        ((2, None), {}, ["attributes.n1.noise"]),
        ((None, None), {}, ["attributes.n0.noise", "attributes.n1.noise"]),
        ((0.1, 0.2), {"epsilon": 0.3}, []),
        ((1, 1), {"epsilon": 2.01}, ["privacy.epsilon"]),
        ((1, 1), {"epsilon": 1.99}, ["privacy.epsilon"]),
        ((1, 1), {}, []),
        ((1, 1), {"epsilon_total": 2}, []),
        ((0.1, 0.2), {"epsilon_total": 0.3}, []),
        ((1, 1), {"epsilon_total": 1.99}, ["privacy.epsilon_total"]),
        ((None,), {"epsilon": 2, "epsilon_total": 1.99}, ["privacy.epsilon_total"]),
        ((None,), {"epsilon": 2, "epsilon_total": 2}, []),
        ((5, 5), {}, []),
        ((5, 5.01), {}, ["attributes.n1.noise.epsilon"]),
        ((5.01, 5), {}, ["attributes.n0.noise.epsilon"]),
        ((5, 5.01), {"linkable_noise": True}, []),
        ((None,), {"epsilon": 10}, []),
        ((None,), {"epsilon": 10.01}, ["privacy.epsilon"]),
        ((1,), {"epsilon_total": 10}, []),
        ((1,), {"epsilon_total": 10.01}, ["privacy.epsilon_total"]),
        ((1,), {"epsilon_total": 10.01, "linkable_noise": True}, []),
    ],
)
def test_epsilons_add_up_to_that_of_the_record(
    epsilons: tuple[float | None, ...], privacy: dict[str, Any], wrong: list[str]
) -> None:
    assert problems(attributes=noisy(*epsilons), privacy=privacy) == wrong


def test_some_quasi_identifier_has_a_hierarchy() -> None:
    assert problems(attributes={"zip": None}) == ["attributes"]
    assert problems(attributes={"zip": None, **noisy(1)}) == ["attributes"]
    assert problems(attributes=noisy(1)) == []


@pytest.mark.parametrize(
    ("name", "is_taken"),
    [("patients", False), ("quality", True), ("Quality", True), ("zip_labels", True), ("ZIP_labels", True)],
)
def test_a_release_file_has_its_own_tables(name: str, is_taken: bool, tmp_path: Path) -> None:
    release = {"database": tmp_path / "r.duckdb", "table": name}
    assert problems(release=release) == (["release.table"] if is_taken else [])
    # One file of rows has no other tables.
    assert problems(release={"file": tmp_path / "r.parquet", "table": name}) == problems(
        release={"file": tmp_path / "r.parquet"}
    )


def test_priors_are_of_quasi_identifiers() -> None:
    prior = {"table": "shares"}
    assert problems(risk={"priors": {"zip": prior}}) == []
    assert problems(risk={"priors": {"illness": prior}}) == ["risk.priors.illness"]
    assert problems(risk={"priors": {"zap": prior}}) == ["risk.priors.zap"]


def test_a_shield_lists_each_quasi_identifier_once() -> None:
    more = {"sex": {"role": "quasi", "hierarchy": "suppress"}}

    def shield_problems(*quasi: str) -> list[str]:
        return problems(attributes=more, privacy={"k_anonymity": [{"quasi": list(quasi), "k": 7}]})

    assert shield_problems("zip", "sex") == []
    assert shield_problems("zip", "zip") == ["privacy.k_anonymity[0].quasi[1]"]
    assert shield_problems("zip", "illness") == ["privacy.k_anonymity[0].quasi[1]"]
    assert shield_problems("zap", "sex") == ["privacy.k_anonymity[0].quasi[0]"]


def test_names_that_differ_in_case_only_are_one_column() -> None:
    assert problems(attributes={"ZIP": {"role": "insensitive"}}) == ["attributes.ZIP"]
    assert problems(attributes={"zips": {"role": "insensitive"}}) == []


PARTS = [(), ("a",), ("b",), ("a", "b"), ("a", "x", "b"), ("x", "a", "b"), ("a", "b", "c")]


@pytest.mark.parametrize("pattern", ["a/b", "a/**/b", "**/b", "a/**", "**", "a/*/b", "*", "**/x/**", ""])
def test_patterns_of_paths_match_as_a_shell_does(pattern: str) -> None:
    """``**`` matches any number of folders, including none."""

    def paths_of(parts: list[str]) -> set[tuple[str, ...]]:
        """All paths of up to three of the names that a pattern matches."""
        if not parts:
            return {()}
        names = "abcx"
        firsts = (
            [combination for size in range(4) for combination in itertools.product(names, repeat=size)]
            if parts[0] == "**"
            else [(name,) for name in names if parts[0] in ("*", name)]
        )
        return {first + suffix for first in firsts for suffix in paths_of(parts[1:]) if len(first + suffix) <= 3}

    parts = pattern.split("/") if pattern else []
    matched = paths_of(parts)
    assert [path for path in PARTS if _segments_match(path, tuple(parts))] == [
        path for path in PARTS if path in matched
    ]


@pytest.mark.parametrize("output", ["catalog.database", "release.database", "release.file"])
def test_no_output_is_an_input(output: str, tmp_path: Path) -> None:
    """Each kind of file that a policy reads, by its name and by a pattern; and a file next to it."""
    path, sibling = tmp_path / "input.parquet", tmp_path / "output.parquet"
    path.write_bytes(b"")
    section, key = output.split(".")
    rule = {"role": "quasi", "hierarchy": {"file": str(path)}}
    frequency_sets = [str(path), [str(tmp_path / "in*.parquet")]] if section == "catalog" else []  # not released
    for inputs in (
        *({"source": {"frequency_set": frequency_set}} for frequency_set in frequency_sets),
        {"source": {"table": None, "files": str(path)}},
        {"source": {"table": None, "files": [str(tmp_path / "x.parquet"), str(tmp_path / "in*.parquet")]}},
        {"source": {"table": None, "files": f"delta:{path}"}},
        {"source": {"database": str(path)}},
        {"population": {"files": str(path)}, "privacy": {"k_map": 2}},
        {"population": {"database": str(path), "table": "p"}, "privacy": {"k_map": 2}},
        {"attributes": {"zip": rule}},
        {"risk": {"priors": {"zip": {"file": str(path)}}}},
    ):
        assert output in problems(**inputs, **{section: {key: str(path)}}), inputs
        assert output not in problems(**inputs, **{section: {key: str(sibling)}}), inputs


@pytest.mark.parametrize("key", ["database", "file"])
def test_a_release_is_not_the_catalog(key: str, tmp_path: Path) -> None:
    """The catalog has private values."""
    ending = {"database": "duckdb", "file": "parquet"}[key]
    catalog, sibling = tmp_path / f"catalog.{ending}", tmp_path / f"release.{ending}"
    for path, is_refused in ((catalog, True), (tmp_path / "x" / ".." / catalog.name, True), (sibling, False)):
        places = problems(catalog={"database": str(catalog)}, release={key: str(path)})
        assert (f"release.{key}" in places) is is_refused


@pytest.mark.parametrize(
    ("source", "release", "is_refused"),
    [("clinic.t", "clinic.r", True), ("Clinic.t", "clinic.R", True), ("clinic.t", "shared.t", False),
     ("c.clinic.t", "clinic.r", True)],
)  # fmt: skip
def test_a_release_is_outside_the_schema_of_its_source(source: str, release: str, is_refused: bool) -> None:
    """Spark ignores the case of names; PostgreSQL distinguishes it."""
    attributes = {"ID": None}
    spark = {"source": {"spark": "local[1]", "table": source}, "release": {"spark": True, "table": release}}
    assert problems(attributes=attributes, **spark) == (["release.table"] if is_refused else [])
    if source.count(".") == 1:
        address = "postgresql://db/d"
        postgres = {
            "source": {"postgres": address, "table": source},
            "release": {"postgres": address, "table": release},
        }
        is_refused &= source == source.lower()
        assert problems(attributes=attributes, **postgres) == (["release.table"] if is_refused else [])


@pytest.mark.parametrize("privacy", [{}, {"population_uniqueness": {"limit": 0.1, "sampling_fraction": 0.1}}])
def test_noise_suppresses_no_unknown_values_after_the_whole_source_is_checked(privacy: dict[str, Any]) -> None:
    noise = {"role": "quasi", "noise": {"epsilon": 1.0, "bounds": [0, 9]}, "on_unknown": "suppress"}
    places = problems(attributes={"pay": noise}, privacy=privacy)
    assert places == (["attributes.pay.on_unknown"] if privacy else [])


def test_source_file_is_refused_as_output(tmp_path: Path) -> None:
    source, target = tmp_path / "one.duckdb", tmp_path / "other.duckdb"
    source.write_bytes(b"")
    (tmp_path / "linked.duckdb").hardlink_to(source)
    (tmp_path / "symbolic.duckdb").symlink_to(source)
    for spelling in (
        source,
        tmp_path / "linked.duckdb",
        tmp_path / "symbolic.duckdb",
        tmp_path / "x" / ".." / source.name,
    ):
        assert "release.database" in problems(source={"database": source}, release={"database": spelling}), spelling
        assert "catalog.database" in problems(source={"database": source}, catalog={"database": spelling}), spelling
        assert "release.database" in problems(release={"database": spelling}, catalog={"database": source})
    assert problems(source={"database": source}, release={"database": target}) == []
    assert problems(release={"database": target}, catalog={"database": tmp_path / "third.duckdb"}) == []
