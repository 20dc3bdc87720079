"""`sqlanon import-arx`: what a project says is in the policy, or is said; and no zip writes or reads elsewhere."""

from __future__ import annotations

import csv
import io
import stat
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sqlanon
from sqlanon.arx import import_project
from sqlanon.arx.criteria import Criterion, read_criterion
from support.commands import cli

METADATA = "<metadata>\n\t<version>3.9.1</version>\n\t<vocabulary>2.0</vocabulary>\n</metadata>"
DATA = "age;zip;seen;city;cost;name\n" + "\n".join(
    f"{20 + i % 4};{10000 + i % 3};0{1 + i % 9}.02.2020;City {i % 2};{i % 5 or 'NULL'};P{i}" for i in range(60)
)
HIERARCHIES = {
    "age": "\n".join(f"{age};[{age - age % 2}, {age - age % 2 + 1}];*" for age in range(20, 24)),
    "zip": "\n".join(f"{zip_};1000*" for zip_ in range(10000, 10003)),
}
ATTRIBUTES: tuple[dict[str, str], ...] = (
    {
        "name": "age",
        "type": "QUASI_IDENTIFYING_ATTRIBUTE",
        "datatype": "Integer",
        "ref": "hierarchies/age.csv",
        "min": "All",
        "max": "All",
    },
    {
        "name": "zip",
        "type": "QUASI_IDENTIFYING_ATTRIBUTE",
        "datatype": "String",
        "ref": "hierarchies/zip.csv",
        "min": "0",
        "max": "1",
    },
    {"name": "seen", "type": "INSENSITIVE_ATTRIBUTE", "datatype": "Date/Time", "format": "dd.MM.yyyy", "locale": "DE"},
    {"name": "city", "type": "SENSITIVE_ATTRIBUTE", "datatype": "String"},
    {"name": "cost", "type": "INSENSITIVE_ATTRIBUTE", "datatype": "Integer"},
    {"name": "name", "type": "IDENTIFYING_ATTRIBUTE", "datatype": "String"},
)


def elements(parts: Mapping[str, str]) -> str:
    return "".join(f"\n\t\t<{name}>{value}</{name}>" for name, value in parts.items())


def definition(attributes: tuple[dict[str, str], ...]) -> str:
    return (
        "<definition>"
        + "".join(f"\n\t<assigment>{elements(attribute)}\n\t</assigment>" for attribute in attributes)
        + "\n</definition>"
    )


def config(
    criteria: tuple[str, ...] = ("3-anonymity",),
    metric: str = "Loss (0.5/1.0/1.0)",
    limit: str = "0.1",
    weights: Mapping[str, float] | None = None,
) -> str:
    text = "".join(
        f"<attributeWeight>{elements({'attribute': name, 'weight': str(weight)})}</attributeWeight>"
        for name, weight in (weights or {}).items()
    )
    return (
        f"<config><relativeMaxOutliers>{limit}</relativeMaxOutliers><metric>{metric}</metric>"
        f"<attributeWeights>{text}</attributeWeights><criteria>"
        + "".join(f"<criterion>{criterion}</criterion>" for criterion in criteria)
        + "</criteria></config>"
    )


def project(separator: str = ";") -> str:
    return f"<project>{elements({'name': 'Clinic', 'separator': separator, 'locale': 'DE'})}</project>"


def files(**changes: str | bytes) -> dict[str, str | bytes]:
    return {
        "metadata.xml": METADATA,
        "project.xml": project(),
        "data/input.csv": DATA,
        "input/config.xml": config(),
        "input/definition.xml": definition(ATTRIBUTES),
        **{f"input/hierarchies/{name}.csv": content for name, content in HIERARCHIES.items()},
    } | {
        name.replace("__", "/").replace("_xml", ".xml").replace("_csv", ".csv"): text for name, text in changes.items()
    }


def records(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def write(path: Path, contents: Mapping[str, str | bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return path


@pytest.fixture
def import_with_policy(tmp_path: Path) -> Callable[..., tuple[sqlanon.Policy, Any]]:
    def run(
        contents: Mapping[str, str | bytes] | None = None, encoding: str | None = None
    ) -> tuple[sqlanon.Policy, Any]:
        path = write(tmp_path / "clinic.deid", contents or files())
        done = import_project(path, tmp_path / "out", encoding)
        return sqlanon.Policy.load(done.folder / done.policy), done

    return run


def test_a_project_becomes_a_policy_that_runs(tmp_path: Path) -> None:
    write(tmp_path / "clinic.deid", files())
    done = cli("import-arx", "clinic.deid", cwd=tmp_path)
    assert (done.status, done.err) == (0, "")
    policy = sqlanon.Policy.load(tmp_path / "clinic" / "policy.toml")
    roles = {name: attribute.role for name, attribute in policy.attributes.items()}
    assert roles == {
        "age": "quasi",
        "zip": "quasi",
        "seen": "insensitive",
        "city": "sensitive",
        "cost": "insensitive",
        "name": "identifying",
    }
    assert (policy.privacy.k, float(policy.search.suppression_limit), policy.search.measure) == (3, 0.1, "loss")
    assert policy.source.csv is not None and policy.source.csv.delimiter == ","  # nothing is left to detect
    assert policy.source.person is None  # who a person is, ARX does not say
    for name, content in HIERARCHIES.items():
        assert (tmp_path / "clinic" / f"hierarchy_{name}.csv").read_text(encoding="utf-8") == content
    result = cli("anonymize", "clinic/policy.toml", cwd=tmp_path)
    assert result.status == 0, result.err
    with duckdb.connect(str(tmp_path / "clinic" / "clinic_release.duckdb"), read_only=True) as connection:
        types = dict(connection.execute("SELECT column_name, column_type FROM (DESCRIBE clinic)").fetchall())
        assert (types["seen"], types["cost"]) == ("DATE", "BIGINT")
        (smallest,) = connection.execute(
            "SELECT min(n) FROM (SELECT count(*) AS n FROM clinic GROUP BY age, zip)"
        ).fetchall()[0]
    assert smallest >= 3


def test_files_are_for_their_owner_alone(import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]) -> None:
    _, done = import_with_policy()
    modes = {stat.S_IMODE((done.folder / name).stat().st_mode) for name in done.files}
    assert (modes, stat.S_IMODE(done.folder.stat().st_mode)) == ({0o600}, 0o700)
    assert [*done.folder.parent.glob(".*")] == []


def test_dates_become_iso_and_missing_numbers_nothing(
    import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]],
) -> None:
    _, done = import_with_policy()
    rows = records(done.folder / "clinic.csv")
    originals = list(csv.DictReader(io.StringIO(DATA), delimiter=";"))
    assert [row["seen"] for row in rows][:2] == ["2020-02-01", "2020-02-02"]
    assert [row["cost"] for row in rows][:2] == ["", "1"]
    for name in ("age", "zip", "city", "name"):
        assert [row[name] for row in rows] == [row[name] for row in originals]
    assert any("seen" in note and "ISO" in note for note in done.notes)


def test_a_date_without_its_format_leaves_the_column_unchanged(
    import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]],
) -> None:
    _, done = import_with_policy(files(data__input_csv=DATA.replace("01.02.2020", "1999", 1)))
    rows = records(done.folder / "clinic.csv")
    assert [row["seen"] for row in rows][:2] == ["1999", "02.02.2020"]
    assert any("seen" in note and "check how they are read" in note for note in done.notes)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("5-anonymity", "k", 5),
        ("(0.2)-avg-reidentification-risk", "average_risk", 0.2),
        ("(1.0E-4)-sample-uniqueness", "sample_uniqueness", 0.0001),
        ("distinct-3-diversity for attribute 'city'", "l_diversity", {"kind": "distinct", "l": 3}),
        ("distinct-3.0-diversity for attribute 'city'", "l_diversity", {"kind": "distinct", "l": 3}),
        ("shannon-entropy-2.5-diversity for attribute 'city'", "l_diversity", {"kind": "entropy", "l": 2.5}),
        ("recursive-(4.0,3)-diversity for attribute 'city'", "l_diversity", {"kind": "recursive", "l": 3, "c": 4}),
        (
            "0.2-closeness with equal ground-distance for attribute 'city'",
            "t_closeness",
            {"distance": "equal", "t": 0.2},
        ),
        ("0.2-closeness with ordered distance for attribute 'city'", "t_closeness", {"distance": "ordered", "t": 0.2}),
        (
            "0.2-closeness with hierarchical ground-distance for attribute 'city'",
            "t_closeness",
            {"distance": "hierarchical", "t": 0.2},
        ),
        ("1.5-disclosure privacy for attribute 'city'", "delta_disclosure", {"delta": 1.5}),
        ("basic-1.0-likeness for attribute 'city'", "beta_likeness", {"kind": "basic", "beta": 1}),
        ("enhanced-1.0-likeness for attribute 'city'", "beta_likeness", {"kind": "enhanced", "beta": 1}),
    ],
)
def test_each_criterion_with_a_counterpart_is_imported(text: str, key: str, value: Any) -> None:
    criterion = read_criterion(text)
    assert isinstance(criterion, Criterion)
    assert criterion.key == key
    if isinstance(value, dict):
        numbers = {
            name: figure if isinstance(figure, str) else float(figure) for name, figure in criterion.value.items()
        }
        assert numbers == {"attribute": "city", **value}
    else:
        assert float(criterion.value) == value


def test_requirements_on_sensitive_attributes_are_in_the_policy(
    import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]],
) -> None:
    criteria = ("3-anonymity", "5-anonymity", "distinct-2-diversity for attribute 'city'")
    policy, _ = import_with_policy(files(input__config_xml=config(criteria)))
    assert policy.privacy.k == 5
    assert [(requirement.attribute, requirement.kind, requirement.l) for requirement in policy.privacy.l_diversity] == [
        ("city", "distinct", 2)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "(0.0,0.5)-presence",
        "(5)-map",
        "(0.01)-population-uniqueness (dankar)",
        "(0.1, 0.2 (0.2), 0.05)-avg-reidentification-risk",
        "(1.0,1.0E-6)-DP",
        "grassberger-entropy-2.0-diversity for attribute 'city'",
        "profitability (prosecutor)",
        "distinct-2-diversity for attribute 'cost'",
    ],
)
def test_a_requirement_without_a_counterpart_is_named_where_it_is_read(
    text: str, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    _, done = import_with_policy(files(input__config_xml=config(("3-anonymity", text))))
    assert any(text in line for line in done.left_out)
    comment = " ".join(
        line.removeprefix("# ").strip() for line in (done.folder / "policy.toml").read_text().splitlines()
    )
    assert text in comment


def test_import_without_requirement_explains_the_refusal(tmp_path: Path) -> None:
    path = write(tmp_path / "clinic.deid", files(input__config_xml=config(("(5)-map",))))
    done = import_project(path, tmp_path / "out")
    assert any("no requirement was imported" in line for line in done.left_out)
    with pytest.raises(sqlanon.PolicyError):
        sqlanon.Policy.load(done.folder / done.policy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metric", "measure", "is_said"),
    [
        ("Loss (0.5/1.0/1.0)", "loss", False),
        ("Loss (0.2/1.0/1.0)", "loss", True),
        ("Height", "height", False),
        ("Non-monotonic precision", "precision", False),
        ("Average equivalence class size", "average_class_size", False),
        ("Non-monotonic discernability", "discernibility", False),
        ("Non-uniform entropy", "entropy", False),
        ("KL-Divergence", "loss", True),
    ],
)
def test_quality_models_become_measures(
    metric: str, measure: str, is_said: bool, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    policy, done = import_with_policy(files(input__config_xml=config(metric=metric)))
    assert policy.search.measure == measure
    assert any(metric in line for line in done.left_out) == is_said


def test_levels_and_weights_are_imported(import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]) -> None:
    attributes = ({**ATTRIBUTES[0], "min": "1", "max": "1"}, {**ATTRIBUTES[1], "max": "All"}, *ATTRIBUTES[2:])
    zips = "\n".join(f"{zip_};{zip_ % 2}" for zip_ in range(10000, 10003))  # no root: ARX goes no further than that
    policy, _ = import_with_policy(
        files(
            input__definition_xml=definition(attributes),
            input__config_xml=config(weights={"age": 0.9, "zip": 0.5}),
        )
        | {"input/hierarchies/zip.csv": zips}
    )
    age, zip_ = policy.attributes["age"], policy.attributes["zip"]
    assert (age.min_level, age.max_level, age.weight) == (1, 1, 0.9)
    assert (zip_.min_level, zip_.max_level, zip_.weight) == (0, 1, 0.5)


def test_attributes_without_a_hierarchy_are_reported(
    import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]],
) -> None:
    micro = {**ATTRIBUTES[1], "microaggregationFunction": "Arithmetic mean", "response": "true"}
    del micro["ref"]
    _, done = import_with_policy(files(input__definition_xml=definition((ATTRIBUTES[0], micro, *ATTRIBUTES[2:]))))
    assert any("zip" in line and "Arithmetic mean" in line for line in done.left_out)
    assert any("zip" in line and "response variable" in line for line in done.left_out)


@pytest.mark.cases(2)
@pytest.mark.parametrize("limit", ["NaN", "Infinity", "-1", "2", "1E-999999", "many", ""])
def test_invalid_suppression_limit_becomes_zero(
    limit: str, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    policy, done = import_with_policy(files(input__config_xml=config(limit=limit)))
    assert policy.search.suppression_limit == 0
    assert any("suppression limit" in line for line in done.left_out)


@pytest.mark.parametrize(
    "text", [f"{'9' * 5000}-anonymity", "(1.0E99999999)-sample-uniqueness", "(1.2.3)-avg-reidentification-risk"]
)
def test_invalid_numbers_are_not_imported_as_criteria(text: str) -> None:
    assert isinstance(read_criterion(text), str)


def test_an_attribute_that_is_defined_twice_is_refused(
    import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]],
) -> None:
    twice = (*ATTRIBUTES, {**ATTRIBUTES[5], "type": "INSENSITIVE_ATTRIBUTE"})
    with pytest.raises(sqlanon.SourceError, match="defines 'name' twice"):
        import_with_policy(files(input__definition_xml=definition(twice)))


@pytest.mark.slow
@pytest.mark.parametrize("separator", [",", "\t", "|"])
def test_other_separators_are_read(
    separator: str, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    quoted = {
        name: "\n".join(separator.join(f'"{field}"' for field in line.split(";")) for line in content.splitlines())
        for name, content in HIERARCHIES.items()
    }
    policy, done = import_with_policy(
        files(project_xml=project(separator), data__input_csv=DATA.replace(";", separator))
        | {f"input/hierarchies/{name}.csv": content for name, content in quoted.items()}
    )
    with sqlanon.connect() as db:
        assert db.anonymize(policy).released_rows >= 54
    if separator == ",":
        assert (done.folder / "hierarchy_age.csv").read_text(encoding="utf-8") == quoted["age"]


def test_texts_of_another_encoding_are_read_with_it_and_refused_without(
    tmp_path: Path, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    data = DATA.replace("age;", "größe;", 1)
    attributes = ({**ATTRIBUTES[0], "name": "größe"}, *ATTRIBUTES[1:])
    contents = files(data__input_csv=data, input__definition_xml=definition(attributes).encode("windows-1252"))
    with pytest.raises(sqlanon.SourceError, match=r"definition\.xml is not in UTF-8.*--encoding"):
        import_with_policy(contents)
    assert not (tmp_path / "out").exists()
    policy, _ = import_with_policy(contents, "windows-1252")
    assert "größe" in policy.attributes


def test_attribute_names_are_not_used_as_paths(import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]) -> None:
    data = DATA.replace("age;zip;", "a/b;a_b;", 1)
    attributes = (
        {**ATTRIBUTES[0], "name": "a/b", "ref": "hierarchies/a/b.csv"},
        {**ATTRIBUTES[1], "name": "a_b", "ref": "hierarchies/a_b.csv"},
        *ATTRIBUTES[2:],
    )
    contents = files(data__input_csv=data, input__definition_xml=definition(attributes))
    contents["input/hierarchies/a/b.csv"] = contents.pop("input/hierarchies/age.csv")
    contents["input/hierarchies/a_b.csv"] = contents.pop("input/hierarchies/zip.csv")
    policy, done = import_with_policy(contents)
    assert {"hierarchy_a_b.csv", "hierarchy_a_b_2.csv"} <= {*done.files}
    assert {"a/b", "a_b"} <= {*policy.attributes}


@pytest.mark.parametrize("name", ["../out.csv", "/etc/x", "a/../../b", "C:\\x", "..\\x"])
def test_a_zip_with_a_path_that_leaves_its_folder_is_refused(
    name: str, tmp_path: Path, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    with pytest.raises(sqlanon.SourceError, match="path"):
        import_with_policy({**files(), name: "x"})
    assert [file.name for file in tmp_path.iterdir()] == ["clinic.deid"]


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "clinic.deid", files())
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("data/input.csv", "age\n1\n")
    with pytest.raises(sqlanon.SourceError, match="two files"):
        import_project(path, tmp_path / "out")


ENTITIES = '<!DOCTYPE definition [<!ENTITY a "aaaaaaaaaa"><!ENTITY b SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("declaration", ["", '<?xml version="1.0" encoding="UTF-16"?>'])
@pytest.mark.parametrize("name", ["metadata.xml", "project.xml", "input/config.xml", "input/definition.xml"])
def test_a_document_type_is_refused(
    name: str, declaration: str, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    contents = files()
    text = f"{declaration}{ENTITIES}{contents[name]}".replace("Clinic", "&b;")
    contents[name] = text.encode("utf-16") if declaration else text
    with pytest.raises(sqlanon.SourceError):
        import_with_policy(contents)


def test_a_zip_that_expands_to_far_more_than_itself_is_refused(
    tmp_path: Path, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sqlanon.arx.archive._HARMLESS", 1_000_000)
    with pytest.raises(sqlanon.SourceError, match="far more than the zip"):
        import_with_policy(files(data__input_csv=DATA + "\n" * 3_000_000))
    with pytest.raises(sqlanon.SourceError, match="far more than the zip"):
        import_with_policy(files() | {"input/hierarchies/age.csv": "\n" * 3_000_000})
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_large_and_deep_documents_are_refused(import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]) -> None:
    with pytest.raises(sqlanon.SourceError, match=r"at most .* are allowed"):
        import_with_policy(files(project_xml=project() + " " * 17_000_000))
    with pytest.raises(sqlanon.SourceError, match="deep"):
        import_with_policy(files(project_xml="<a>" * 10_000 + "</a>" * 10_000))


@pytest.mark.parametrize("name", ["data/input.csv", "input/definition.xml", "input/config.xml", "project.xml"])
def test_a_project_without_a_part_is_refused(
    name: str, import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]]
) -> None:
    contents = files()
    del contents[name]
    with pytest.raises(sqlanon.SourceError, match=f"has no {name}"):
        import_with_policy(contents)


def test_a_line_of_other_fields_is_refused_with_its_number(
    import_with_policy: Callable[..., tuple[sqlanon.Policy, Any]],
) -> None:
    lines = DATA.splitlines()
    lines[10] += ";more"
    with pytest.raises(sqlanon.SourceError, match=r"line 11 of data/input\.csv has 7 fields, but the header has 6"):
        import_with_policy(files(data__input_csv="\n".join(lines)))


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    write(tmp_path / "clinic.deid", files())
    (tmp_path / "clinic").mkdir()
    done = cli("import-arx", "clinic.deid", cwd=tmp_path)
    assert done.status == 2 and "exists already" in done.err
    assert list((tmp_path / "clinic").iterdir()) == []


@given(st.integers(0, 4000), st.integers(0, 255), st.booleans())
def test_a_changed_byte_is_never_a_traceback(tmp_path_factory: Any, place: int, byte: int, inside: bool) -> None:
    folder = tmp_path_factory.mktemp("changed")
    contents = files()
    if inside:
        name = [*contents][place % len(contents)]
        content = bytearray(str(contents[name]).encode())
        content[place % len(content)] = byte
        contents[name] = bytes(content)
    path = write(folder / "clinic.deid", contents)
    if not inside:
        whole = bytearray(path.read_bytes())
        whole[place % len(whole)] = byte
        path.write_bytes(bytes(whole))
    try:
        import_project(path, folder / "out")
    except sqlanon.SourceError:
        assert not (folder / "out").exists()


@pytest.fixture
def arx_example(data: Path) -> Path:
    path = data / "arx" / "example.deid"
    if not path.is_file():
        pytest.skip("the test data has no project of ARX")
    return path


@pytest.mark.slow
def test_the_example_project_of_arx_is_imported(arx_example: Path, tmp_path: Path) -> None:
    done = import_project(arx_example, tmp_path / "adult")
    policy = sqlanon.Policy.load(done.folder / done.policy)
    assert policy.privacy.k == 5 and len(policy.attributes) == 9
    assert any("selection of records" in line for line in done.left_out)
    with zipfile.ZipFile(arx_example) as archive:
        for name, attribute in policy.attributes.items():
            (rule,) = attribute.hierarchy or ()
            assert rule.file.read_bytes() == archive.read(f"input/hierarchies/{name}.csv")
        original = list(csv.reader(io.StringIO(archive.read("data/input.csv").decode()), delimiter=";"))
    assert list(csv.reader((done.folder / "example.csv").read_text(encoding="utf-8").splitlines())) == original


@pytest.mark.thorough
def test_the_example_has_the_known_optimum(arx_example: Path, tmp_path: Path) -> None:
    done = import_project(arx_example, tmp_path / "adult")
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(done.folder / done.policy))
    assert result.score == pytest.approx(0.229, abs=5e-4)
