"""Requirements from the registry: one of EXTENDING.md, in a file outside the package, goes all the way."""

from __future__ import annotations

import ast
import itertools
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest
from few_classes import FewClasses

import sqlanon
from sqlanon import AuditError, InfeasibleError, PolicyError
from sqlanon.audit.verify import verify_file
from sqlanon.requirements import register, requirement_types, unregister
from sqlanon.requirements.plain_sql import WarehouseRelease
from sqlanon.support.expressions import table
from support.commands import cli
from support.databases import change, insert
from support.files import ROOT
from support.lanes import some
from support.recipes import recipe

Others = recipe("others").Others

POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"
[attributes]
zip = { role = "quasi", hierarchy = { mask = "right" } }
age = { role = "quasi", hierarchy = { intervals = [5, 10, 20] } }
illness = { role = "sensitive" }
[[privacy.others]]
attribute = "illness"
rows = 2
[search]
suppression_limit = 0.2
measure = "relative_height"
[release]
database = "release.duckdb"
"""
HEIGHTS = {"zip": 3, "age": 4}

Row = tuple[str, int, str]


@contextmanager
def registered_requirement() -> Iterator[None]:
    register(Others)
    try:
        yield
    finally:
        unregister(Others)


@pytest.fixture(autouse=True)
def register_requirement() -> Iterator[None]:
    with registered_requirement():
        yield


def patients(seed: int = 1, count: int = 60) -> list[Row]:
    chance = random.Random(seed)
    ills = ("flu", "flu", "flu", "asthma", "HIV")
    return [
        (chance.choice(("021", "024", "130", "139")), chance.randrange(20, 60), chance.choice(ills))
        for _ in range(count)
    ]


def write(folder: Path, rows: Sequence[Row], policy: str = POLICY) -> sqlanon.Policy:
    with duckdb.connect(str(folder / "hospital.duckdb")) as connection:
        connection.execute("CREATE OR REPLACE TABLE patients (zip VARCHAR, age INTEGER, illness VARCHAR)")
        insert(connection, "patients", rows)
    (folder / "policy.toml").write_text(policy, encoding="utf-8")
    return sqlanon.Policy.load(folder / "policy.toml")


def classes(rows: Sequence[Row], levels: tuple[int, ...]) -> list[list[str]]:
    """The illnesses in each class of a generalization."""
    illnesses: dict[tuple[str, int], list[str]] = {}
    width = (1, 5, 10, 20, 1000)[levels[1]]
    for zip_, age, illness in rows:
        illnesses.setdefault((zip_[: 3 - levels[0]], age // width), []).append(illness)
    return list(illnesses.values())


def holds(illnesses: Sequence[str], least: int = 2) -> bool:
    return len(illnesses) - max(Counter(illnesses).values()) >= least


def best(rows: Sequence[Row], limit: float) -> tuple[float, tuple[int, ...]] | None:
    """The least relative height, of all generalizations that leave out few enough rows."""
    candidates = []
    for levels in itertools.product(range(HEIGHTS["zip"] + 1), range(HEIGHTS["age"] + 1)):
        lost = sum(len(class_) for class_ in classes(rows, levels) if not holds(class_))
        if lost <= limit * len(rows) and lost < len(rows):
            height = sum(level / top for level, top in zip(levels, HEIGHTS.values(), strict=True))
            candidates.append((height, sum(levels), levels))
    return (min(candidates)[0], min(candidates)[2]) if candidates else None


Published = tuple[sqlanon.Release, sqlanon.Policy]


@pytest.fixture(scope="module")
def published_release(tmp_path_factory: pytest.TempPathFactory) -> Published:
    """A release that tests read, with its source and its policy."""
    folder = tmp_path_factory.mktemp("published")
    with registered_requirement():
        policy = write(folder, patients())
        with sqlanon.connect() as db:
            release = db.anonymize(policy).publish(folder / "release.duckdb")
    assert isinstance(release, sqlanon.Release)
    return release, policy


@pytest.mark.thorough
@pytest.mark.parametrize("seed", some(range(6), 3))
def test_the_search_finds_the_best_that_meets_it(tmp_path: Path, seed: int) -> None:
    rows = patients(seed, 40)
    policy = write(tmp_path, rows)
    expected = best(rows, 0.2)
    with sqlanon.connect() as db:
        if expected is None:
            with pytest.raises(InfeasibleError, match="2 others of illness"):
                db.anonymize(policy)
            return
        result = db.anonymize(policy)
    height, levels = expected
    assert (result.score, tuple(result.generalization.values())) == (pytest.approx(height), levels)
    released_classes = classes(rows, levels)
    assert result.suppressed_rows == sum(len(group) for group in released_classes if not holds(group))


@pytest.mark.thorough
def test_an_unmet_toy_requirement_is_named(tmp_path: Path) -> None:
    policy = write(tmp_path, patients(), POLICY.replace("rows = 2", "rows = 50"))
    with sqlanon.connect() as db, pytest.raises(InfeasibleError, match="50 others of illness"):
        db.anonymize(policy)


@pytest.mark.thorough
def test_a_release_is_audited_and_verified(published_release: Published) -> None:
    release, policy = published_release
    with sqlanon.connect() as db:
        verification = db.verify(release.path, policy)
    (check,) = (item for item in verification.checks if item.name == "2 others of illness")
    assert verification.verified and check.passed
    assert any(
        "sum(row_count) - max(row_count)" in statement.lower().replace('"', "") for statement in release.verify_sql()
    )
    ended = cli("verify", "release.duckdb", "--json", cwd=release.path.parent)
    assert ended.status == 0 and "2 others of illness" in ended.out


@pytest.mark.slow
def test_the_audit_does_not_believe_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = write(tmp_path, [("021", 20 + i % 2, "flu") for i in range(20)])
    monkeypatch.setattr(Others, "condition", lambda self: self.distribution.column("others") >= 0)
    with sqlanon.connect() as db, pytest.raises(AuditError, match="2 others of illness"):
        db.anonymize(policy).publish(tmp_path / "release.duckdb")
    assert not (tmp_path / "release.duckdb").exists()


@pytest.mark.thorough
def test_a_release_that_was_changed_does_not_verify(
    published_release: tuple[sqlanon.Release, sqlanon.Policy], tmp_path: Path
) -> None:
    path = Path(shutil.copy(published_release[0].path, tmp_path))
    change(path, f"""UPDATE "{published_release[0].manifest.rows_table}" SET illness = 'flu'""")
    (check,) = (item for item in verify_file(path).checks if item.name == "2 others of illness")
    assert check.passed is False and check.message == "a class has 0"


@pytest.mark.thorough
def test_a_policy_validates_a_registered_requirement(tmp_path: Path) -> None:
    policy = write(tmp_path, patients())
    assert policy.privacy.others == (Others(attribute="illness", rows=2),)
    assert policy.requirements == {"others": ({"attribute": "illness", "rows": 2},)}
    assert sqlanon.Policy(**policy.model_dump(exclude_none=True)) == policy
    schema = sqlanon.Policy.model_json_schema()["$defs"]
    assert schema["Others"]["required"] == ["rows"]
    assert schema["Others"]["oneOf"] == [{"required": ["attribute"]}, {"required": ["attributes"]}]
    assert "others" in schema["PrivacySection"]["properties"]
    wrong = {
        'attribute = "illness"\nrows = 2': ('attribute = "zip"\nrows = 2', "'zip' is quasi"),
        "rows = 2": ("rows = 0", "must be at least 1"),
        "[[privacy.others]]": ("[[privacy.other]]", "did you mean 'others'?"),
    }
    for part, (replacement, message) in wrong.items():
        with pytest.raises(PolicyError) as error:
            write(tmp_path, patients(), POLICY.replace(part, replacement))
        assert message in str(error.value)


def test_other_policies_are_the_same_with_it() -> None:
    document: dict[str, Any] = {
        "attributes": {"zip": {"role": "quasi", "hierarchy": "suppress"}, "ill": {"role": "sensitive"}},
        "privacy": {"k": 2, "alpha_k": {"attribute": "ill", "alpha": 0.5}},
    }
    having = sqlanon.Policy(**document).fingerprint()
    unregister(Others)
    try:
        assert sqlanon.Policy(**document).fingerprint() == having
        with pytest.raises(PolicyError, match="unknown key 'others'"):
            sqlanon.Policy(**{**document, "privacy": {"others": {"attribute": "ill", "rows": 1}}})
    finally:
        register(Others)


def test_requirement_is_registered_once() -> None:
    with pytest.raises(ValueError, match="'others'"):
        register(Others)


@pytest.mark.thorough
def test_the_risk_of_a_source_has_it(tmp_path: Path) -> None:
    rows = patients()
    policy = write(tmp_path, rows)
    with sqlanon.connect() as db:
        (requirement,) = db.risk(policy).requirements
    broken = [class_ for class_ in classes(rows, (0, 0)) if not holds(class_)]
    assert (requirement.requirement, requirement.holds) == ("2 others of illness", False)
    assert (requirement.classes, requirement.rows) == (len(broken), sum(map(len, broken)))


@pytest.mark.thorough
def test_a_plan_and_a_report_have_it(tmp_path: Path) -> None:
    policy = write(tmp_path, patients())
    with sqlanon.connect() as db:
        plan = str(db.plan(policy))
        assert 'AS "illness values others"' in plan and 'MIN("others")' in plan
        result = db.anonymize(policy)
        result.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "In each group, at least 2 rows have another illness than most." in page
    assert "2 others of illness" in page


def test_a_live_view_keeps_it(tmp_path: Path) -> None:
    policy = write(tmp_path, patients())
    with sqlanon.connect() as db:
        view = db.live(policy, "seen")
    with duckdb.connect(str(tmp_path / "hospital.duckdb")) as connection:
        connection.execute("INSERT INTO patients SELECT '999', 99, 'flu' FROM range(2)")  # a class of its own, or few
        seen = connection.execute("SELECT zip, age, illness FROM seen").fetchall()
    illnesses: dict[tuple[str, str], list[str]] = {}
    for zip_, age, illness in seen:
        illnesses.setdefault((zip_, age), []).append(illness)
    assert view is not None and illnesses and all(map(holds, illnesses.values()))


@pytest.mark.thorough
def test_a_warehouse_audits_a_registered_requirement(published_release: Published) -> None:
    release, policy = published_release
    with sqlanon.connect() as db:
        plan = db.plan(policy, dialect="duckdb")
        assert '"illness"' in plan.stages[0].sql[0]
        (audit,) = (statement for statement in plan.stages[-1].sql if statement.startswith("-- 2 others of illness"))
        assert audit.rstrip().endswith("< 2")
    (requirement,) = policy.privacy.others
    for relation, path, met in (
        ("patients", release.path, True),
        ("patients", release.path.with_name("hospital.duckdb"), False),
    ):
        names = {name: name for name in policy.attributes}
        query = requirement.violations(
            WarehouseRelease(table(relation), table(relation), policy.generalized_attributes, ["illness"], names)
        )
        with duckdb.connect(str(path), read_only=True) as connection:
            assert (connection.execute(query.sql("duckdb")).fetchall() == []) is met


@pytest.mark.slow
def test_no_other_module_names_a_requirement() -> None:
    """But k, and k of some attributes, which several stages are about; two are also figures of a result. What
    translates the criteria of another tool has to name ours."""
    special_keys = ("k", "k_anonymity", "null_map", "wrong_map")
    mine = [kind for kind in requirement_types() if kind is not Others and kind.entry.key not in special_keys]
    words = {word for kind in mine for word in (kind.entry.key, f"privacy.{kind.entry.key}", kind.__name__)}
    package = ROOT / "sqlanon"
    paths = [path for path in package.rglob("*.py") if path.parent != package / "requirements"]
    paths.remove(package / "arx" / "criteria.py")
    assert len(paths) > 100
    for path in paths:
        text = path.read_text(encoding="utf-8")
        if not any(word in text for word in words):
            continue
        nodes = list(ast.walk(ast.parse(text)))
        values = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
        values |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        assert words.isdisjoint(values), (path, words & values)


# A requirement on the whole table, of the form of a number


@pytest.fixture
def few_classes() -> Iterator[None]:
    register(FewClasses)
    yield
    unregister(FewClasses)


FEW = POLICY.replace('[[privacy.others]]\nattribute = "illness"\nrows = 2', "[privacy]\nfew_classes = 4").replace(
    "0.2", "0"
)


@pytest.mark.thorough
@pytest.mark.usefixtures("few_classes")
def test_a_requirement_on_the_table_goes_all_the_way(tmp_path: Path) -> None:
    rows = patients()
    policy = write(tmp_path, rows, FEW)
    every = itertools.product(range(HEIGHTS["zip"] + 1), range(HEIGHTS["age"] + 1))
    enough = [levels for levels in every if len(classes(rows, levels)) <= 4]
    expected = min(sum(level / top for level, top in zip(vector, HEIGHTS.values(), strict=True)) for vector in enough)
    with sqlanon.connect() as db:
        (risk,) = db.risk(policy).requirements
        assert (risk.holds, risk.figure, risk.limit) == (False, len(classes(rows, (0, 0))), 4)
        result = db.anonymize(policy)
        assert result.score == pytest.approx(expected)
        release = result.publish(tmp_path / "release.duckdb")
        assert db.verify(tmp_path / "release.duckdb", policy).verified
        audit = str(db.plan(policy, dialect="spark").stages[-1].sql[0])
        result.report(tmp_path / "page.html")
        with pytest.raises(PolicyError, match=r"privacy\.few_classes: is about the whole table"):
            db.live(policy, "seen")
    assert isinstance(release, sqlanon.Release)
    (check,) = (item for item in release.verify().checks if item.name == "at most 4 classes")
    assert check.passed and check.message == f"there are {len(classes(rows, tuple(result.generalization.values())))}"
    assert audit.startswith("-- at most 4 classes") and "> 4" in audit
    assert "There are at most 4 groups." in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(PolicyError, match=r"privacy\.few_classes: strategy mondrian decides class by class"):
        write(tmp_path, rows, FEW.replace('"relative_height"', '"loss"\nstrategy = "mondrian"'))


@pytest.mark.thorough
@pytest.mark.usefixtures("few_classes")
def test_a_limit_on_the_table_that_cannot_be_met_is_named(tmp_path: Path) -> None:
    policy = write(tmp_path, patients(), FEW.replace("few_classes = 4", "few_classes = 1\nk = 61"))
    with sqlanon.connect() as db, pytest.raises(InfeasibleError, match="61-anonymity"):
        db.anonymize(policy)
