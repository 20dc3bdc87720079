"""Noise that is published again averages away: what a record has spent adds up over all releases of its source."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.errors import AuditError, PolicyError
from support.files import folder_again, folder_and_copy

pytestmark = pytest.mark.usefixtures("plain_macros")

ROWS = 40


def make_clinic(place: Path) -> None:
    with duckdb.connect(str(place / "clinic.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT 20 + i % 4 AS age, 100 + i * 7 % 90 AS cost, 50 + i * 3 % 40 AS weight "
            f"FROM range({ROWS}) t(i)"
        )


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    make_clinic(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def clinic_of_before(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("clinic")
    make_clinic(folder)
    publish(policy(folder, "one", {"cost": 1.0}))
    return folder_and_copy(folder)


@pytest.fixture
def with_one(clinic_of_before: tuple[Path, Path]) -> Path:
    """The clinic, with a release of it that has noise on the costs: one."""
    return folder_again(*clinic_of_before)


def policy(place: Path, name: str, noise: dict[str, float], total: float | None = None, **more: Any) -> sqlanon.Policy:
    attributes: dict[str, Any] = {"age": {"role": "quasi", "hierarchy": {"intervals": [5]}}}
    attributes |= {column: {"role": "quasi", "noise": {"epsilon": epsilon}} for column, epsilon in noise.items()}
    return sqlanon.Policy(
        source={"database": place / "clinic.duckdb", "table": "visits", "undeclared": "drop"} | more.pop("source", {}),
        attributes=attributes,
        privacy={"k": 5} | ({} if total is None else {"epsilon_total": total}),
        release={"database": place / f"{name}.duckdb", "table": "visits"} | more.pop("release", {}),
        catalog={"database": place / "catalog.duckdb"},
    )


def publish(requested_policy: sqlanon.Policy, force: bool = False) -> sqlanon.Result:
    with sqlanon.connect() as db:
        result = db.anonymize(requested_policy)
        result.publish(force=force)
    return result


def so_far(place: Path) -> float:
    with duckdb.connect(str(place / "catalog.duckdb"), read_only=True) as reader:
        row = reader.execute("SELECT max(epsilon_so_far) FROM sqlanon.ledger").fetchone()
    assert row is not None
    return float(row[0])


@pytest.mark.thorough
def test_noise_on_an_attribute_again_is_refused(with_one: Path) -> None:
    for name in ("two", "one"):  # in another place, or in the same, where it replaces the first
        with pytest.raises(AuditError) as caught:
            publish(policy(with_one, name, {"cost": 0.5}))
        message = str(caught.value)
        assert "epsilon of a record: 1 so far, in 1 release of this source, 0.5 in this one, 1.5 in all" in message
        assert "[privacy] epsilon_total" in message
        assert "--force: each record then has an epsilon of 1.5, so readers of all releases know its values" in message
    assert not (with_one / "two.duckdb").exists()
    assert so_far(with_one) == 1.0


@pytest.mark.thorough
def test_replaced_releases_spend_their_budget(with_one: Path) -> None:
    publish(policy(with_one, "one", {}))  # takes its place
    with pytest.raises(AuditError, match="1 so far"):
        publish(policy(with_one, "one", {"cost": 1.0}))


@pytest.mark.slow
def test_by_force_it_is_published_with_a_warning(with_one: Path) -> None:
    result = publish(policy(with_one, "one", {"cost": 2.0}), force=True)
    assert any("published with --force" in warning and "3 in all" in warning for warning in result.warnings)
    assert so_far(with_one) == 3.0


@pytest.mark.thorough
def test_noise_on_another_attribute_is_refused_without_a_total_that_allows_the_sum(with_one: Path) -> None:
    """The other attribute may follow from the first, as pounds follow from kilograms."""
    with pytest.raises(AuditError, match=r"1\.5 in all: set \[privacy\] epsilon_total = 1\.5 to allow that sum"):
        publish(policy(with_one, "one", {"weight": 0.5}))
    with pytest.raises(AuditError, match=r"1\.5 in all; \[privacy\] epsilon_total allows 1\.2"):
        publish(policy(with_one, "one", {"weight": 0.5}, total=1.2))
    publish(policy(with_one, "one", {"weight": 0.5}, total=1.5))
    assert so_far(with_one) == 1.5


@pytest.mark.thorough
def test_noise_on_kilograms_and_then_on_pounds_is_refused(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT 20 + i % 4 AS age, kg, round(kg * 2.2046, 1) AS lb "
            f"FROM (SELECT i, 50 + i * 3 % 40 AS kg FROM range({ROWS}) t(i)) s"
        )
    publish(policy(tmp_path, "one", {"kg": 1.0}))
    with pytest.raises(AuditError, match="epsilon of a record: 1 so far, in 1 release of this source, 1 in this one"):
        publish(policy(tmp_path, "two", {"lb": 1.0}))
    assert not (tmp_path / "two.duckdb").exists()
    publish(policy(tmp_path, "three", {}))  # without noise it spends nothing


@pytest.mark.thorough
def test_releases_are_let_through_as_far_as_the_total_allows(clinic: Path) -> None:
    """The oracle adds up the published epsilon, in decimals."""
    total, spent, refused = Decimal("0.7"), Decimal(0), 0
    for i in range(6):
        epsilon = Decimal(i % 3 + 1) / 10
        name = f"r{i % 2}"
        requested_policy = policy(clinic, name, {"cost": float(epsilon)}, total=float(total))
        if spent + epsilon <= total:
            publish(requested_policy)
            spent += epsilon
        else:
            with pytest.raises(AuditError, match=r"epsilon_total allows 0\.7"):
                publish(requested_policy)
            refused += 1
        assert so_far(clinic) == pytest.approx(float(spent))
    assert spent == total and refused == 2


@pytest.mark.thorough
def test_a_result_that_is_published_twice_shows_the_same_noise(clinic: Path) -> None:
    with sqlanon.connect() as db:
        result = db.anonymize(policy(clinic, "one", {"cost": 1.0}))
        first, second = result.publish(), result.publish(clinic / "two.duckdb")
    assert first.manifest.digest == second.manifest.digest
    assert so_far(clinic) == 1.0
    publish(policy(clinic, "three", {"weight": 0.5}, total=1.5))


@pytest.mark.slow
def test_the_ledger_is_not_left_out_without_force(clinic: Path) -> None:
    requested_policy = policy(clinic, "one", {"cost": 1.0}, release={"ledger": False})
    with pytest.raises(AuditError, match=r"release\.ledger is false.*--force: readers of several releases can average"):
        publish(requested_policy)
    publish(requested_policy, force=True)


def test_a_total_that_the_release_alone_exceeds_is_a_mistake(clinic: Path) -> None:
    with pytest.raises(PolicyError, match=r"privacy\.epsilon_total.*this one adds 2"):
        policy(clinic, "one", {"cost": 1.0, "weight": 1.0}, total=1.5)
    with pytest.raises(PolicyError, match=r"privacy\.epsilon_total.*no attribute has noise"):
        policy(clinic, "one", {}, total=1.5)


def test_a_policy_without_a_total_has_the_fingerprint_that_it_had(clinic: Path) -> None:
    plain = policy(clinic, "one", {"cost": 1.0})
    assert "epsilon_total" not in plain.model_dump(mode="json")["privacy"]
    assert "epsilon_total" not in policy(clinic, "one", {"cost": 1.0}, total=2.0).redact()["privacy"]


@pytest.mark.thorough
@pytest.mark.extras
@pytest.mark.parametrize("person", [False, "owner"])
def test_the_ledger_knows_the_keys_of_rows_with_noise(person: str | bool, tmp_path: Path) -> None:
    """The ledger records hashes of the keys, also with persons."""
    with duckdb.connect(str(tmp_path / "clinic.duckdb")) as connection:
        connection.execute(
            "CREATE TABLE visits AS SELECT i AS id, i // 2 AS owner, 20 + i % 4 AS age, 100 + i * 7 % 90 AS cost "
            f"FROM range({ROWS}) t(i)"
        )
    source = {"key": "id", "person": person}
    publish(policy(tmp_path, "noisy", {"cost": 1.0}, source=source))
    publish(policy(tmp_path, "plain", {}, source=source))
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as reader:
        recorded = reader.execute(
            "SELECT path, list(key_hash ORDER BY key_hash) "
            "FROM sqlanon.ledger JOIN sqlanon.released_keys USING (run_id) GROUP BY path"
        ).fetchall()
    keys = {Path(path).stem: hashes for path, hashes in recorded}
    assert len(set(keys["noisy"])) == ROWS and keys["noisy"] == keys["plain"]
