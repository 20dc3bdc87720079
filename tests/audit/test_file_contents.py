"""Tampering with the tables of a release file: each change is reported by one check, which names what was changed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from sqlanon.audit.metadata import check_metadata, check_stable_view, check_suppression
from sqlanon.audit.verify import verify_release
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.release.contents import (
    ATTACHED,
    expected_objects,
    find_unexpected_definitions,
    is_plain_table,
    list_objects,
    read_comments,
)
from sqlanon.release.label_levels import LEVELS, LEVELS_COLUMNS
from sqlanon.release.manifest import Manifest, ReleasedColumn
from sqlanon.release.metadata import attribute_rows, expected_comments, figure_rows, write_metadata
from sqlanon.release.reader import SUBJECT, CachedQueries, OpenRelease, read_manifests
from sqlanon.support.checks import Check
from sqlanon.support.expressions import create_table_with_columns, table
from sqlanon.support.resources import RELEASE_MACROS, __version__, macro_scripts

COLUMNS = (
    ReleasedColumn("age", "VARCHAR", "quasi"),
    ReleasedColumn("ward", "VARCHAR", "quasi"),
    ReleasedColumn("cost", "DOUBLE", "insensitive"),
)
CLASSES = {("20-29", "a"): 3, ("20-29", "b"): 4, ("30-39", "a"): 5}
SUPPRESSED = [("age", "20-29", 4, 7)]
LEVEL_ROWS = [
    ("age", "20-29", 1, "20-29"),
    ("age", "20-29", 2, "20-39"),
    ("age", "20-29", 3, "*"),
    ("age", "30-39", 1, "30-39"),
    ("age", "30-39", 2, "20-39"),
    ("age", "30-39", 3, "*"),
    ("age", "20-39", 2, "20-39"),
    ("age", "20-39", 3, "*"),
    ("age", "*", 3, "*"),
]
NEWEST = Manifest(
    table_name="t",
    published_at=datetime(2026, 1, 2),
    sqlanon_version=__version__,
    engine="duckdb 9.9.9, python 3.12.0",  # whose macros and views cannot be compared
    policy={
        "attributes": {
            "age": {"role": "quasi", "hierarchy": [{"rule": "intervals", "widths": [10, 20]}]},
            "ward": {"role": "quasi", "hierarchy": [{"rule": "suppress"}]},
            "cost": {"role": "insensitive"},
        },
        "privacy": {"k": 3},
        "search": {"strategy": "optimal", "measure": "height"},
    },
    policy_hash="0" * 64,
    columns=COLUMNS,
    generalization={"age": 1, "ward": 0},
    rows=16,
    released_rows=12,
    suppressed_rows=4,
    classes=3,
    smallest_class=3,
    measure="height",
    score=1.0,
    optimal=True,
    digest="",
    heights={"age": 3, "ward": 1},
    version=8,
)
ALL = [replace(NEWEST, version=version) for version in range(8, 0, -1)]


WRONG_VERSIONS = {
    1: ("UPDATE t_v1 SET cost = 9 WHERE cost = 4", "claimed"),
    2: ("DELETE FROM t_v2 WHERE cost = 4", "claimed"),
    3: ("UPDATE sqlanon.manifest SET classes = 4 WHERE version = 3", "claimed"),
    4: ("UPDATE sqlanon.manifest SET smallest_class = 4 WHERE version = 4", "claimed"),
    5: ("UPDATE sqlanon.manifest SET measure = 'loss' WHERE version = 5", "contradicts itself in measure"),
    6: ("ALTER TABLE t_v6 RENAME cost TO price", "claimed [["),
    7: ("SELECT 1", ""),
}
"""Versions that a release keeps, with a change of each."""


@pytest.fixture(scope="module")
def template() -> Iterator[DuckDBEngine]:
    """An engine with a release in the database ``template``, which keeps seven earlier versions."""
    with closing(DuckDBEngine(duckdb.connect())) as engine:
        engine.script(*macro_scripts(RELEASE_MACROS))
        run = engine.connection.execute
        run("ATTACH ':memory:' AS template; CREATE SCHEMA template.sqlanon")
        values = [f"('{age}', '{ward}', {n})" for (age, ward), n in CLASSES.items()]
        run(
            f"CREATE TEMP TABLE written AS SELECT age, ward, i::DOUBLE AS cost FROM (VALUES {', '.join(values)}) "
            "AS c(age, ward, n), range(n) AS r(i)"
        )
        ((digest,),) = run("SELECT digest FROM sqlanon.digest('written')").fetchall()
        manifests = [replace(NEWEST, version=version, digest=digest) for version in range(8, 0, -1)]
        columns = {name: _sql_type(value) for name, value in NEWEST.row().items()}
        run(f"CREATE TABLE template.sqlanon.manifest ({', '.join(f'{key} {type_}' for key, type_ in columns.items())})")
        for manifest in manifests:
            run(f"CREATE TABLE template.t_v{manifest.version} AS FROM written")
            run(f"INSERT INTO template.sqlanon.manifest VALUES ({', '.join('?' * len(columns))})", [*_cells(manifest)])
        engine.execute(create_table_with_columns(table(LEVELS, "sqlanon", "template"), LEVELS_COLUMNS.items()))
        run(f"INSERT INTO template.sqlanon.{LEVELS} VALUES {', '.join(map(str, LEVEL_ROWS))}")
        with engine.using("template"):
            write_metadata(engine, manifests, {"age": "integer"}, SUPPRESSED, "template")
        yield engine


def _sql_type(value: Any) -> str:
    kinds = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", datetime: "TIMESTAMP"}
    return kinds.get(type(value), "VARCHAR")


def _cells(manifest: Manifest) -> Iterator[Any]:
    for name, value in manifest.row().items():
        yield json.dumps(value) if name == "columns" and not isinstance(value, str) else value


@pytest.fixture
def engine(template: DuckDBEngine) -> Iterator[DuckDBEngine]:
    """The engine with a copy of the release, attached as a release file is."""
    template.script(f"ATTACH ':memory:' AS {ATTACHED}; COPY FROM DATABASE template TO {ATTACHED}")
    template.connection.execute(f"CREATE TEMP VIEW {SUBJECT.name} AS FROM {ATTACHED}.t_v8")
    yield template
    detach(template)


def detach(engine: DuckDBEngine) -> None:
    views = [SUBJECT.name, *(f"version_{version}" for version in WRONG_VERSIONS)]
    engine.script(*(f"DROP VIEW IF EXISTS temp.{view}" for view in views), f"DETACH {ATTACHED}")


def change(engine: DuckDBEngine, *statements: str) -> list[Manifest]:
    """Change the release, and return its manifests."""
    with engine.using(ATTACHED):
        for statement in statements:
            engine.connection.execute(statement)
    return read_manifests(engine)


def failed_checks(engine: DuckDBEngine, *statements: str) -> dict[str, Check]:
    """The checks of the release that do not pass, after some changes."""
    manifests = change(engine, *statements)
    release = OpenRelease(engine, CachedQueries(engine), manifests[0], True, tuple(manifests))
    checks = verify_release(Path("r.duckdb"), release, fresh=False).checks
    return {check.name: check for check in checks if check.passed is not True and check.name != "macros"}


def test_each_earlier_version_is_compared_with_its_manifest(engine: DuckDBEngine) -> None:
    changes, words = zip(*WRONG_VERSIONS.values(), strict=True)
    failures = failed_checks(engine, *changes)
    comments = failures.pop("comments and views")
    assert comments.message == "the comments do not match the manifest"
    assert set(failures) == {f"version {version}" for version in WRONG_VERSIONS if version != 7}
    for version, part in enumerate(words[:-1], start=1):
        assert part in failures[f"version {version}"].message


def test_a_block_that_is_not_in_use_may_hold_deleted_rows(template: DuckDBEngine, tmp_path: Path) -> None:
    attach = f"ATTACH '{tmp_path / 'r.duckdb'}' AS {ATTACHED}"
    template.script(f"{attach}; CREATE TABLE {ATTACHED}.gone AS FROM range(20_000)")
    template.script(f"COPY FROM DATABASE template TO {ATTACHED}; DETACH {ATTACHED}")
    template.script(f"{attach}; DROP TABLE {ATTACHED}.gone; DETACH {ATTACHED}; {attach} (READ_ONLY)")
    template.connection.execute(f"CREATE TEMP VIEW {SUBJECT.name} AS FROM {ATTACHED}.t_v8")
    try:
        assert "1 blocks are not in use" in failed_checks(template)["file"].message
    finally:
        detach(template)


CONTENTS = {
    "CREATE TABLE more (x INTEGER)": {"table main.more"},
    "CREATE VIEW more AS SELECT 1 AS x": {"view main.more"},
    "CREATE SCHEMA more": {"schema more.more"},
    "CREATE SEQUENCE more": {"sequence main.more"},
    "CREATE TYPE more AS ENUM ('a')": {"type main.more"},
    "CREATE INDEX more ON t_v8 (age)": {"index main.more"},
    "ALTER TABLE t_v8 ALTER age SET DEFAULT 'x'": {"default of column main.age", "definition of main.t_v8"},
    "ALTER TABLE t_v8 ALTER age SET NOT NULL": {"constraint of table main.t_v8", "definition of main.t_v8"},
    "DROP VIEW quality": {"view main.quality"},
    "DROP TABLE sqlanon.suppression": {"table sqlanon.suppression"},
    "ALTER TABLE t_v8 ALTER ward TYPE VARCHAR COLLATE NOCASE": {"definition of main.t_v8"},
    "ALTER TABLE sqlanon.figures ALTER meaning TYPE VARCHAR COLLATE NOCASE": {"definition of sqlanon.figures"},
}


@pytest.mark.slow
def test_objects_that_a_release_does_not_have_are_found_by_the_catalog(template: DuckDBEngine) -> None:
    for statement, expected in CONTENTS.items():
        template.script(f"ATTACH ':memory:' AS {ATTACHED}; COPY FROM DATABASE template TO {ATTACHED} (SCHEMA)")
        with template.using(ATTACHED):
            template.connection.execute(statement)
        objects = list_objects(template) ^ expected_objects(ALL)
        objects |= {f"definition of {name}" for name in find_unexpected_definitions(template)}
        template.script(f"DETACH {ATTACHED}")
        assert objects == expected


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE SEQUENCE more", "sequence main.more is not part of the release"),
        ("DROP TABLE t_v1", "table main.t_v1 is missing"),
        ("ALTER TABLE t_v1 ALTER age TYPE VARCHAR COLLATE NOCASE", "table main.t_v1 has constraints, defaults or"),
    ],
)
def test_no_row_is_read_of_a_release_with_other_contents(statement: str, words: str, engine: DuckDBEngine) -> None:
    failures = failed_checks(engine, statement)
    assert {name: check.passed for name, check in failures.items()} == {"contents": False, "rows": None}
    assert words in failures["contents"].message


@pytest.mark.slow
def test_rows_are_read_from_plain_tables_only(engine: DuckDBEngine) -> None:
    assert [is_plain_table(engine, "main", name) for name in ("T_V8", "t")] == [True, False]
    change(
        engine,
        "CREATE INDEX more ON t_v8 (age)",
        "ALTER TABLE t_v7 ALTER ward TYPE VARCHAR COLLATE NOCASE",
        "ALTER TABLE t_v6 ALTER age SET DEFAULT 'x'",
    )
    names = ("t_v8", "T_V7", "T_V6", "t_v5")
    assert [is_plain_table(engine, "main", name) for name in names] == [False, False, False, True]


NO_VIEW_OF_READERS = [
    " AS SELECT age, ward FROM t_v8",
    " AS SELECT age, ward, cost FROM t_v7",
    " AS SELECT age, ward, cost FROM t_v8 WHERE cost > 0",
    " AS SELECT age, ward AS cost, cost AS ward FROM t_v8",
    " AS SELECT DISTINCT age, ward, cost FROM t_v8",
    " AS SELECT ward, age, cost FROM t_v8",
    " AS SELECT * FROM t_v8",
    "(age, ward, more) AS SELECT age, ward, cost FROM t_v8",
]


def test_the_view_of_readers_is_a_list_of_the_columns_of_the_newest_version(engine: DuckDBEngine) -> None:
    assert check_stable_view(engine, NEWEST).passed
    for definition in NO_VIEW_OF_READERS:
        change(engine, f"CREATE OR REPLACE VIEW t{definition}")
        assert check_stable_view(engine, NEWEST).passed is False, definition
    change(engine, "DROP VIEW t")
    assert check_stable_view(engine, NEWEST).passed is False


SUPPRESSED_ROWS = [
    ([], ""),
    ([("age", "20-29", 4, 7)], ""),
    ([("age", "20-29", 2, 7)], "reveal groups smaller than 3"),
    ([("age", "20-29", None, 7)], "reveal groups smaller than 3"),
    ([("age", "20-29", 3, 7)], "reveal groups smaller than 3"),  # the fourth row has the other label
    ([("age", "20-29", 5, 7)], "reveal groups smaller than 3"),
    ([("age", "20-29", 4, 6)], "do not match the release"),
    ([("age", "20-29", 4, None)], "do not match the release"),
    ([("age", "30-39", 4, 7)], "do not match the release"),
    ([("age", "40-49", 4, None)], "do not match the release"),
    ([("age", "40-49", 4, 3)], "do not match the release"),
    ([("cost", "4.0", 4, 1)], "not a quasi-identifier, or by several"),
    ([("age", "20-29", 4, 7), ("ward", "a", 4, 8)], "not a quasi-identifier, or by several"),
]


def test_suppressed_rows_are_reported_by_one_attribute_in_groups_of_k(engine: DuckDBEngine) -> None:
    for rows, words in SUPPRESSED_ROWS:
        change(engine, "DELETE FROM sqlanon.suppression")
        for row in rows:
            engine.connection.execute(f"INSERT INTO {ATTACHED}.sqlanon.suppression VALUES (?, ?, ?, ?)", row)
        check = check_suppression(engine, NEWEST)
        assert (check.passed, words in check.message) == (not words, True), rows
    # Of three labels at k = 3, the hidden ones may have four rows together: either may have none.
    change(engine, "DELETE FROM sqlanon.suppression WHERE attribute = 'ward'")
    change(engine, "INSERT INTO t_v8 VALUES ('40-49', 'a', 0), ('50-59', 'a', 0)")
    for suppressed, passed in ((6, False), (7, True), (8, True), (9, False)):
        assert check_suppression(engine, replace(NEWEST, suppressed_rows=suppressed)).passed is passed
    change(engine, "ALTER TABLE sqlanon.suppression ADD COLUMN more INTEGER")
    assert "does not have the columns" in check_suppression(engine, NEWEST).message


COMMENTS = [
    "TABLE t_v8 IS 'safe'",
    "TABLE t_v7 IS 'safe'",
    "VIEW t IS NULL",
    "COLUMN t_v8.cost IS 'safe'",
    "TABLE sqlanon.manifest IS 'safe'",
    "COLUMN sqlanon.figures.value IS 'safe'",
]


@pytest.mark.slow
def test_every_comment_is_compared(engine: DuckDBEngine) -> None:
    for comment in COMMENTS:
        engine.connection.execute("BEGIN")
        with engine.using(ATTACHED):
            engine.connection.execute(f"COMMENT ON {comment}")
            assert read_comments(engine) != expected_comments(ALL), comment
        engine.connection.execute("ROLLBACK")
    assert read_comments(engine) == expected_comments(ALL)


def test_texts_and_labels_that_differ_are_named(engine: DuckDBEngine) -> None:
    """Each of these changes has a separate fault in the message."""
    manifests = change(
        engine,
        "COMMENT ON TABLE t_v8 IS 'safe'",
        "UPDATE sqlanon.attributes SET level = 2 WHERE attribute = 'age'",
        "UPDATE sqlanon.figures SET value = 0 WHERE figure = 'suppressed_rows'",
        "UPDATE age_labels SET age_high = 28 WHERE age_order = 1",
        f"INSERT INTO sqlanon.{LEVELS} VALUES ('age', '40-49', 3, '*'), ('ward', '20-29', 3, '*')",
        f"INSERT INTO sqlanon.{LEVELS} VALUES ('age', '20-29', 3, '*'), ('age', '20-29', -1, '*')",
        f"INSERT INTO sqlanon.{LEVELS} VALUES ('age', '20-29', 4, NULL), ('age', '20-29', NULL, '*')",
        f"UPDATE sqlanon.{LEVELS} SET ancestor = '31-50' WHERE label = '30-39' AND level = 2",
    )
    (check,) = check_metadata(engine, manifests, is_same_engine=False)
    assert check.message.split("; ") == [
        "the comments do not match the manifest",
        "sqlanon.attributes does not match the manifest",
        "sqlanon.figures does not match the manifest",
        "'age_labels' does not have the labels of the rows",
        "'label_levels': 2 rows have labels that are neither released nor above one that is",
        "'label_levels': 4 rows have labels with two labels at one level, or none",
        "'label_levels': 1 rows have a label of 'age' that is not under the one above it",
    ]


def test_figures_of_a_release_are_those_of_its_manifest() -> None:
    figures = {name: value for _, name, value, _ in figure_rows(NEWEST)}
    assert figures == {
        "rows": 16,
        "released_rows": 12,
        "suppressed_rows": 4,
        "suppressed_share": 0.25,
        "classes": 3,
        "smallest_class": 3,
        "average_class": 4,
        "score": 1,
        "optimal": 1,
    }
    empty = replace(NEWEST, rows=0, released_rows=0, classes=0, score=None, policy={**NEWEST.policy, "draft": True})
    changed = {name: value for _, name, value, _ in figure_rows(empty) if value != figures.get(name)}
    none = dict.fromkeys(("suppressed_share", "average_class", "score"))
    assert changed == {"rows": 0, "released_rows": 0, "classes": 0, "draft": 1, **none}
    rows = [(name, level, height) for _, name, _, level, height, _ in attribute_rows(NEWEST)]
    assert rows == [("age", 1, 3), ("ward", 0, 1), ("cost", None, None)]


FAULTS = {
    "INSERT INTO age_labels VALUES ('40-49', 3, 40, 49)": "'age_labels' does not have the labels of the rows",
    "INSERT INTO age_labels SELECT * FROM age_labels LIMIT 1": "'age_labels' does not have the labels of the rows",
    "DELETE FROM age_labels WHERE age_order = 2": "'age_labels' does not have the labels of the rows",
    "ALTER TABLE age_labels DROP age_low": "'age_labels' lacks the ends of its ranges",
    f"UPDATE sqlanon.{LEVELS} SET ancestor = '0-99' WHERE label = '20-39' AND level = 3": (
        "'label_levels': 2 rows have labels above one another that contradict each other"
    ),
    f"ALTER TABLE sqlanon.{LEVELS} ADD COLUMN more INTEGER": "'label_levels' has not the columns",
    "UPDATE sqlanon.figures SET meaning = 'x' WHERE position = 0": "sqlanon.figures does not match the manifest",
    "DELETE FROM sqlanon.attributes WHERE position = 2": "sqlanon.attributes does not match the manifest",
    "SELECT 1": "the comments are unchanged; another engine created the views",
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("statement", FAULTS)
def test_labels_are_those_of_the_rows_with_their_ends_and_levels(statement: str, engine: DuckDBEngine) -> None:
    (check,) = check_metadata(engine, change(engine, statement), is_same_engine=False)
    assert check.passed is (statement == "SELECT 1") and check.message.startswith(FAULTS[statement])


@pytest.mark.slow
def test_texts_of_another_version_of_sqlanon_cannot_be_judged(engine: DuckDBEngine) -> None:
    other_version = change(engine, "UPDATE sqlanon.manifest SET sqlanon_version = '9.9.9'")
    (check,) = check_metadata(engine, other_version, is_same_engine=False)
    assert check.passed is None and "do not rely on them" in check.message
    change(engine, "DELETE FROM age_labels WHERE age_order = 2")  # rows, and not words
    (check,) = check_metadata(engine, other_version, is_same_engine=False)
    assert check.passed is False


@pytest.mark.thorough
def test_views_are_compared_by_the_engine_that_wrote_them(engine: DuckDBEngine) -> None:
    (check,) = check_metadata(engine, ALL, is_same_engine=True)
    assert (check.passed, check.message) == (True, "unchanged")
    change(engine, "CREATE OR REPLACE VIEW class_sizes AS SELECT 5 AS class_size", "CREATE VIEW more AS SELECT 1 AS x")
    (check,) = check_metadata(engine, change(engine, "DROP VIEW quality"), is_same_engine=True)
    assert check.message.split("; ") == [
        *(f"the view '{name}' was changed" for name in ("class_sizes", "more", "quality"))
    ]


def test_a_manifest_is_read_in_the_form_in_which_it_is_written() -> None:
    text, row = NEWEST.to_json(), json.loads(NEWEST.to_json())
    assert Manifest.from_json(text) == NEWEST
    refused = [
        text.replace('{"', '{ "', 1),
        text.replace('{"', '{"rows": 9, "', 1),
        text.replace('\\"k\\": 3', '\\"k\\": 2, \\"k\\": 3'),
        text + " ",
        *(json.dumps({key: value for key, value in row.items() if key != name}) for name in row),
        json.dumps(row | {"note": 1}),
    ]
    wrong: dict[str, list[Any]] = {
        "policy": ["[]", '{"attributes": []}', '{"attributes": {"age": 1}}', '{"privacy": 1}', '{"search": 1}'],
        "generalization": ["[]", '{"age": 1.5}', '{"age": true}'],
        "heights": ["[1]", '{"age": "3"}'],
        "noise": ["[1]", '{"age": 1}'],
        "confidence": ["[1]"],
        "columns": ['[{"name": "age"}]'],
        "published_at": [5, "today"],
        "score": ["1", True],
    }
    wrong |= {name: [1.0, True, "1", None] for name in ("rows", "released_rows", "suppressed_rows", "classes")}
    refused += [json.dumps(row | {name: value}) for name, values in wrong.items() for value in values]
    for forged in refused:
        with pytest.raises((KeyError, TypeError, ValueError)):
            Manifest.from_json(forged)


# --- rows and their claims


def refusing_checks(engine: DuckDBEngine, query: str, **claims: Any) -> dict[str, str]:
    """The checks that refuse some rows with some claims, with their messages; other figures are those of the rows."""
    run = engine.connection.execute
    run(f"CREATE OR REPLACE TEMP VIEW {SUBJECT.name} AS {query}")
    try:
        sizes = [n for (n,) in run(f"SELECT count(*) FROM {SUBJECT.name} GROUP BY age, ward").fetchall()]
        ((digest,),) = run(f"SELECT digest FROM sqlanon.digest('{SUBJECT.name}')").fetchall()
        figures = {"rows": sum(sizes) + 4, "released_rows": sum(sizes), "digest": digest, "version": None}
        figures |= {"classes": len(sizes), "smallest_class": min(sizes, default=0)}
        manifest = replace(NEWEST, **figures | claims)
        release = OpenRelease(engine, CachedQueries(engine), manifest)
        checks = verify_release(Path("r.parquet"), release, fresh=False).checks
        return {check.name: check.message for check in checks if check.passed is False}
    finally:
        run(f"CREATE OR REPLACE TEMP VIEW {SUBJECT.name} AS FROM {ATTACHED}.t_v8")


def with_privacy(**privacy: Any) -> dict[str, Any]:
    return {"policy": {**NEWEST.policy, "privacy": privacy}}


ROWS = f"SELECT * FROM {ATTACHED}.t_v8"
ROWS_CASES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("", {}, {}),
    ("WHERE NOT (age = '20-29' AND ward = 'a' AND cost = 0)", {}, {"3-anonymity": "smallest class: 2 rows"}),
    ("WHERE NOT (age = '20-29' AND ward = 'b' AND cost = 0)", {}, {}),
    ("WHERE false", {}, {"3-anonymity": "smallest class: 0 rows"}),
    ("", {"released_rows": 13, "rows": 17}, {"rows": "claimed 13, found 12"}),
    ("", {"rows": 17}, {"manifest": "contradicts itself in row counts"}),
    ("", {"classes": 4}, {"classes": "claimed 4, found 3"}),
    ("", {"smallest_class": 4}, {"smallest class": "claimed 4, found 3"}),
    ("", {"score": 2.0}, {"score": "claimed 2.0, found 1.0"}),
    ("", {"score": 1.0 + 1e-7}, {"score": "claimed 1.0000001, found 1.0"}),
    ("", {"score": 1.0 + 1e-13}, {}),
    ("", {"digest": "0"}, {"content digest": "claimed 0, found"}),
    ("", {"policy_hash": "0" * 63}, {"manifest fields": "unknown content in policy_hash"}),
    ("", with_privacy(k=4), {"4-anonymity": "smallest class: 3 rows (required: 4)"}),
    ("", with_privacy(k=3, average_risk=0.25), {}),  # three classes in twelve rows
    ("", with_privacy(k=3, average_risk=0.249), {"average risk of at most 0.249": ""}),
    ("", with_privacy(k="three"), {"requirements": "", "manifest fields": "unknown content in policy.privacy"}),
    (
        "",
        with_privacy(k=3, alpha_k=[{"attribute": "ill", "alpha": 0.5}]),
        {"requirements": "the release does not have these columns"},
    ),
    ("", {"columns": (*COLUMNS[:2], ReleasedColumn("cost", "FLOAT", "insensitive"))}, {"columns": "claimed [["}),
    ("", {"columns": (COLUMNS[1], COLUMNS[0], COLUMNS[2])}, {"columns": "claimed [["}),
]


@pytest.mark.parametrize(("rows", "claims", "expected"), ROWS_CASES)
def test_one_check_alone_refuses_rows_or_a_claim(
    rows: str, claims: dict[str, Any], expected: dict[str, str], engine: DuckDBEngine
) -> None:
    failures = refusing_checks(engine, f"{ROWS} {rows}", **claims)
    assert set(failures) == set(expected)
    assert all(words in failures[name] for name, words in expected.items())


def test_a_sign_of_zero_or_nan_could_mark_a_row(engine: DuckDBEngine) -> None:
    for value, words in {
        "'-0.0'::DOUBLE": "1 in column 'cost'",
        "-'nan'::DOUBLE": "1 in column 'cost'",
        "0.0": "",
        "-1.0": "",
        "'-inf'::DOUBLE": "",
        "NULL": "",
    }.items():
        changed_rows = (
            f"SELECT * REPLACE (CASE WHEN cost = 4 THEN {value} ELSE cost + 1 END AS cost) FROM {ATTACHED}.t_v8"
        )
        failures = refusing_checks(engine, changed_rows)
        assert (set(failures) == {"signs"}, words in failures.get("signs", "")) == (bool(words), True), value
    column = ReleasedColumn("cost", "FLOAT", "insensitive")
    rounded = f"SELECT * REPLACE (CASE WHEN cost = 4 THEN '-0.0' ELSE cost END::FLOAT AS cost) FROM {ATTACHED}.t_v8"
    assert set(refusing_checks(engine, rounded, columns=(*COLUMNS[:2], column))) == {"signs"}
    nested = f"SELECT age, ward, {{'x': [cost, '-0.0'::DOUBLE]}} AS cost FROM {ATTACHED}.t_v8"
    columns = (*COLUMNS[:2], ReleasedColumn("cost", "STRUCT(x DOUBLE[])", "insensitive"))
    assert "12 in column 'cost'" in refusing_checks(engine, nested, columns=columns)["signs"]


def test_rows_that_exchange_values_have_another_digest(engine: DuckDBEngine) -> None:
    same = engine.connection.execute(f"SELECT digest FROM sqlanon.digest('{ATTACHED}.t_v8')").fetchall()[0][0]
    swapped = f"SELECT age, ward, CASE cost WHEN 3 THEN 4 WHEN 4 THEN 3 ELSE cost END AS cost FROM {ATTACHED}.t_v8"
    assert set(refusing_checks(engine, swapped, digest=same)) == {"content digest"}


def test_manifests_are_one_per_version_of_one_table(engine: DuckDBEngine) -> None:
    assert [manifest.version for manifest in read_manifests(engine)] == [*range(8, 0, -1)]

    def is_refused(*changes: str) -> bool:
        engine.script("BEGIN", *(change.replace("manifest", f"{ATTACHED}.sqlanon.manifest") for change in changes))
        try:
            read_manifests(engine)
        except ValueError:
            return True
        finally:
            engine.script("ROLLBACK")
        return False

    refusals: Sequence[str] = (
        "DELETE FROM manifest",
        "UPDATE manifest SET version = 2 WHERE version = 1",
        "UPDATE manifest SET version = NULL WHERE version = 1",
        "UPDATE manifest SET table_name = 'u' WHERE version = 1",
        "INSERT INTO manifest FROM manifest WHERE version = 2",
    )
    assert {change for change in refusals if is_refused(change)} == {*refusals}
    assert not is_refused("DELETE FROM manifest WHERE version = 1")
