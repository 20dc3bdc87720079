"""Sources whose names and values are markup, quotes, SQL and terminal escapes: `plan` and `report` show text."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.support.terminal import print_sql
from support.databases import quote_name
from support.report_pages import ALLOWED, read

pytestmark = pytest.mark.slow

BITES = [
    "</script><img src=x onerror=alert(1)>",
    "a\"b'c`d",
    "new\nline\r\n; DROP TABLE kept; --",
    "*/ DROP TABLE kept; /*",
    "\x1b]0;owned\x07\x1b[2J\x9b31m",
    "'; COPY kept TO 'stolen.csv'; SELECT '",
    "$$; DROP TABLE kept; $$ {{ x }} ${y}",
    "\u2028\u202e%s {0}\\",
]
TABLE = "".join(BITES)
STEERING = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"


@pytest.fixture(scope="module")
def source() -> Iterator[sqlanon.Database]:
    """A table with a column for each name, and each name as a value."""
    with duckdb.connect() as connection:
        columns = ", ".join(f"{quote_name(name)} VARCHAR" for name in BITES)
        connection.execute(f"CREATE TABLE {quote_name(TABLE)} ({columns})")
        values = [[BITES[(i * j) % len(BITES)] for j in range(len(BITES))] for i in range(32)]
        connection.executemany(f"INSERT INTO {quote_name(TABLE)} VALUES ({', '.join('?' * len(BITES))})", values)
        connection.execute("CREATE TABLE kept AS SELECT 1 AS a")
        with sqlanon.connect(connection) as db:
            yield db


def hostile_policy(**sections: Any) -> sqlanon.Policy:
    categories = {f"group {name}": [name] for name in BITES}
    attributes: dict[str, Any] = {
        BITES[0]: {"role": "quasi", "hierarchy": {"categories": categories}},
        BITES[1]: {"role": "quasi", "hierarchy": {"mask": "right"}},
        BITES[2]: {"role": "quasi", "hierarchy": "suppress"},
        BITES[3]: {"role": "quasi", "hierarchy": "suppress"},
        BITES[4]: {"role": "sensitive"},
        BITES[5]: {"role": "insensitive"},
        BITES[6]: {"role": "insensitive"},
        BITES[7]: {"role": "identifying"},
    }
    diversity = {"attribute": BITES[4], "kind": "entropy", "l": 1.1}
    shield = {"quasi": [BITES[2], BITES[3]], "k": 2}
    tree = {"source": {"table": quote_name(TABLE)}, "search": {"suppression_limit": 0.5}, **sections}
    privacy = {"k": 2, "k_anonymity": [shield], "l_diversity": [diversity]}
    return sqlanon.Policy(attributes=attributes, privacy=privacy, **tree)


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["optimal", "mondrian"])
def test_a_plan_is_its_statements_and_comments(source: sqlanon.Database, strategy: str) -> None:
    plan = source.plan(hostile_policy(search={"strategy": strategy}))
    with duckdb.connect() as reader:
        statements = [statement for stage in plan.stages for statement in stage.sql]
        assert all(len(reader.extract_statements(statement)) == 1 for statement in statements)
        parsed = reader.extract_statements(str(plan))
        kinds = {statement.type for statement in parsed}
    assert len(parsed) == len(statements) > 10
    assert kinds <= {duckdb.StatementType.SELECT, duckdb.StatementType.CREATE}


def test_a_plan_steers_no_terminal(source: sqlanon.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    string_io = io.StringIO()
    monkeypatch.setattr(string_io, "isatty", lambda: True, raising=False)
    with contextlib.redirect_stdout(string_io):
        print_sql(str(source.plan(hostile_policy())))
    assert not re.search(f"{STEERING}|[\r\u2028\u202e]", string_io.getvalue())
    assert "\\x1b]0;owned" in string_io.getvalue()


def test_reports_show_names_and_values_as_text(source: sqlanon.Database, tmp_path: Path) -> None:
    result = source.anonymize(hostile_policy())
    result.report(tmp_path / "private.html", private=True)
    release = result.publish(tmp_path / "r.duckdb", TABLE)
    source.report(release.path, tmp_path / "public.html")
    for name in ("private", "public"):
        page, parsed = (tmp_path / f"{name}.html").read_text(encoding="utf-8"), read(tmp_path / f"{name}.html")
        assert parsed.tags.keys() <= ALLOWED
        assert parsed.tags["script"] == 3
        assert not re.search(r"<[^>]*\bonerror", page)
        assert BITES[1] in parsed.text and BITES[5] in parsed.text
        assert not re.search(STEERING, page), "the page may be printed, too"
        assert "\\x1b]0;owned" in parsed.text
