"""The report and the comments of linked tables say what the release claims and what an attacker can do."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from support.commands import cli
from support.linked_hospital import POLICY, fix_levels, make_hospital


@pytest.fixture(scope="module")
def report(hospital: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a release of patients, visits and lab results."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    ended = cli("report", hospital / "release.duckdb", "-o", path)
    assert (ended.status, "the policy holds" in ended.out) == (0, True)
    return path


def texts(page: Path) -> str:
    """The text of a page, on one line."""
    body = page.read_text(encoding="utf-8").partition("<body>")[2]
    return " ".join(re.sub(r"<[^>]*>", " ", body).split())


@pytest.mark.slow
def test_the_page_has_the_claim_the_tables_and_the_attackers(report: Path) -> None:
    page = texts(report)
    assert "patients, visits and labs: how the people in them are protected" in page
    assert "All checks passed. An attacker who knows the quasi-identifiers of a person and 2 child rows finds 3" in page
    for name in ("What an attacker can do", "The columns of labs", "the new key of a row of visits", "all child rows"):
        assert name in page
    assert "FROM sqlanon.km_anonymity(&#x27;known_rows&#x27;, 2)" in page or "km_anonymity('known_rows', 2)" in page


def test_the_page_loads_and_runs_nothing(report: Path) -> None:
    page = report.read_text(encoding="utf-8")
    assert "<script" not in page and "http://" not in page and "https://" not in page
    assert "default-src 'none'; style-src 'sha256-" in page


def test_a_changed_release_is_reported_as_not_verified(hospital: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.duckdb"
    changed.write_bytes((hospital / "release.duckdb").read_bytes())
    with duckdb.connect(str(changed)) as connection:
        connection.execute("DELETE FROM labs_v1")
    ended = cli("report", changed, "-o", tmp_path / "report.html")
    assert (ended.status, "NOT verified" in ended.out) == (1, True)
    page = texts(tmp_path / "report.html")
    assert "NOT verified: " in page and "What an attacker can do" not in page


def test_options_for_one_table_are_refused(hospital: Path, tmp_path: Path) -> None:
    ended = cli("report", hospital / "release.duckdb", "-o", tmp_path / "report.html", "--private")
    assert (ended.status, "--private: is for one table" in ended.err) == (2, True)


@pytest.mark.slow
def test_the_report_of_a_policy_shows_what_it_would_release_and_publishes_nothing(tmp_path: Path) -> None:
    make_hospital(tmp_path, fix_levels(POLICY) + '\n[catalog]\ndatabase = "private.duckdb"\n')
    page = tmp_path / "report.html"
    ended = cli("report", tmp_path / "policy.toml", "-o", page)
    assert (ended.status, "nothing was published" in ended.out) == (0, True), ended.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hospital.duckdb", "policy.toml", "report.html"]
    assert "Nothing was published: this is what the policy would release. An attacker who knows" in texts(page)
    assert "The columns of labs" in texts(page) and "Check it yourself" not in texts(page)
    refused = cli("report", tmp_path / "policy.toml", "-o", page, "--private")
    assert (refused.status, "--private: is for one table" in refused.err) == (2, True)


@pytest.mark.parametrize("command", [("report", "-o", "page.html"), ("attack",), ("verify",)])
def test_a_file_has_no_schema(hospital: Path, command: tuple[str, ...]) -> None:
    ended = cli(*command, hospital / "release.duckdb", "--schema", "shared")
    assert (ended.status, "--schema: is for a release in PostgreSQL" in ended.err) == (2, True)


def test_comments_say_what_each_table_and_column_is(hospital: Path) -> None:
    with duckdb.connect(str(hospital / "release.duckdb"), read_only=True) as connection:
        views = dict(connection.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall())
        columns = connection.execute(
            "SELECT column_name, comment FROM duckdb_columns() WHERE table_name = 'visits' AND NOT internal"
        ).fetchall()
    assert views["visits"].startswith("rows of patients, anonymized by sqlanon")
    assert "together with all of patients, visits and labs, for an attacker who knows 2 child rows" in views["visits"]
    comments = dict(columns)
    assert comments["patient_id"] == "key: the new key of a row of patients"
    assert comments["diagnosis"] == "sensitive attribute: unchanged"
    assert comments["admitted"].startswith("quasi-identifier: level ")
