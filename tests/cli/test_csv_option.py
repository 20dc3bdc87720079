"""``suggest --csv KEY=VALUE``: how CSV files are written, before there is a policy."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import sqlanon
from sqlanon.errors import PolicyError, SourceError
from sqlanon.policy.sections import CsvSection
from sqlanon.policy.settings import parse_csv_settings
from support.commands import cli

ROWS = "21;m;asthma\n53;w;flu\n" * 20
EXPORT = "Export\n\nage;sex;illness\n" + ROWS + "5;m\n" + ROWS + "6;w;Fieber ä\n" * 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "people.csv").write_text(EXPORT, encoding="latin-1")
    return tmp_path


@pytest.mark.thorough
def test_the_suggested_policy_has_the_keys_and_runs(folder: Path) -> None:
    keys = ["encoding=latin-1", "delimiter=;", "skip=2", "on_bad_line=drop"]
    options = [part for key in keys for part in ("--csv", key)]
    done = cli("suggest", "people.csv", "-o", "policy.toml", *options, cwd=folder)
    warning = "source.csv: people.csv: 1 bad line is dropped: line 44 has 2"
    assert (done.status, done.err) == (0, f"warning: {warning}\n")
    section = (
        "[source.csv]\n# people.csv: 1 bad line is dropped: line 44 has 2\n"
        'encoding = "latin-1"\ndelimiter = ";"\nskip = 2\non_bad_line = "drop"\n'
    )
    assert section in (folder / "policy.toml").read_text()
    done = cli("anonymize", "policy.toml", cwd=folder)
    assert done.status == 0
    assert f"warning: {warning}" in done.err
    assert cli("verify", "people_release.duckdb", "--policy", "policy.toml", cwd=folder).status == 0


@pytest.mark.slow
def test_refusal_names_the_command_option_for_the_key(folder: Path) -> None:
    done = cli("suggest", "people.csv", cwd=folder)
    assert done.status == 2
    assert "line 85 has the byte 0xE4" in done.err
    assert done.err.endswith("(with this command: --csv KEY=VALUE)\n")


def test_all_wrong_settings_are_reported_at_once(folder: Path) -> None:
    wrong = [
        "encodin=latin-1",
        "header",
        "skip=x",
        "delimiter=ab",
        "on_bad_line=ignore",
        "quote='",
        "quote=x",
        "footer=-1",
    ]
    done = cli("suggest", "people.csv", *(part for key in wrong for part in ("--csv", key)), cwd=folder)
    assert done.status == 2
    assert done.err == (
        "error: 7 problems in the options:\n"
        "  - --csv encodin: unknown key 'encodin'; did you mean 'encoding'?\n"
        "  - --csv header: must be KEY=VALUE, as in --csv 'delimiter=;'\n"
        "  - --csv quote: is given twice: leave one out\n"
        "  - --csv delimiter: must be one character other than a line end, not 'ab'\n"
        "  - --csv skip: must be a whole number, not the text 'x'\n"
        "  - --csv footer: must be at least 0, not -1\n"
        "  - --csv on_bad_line: must be one of refuse, drop, not 'ignore'\n"
    )


def test_every_key_has_a_spelling_on_the_command_line() -> None:
    settings = {
        "encoding": ("utf-16", "utf-16"), "delimiter": (r"\t", "\t"), "quote": ('"', '"'), "header": ("false", False),
        "skip": ("3", 3), "footer": ("1", 1), "decimal": (",", ","), "thousands": (".", "."),
        "missing": ('["", "NA"]', ["", "NA"]), "on_bad_line": ("drop", "drop"),
    }  # fmt: skip
    assert settings.keys() == CsvSection.model_fields.keys()
    csv_settings = parse_csv_settings([f"{key}={text}" for key, (text, _) in settings.items()])
    assert csv_settings == {key: value for key, (_, value) in settings.items()}
    assert parse_csv_settings(["quote="]) == {"quote": ""}
    assert parse_csv_settings(["missing=NA"]) == {"missing": "NA"}
    assert parse_csv_settings(["delimiter='='"]) == {"delimiter": "="}
    assert parse_csv_settings([]) is None


@pytest.mark.slow
def test_the_keys_of_python_are_those_of_the_policy(folder: Path) -> None:
    with sqlanon.connect(folder / "people.csv") as db:
        text = db.suggest(csv={"encoding": "latin-1", "on_bad_line": "drop"})
        assert '[source.csv]\n# people.csv: 1 bad line is dropped: line 44 has 2\nencoding = "latin-1"\n' in text
        with pytest.raises(PolicyError, match=r"source\.csv\.skipp: unknown key 'skipp'; did you mean 'skip'"):
            db.suggest(csv={"skipp": 2})


@pytest.mark.slow
def test_other_sources_take_no_keys(folder: Path) -> None:
    with duckdb.connect(str(folder / "people.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS age")
        connection.execute(f"COPY t TO '{folder}/people.parquet'")
    with sqlanon.connect(folder / "people.duckdb") as db, pytest.raises(SourceError, match="applies to CSV files"):
        db.suggest("t", csv={"skip": 2})
    done = cli("suggest", "people.parquet", "--csv", "skip=2", cwd=folder)
    assert (done.status, "--csv: applies to CSV files, and these are Parquet files" in done.err) == (2, True)
