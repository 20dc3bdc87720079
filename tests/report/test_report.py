"""The report: its statements are right, and it reveals no more than the release does."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import re
import stat
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import sqlanon
import sqlanon.report.page as paging
from sqlanon.demo.hospital import make_hospital
from sqlanon.engines.duckdb import DuckDBEngine
from sqlanon.errors import BrokenReleaseError, MissingLibraryError, PolicyError, ReleaseError
from sqlanon.frequency.class_sizes import ClassSizes, class_sizes
from sqlanon.measures import MEASURES
from sqlanon.publish.targets.postgres.reader import PostgresLocation, PostgresRelease
from sqlanon.report import facts, read_release_facts, view
from sqlanon.report.distributions import BARS, NO_VALUE, distribution
from sqlanon.report.page import render_page
from sqlanon.support.expressions import table
from sqlanon.support.markup import escape_chart_text
from support.commands import cli
from support.databases import insert
from support.lanes import some
from support.policies import make_policy
from support.private_values import ATTRIBUTES, ODD, ROWS, SOURCE, needles
from support.report_pages import ALLOWED, BUNDLE, HOSTILE, Parsed, read


@pytest.fixture(autouse=True)
def without_the_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The charts' script takes seconds to assemble; the tests in a browser use it."""
    monkeypatch.setattr(paging, "_bundle", lambda: BUNDLE)


def leaves(tree: Any) -> Iterator[Any]:
    """All values of a JSON tree."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from leaves(value)
    else:
        yield tree


def records(charts: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All records that charts draw."""
    for spec in charts.values():
        for match in re.findall(r'"values": (\[\{.*?\}\])', json.dumps(spec)):
            yield from json.loads(match)


# Counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", some(range(6), 3))
def test_distributions_match_plain_python(seed: int) -> None:
    rng = random.Random(seed)
    values = [rng.choice(["a", "b", " ", "", None, "<b>", "z", *map(str, range(seed * 8))]) for _ in range(300)]
    few = rng.choice([1, 2, 5, 20])
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (x VARCHAR)")
        insert(connection, "t", [[value] for value in values])
        chart = distribution(DuckDBEngine(connection), table("t"), "x", "VARCHAR", few)
    counts = Counter(values)
    counts_shown = sorted((n for n in counts.values() if n >= few), reverse=True)[:BARS]
    ns = sorted((n for _, n in chart.bars), reverse=True)
    assert ns == counts_shown[: len(ns)]
    bar_counts = [
        n for n in range(len(counts_shown) + 1) if len(counts) - n >= 2 and len(values) - sum(counts_shown[:n]) >= few
    ]
    assert len(ns) == (max(bar_counts, default=0) if chart.rare else len(counts_shown))
    assert (chart.values, chart.others) == (len(counts), len(counts) - len(chart.bars))
    assert chart.rare == sum(n < few for n in counts.values())
    for label, n in chart.bars:
        if label not in (NO_VALUE, "(empty text)", "(empty text)′"):
            assert counts[label] == n
    assert len({label for label, _ in chart.bars}) == len(chart.bars)


@pytest.mark.cases(1)
@pytest.mark.parametrize(("type_", "make"), [
    ("INTEGER", lambda rng: rng.randrange(-50, 1000)),
    ("DOUBLE", lambda rng: rng.choice([float("nan"), float("inf"), None, 1e300, *[rng.gauss(5, 2)] * 40])),
    ("DECIMAL(9,2)", lambda rng: round(rng.expovariate(0.001), 2)),
    ("DATE", lambda rng: f"{rng.randrange(1900, 2020)}-01-02"),
])  # fmt: skip
def test_ranges_hold_all_rows_and_no_few(type_: str, make: Any) -> None:
    rng = random.Random(type_)
    values = [make(rng) for _ in range(400)]
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t (x {type_})")
        insert(connection, "t", [[value] for value in values])
        chart = distribution(DuckDBEngine(connection), table("t"), "x", type_, 7)
        assert chart.values is None
        assert all(n >= 7 for _, n in chart.bars)
        assert 5 <= len(chart.bars) <= 3 * BARS
        assert sum(n for _, n in chart.bars) == len(values)
        for label, n in chart.bars:
            if match := re.fullmatch(r"([-\d.,]+) to ([-\d.,]+)", label):
                low, high = (float(edge.replace(",", "")) for edge in match.groups())
                number = "date_part('year', x)" if type_ == "DATE" else "x::DOUBLE"
                query = f"SELECT count(*) FROM t WHERE {number} >= {low} AND {number} < {high} AND isfinite({number})"
                assert connection.execute(query).fetchone() == (n,), label


@pytest.mark.slow
def test_overlapping_ranges_are_spread_over_bins() -> None:
    """Each row counts evenly over its range: a slow count of the same, number by number."""
    labels = [f"{low}-{low + width}" for low in range(0, 60, 3) for width in (4, 9, 19)]
    rows = [*(label for label in labels for _ in range(10)), *["*"] * 7]
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT unnest($1::VARCHAR[]) AS x", [rows])
        engine = DuckDBEngine(connection)
        chart = distribution(engine, table("t"), "x", "VARCHAR", 5, "number")
        more = distribution(engine, table("t"), "x", "VARCHAR", 11, "number")
    assert sum(label.endswith(", or (no range)") for label, _ in more.bars) == 1
    assert chart.spread and sum(n for _, n in chart.bars) == len(rows)
    assert chart.bars[-1] == ("(no range)", 7)
    ages: Counter[int] = Counter()
    for label in labels:
        low, high = map(int, label.split("-"))
        ages.update(dict.fromkeys(range(low, high + 1), 10 / (high - low + 1)))  # type: ignore[arg-type]
    for (start, end), (_, n) in zip(chart.spans, chart.bars, strict=False):
        inside = sum(n for age, n in ages.items() if (start is None or age >= start) and (end is None or age < end))
        assert abs(n - inside) <= 1
    assert all(n >= 5 for _, n in chart.bars)


def test_fractional_medians_are_not_read_as_ranges() -> None:
    """They have no width to draw, so each is a separate bar."""
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT ['25.50', '75.25', '125.75'][i % 3 + 1] AS x FROM range(90) AS r(i)"
        )
        chart = distribution(DuckDBEngine(connection), table("t"), "x", "VARCHAR", 5, "number")
    assert chart.spans == () and dict(chart.bars) == {"25.50": 30, "75.25": 30, "125.75": 30}


def test_ranges_of_values_that_are_nearly_all_the_same() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT if(i < 30, i, 7) AS x FROM range(1000) AS r(i)")
        chart = distribution(DuckDBEngine(connection), table("t"), "x", "BIGINT", 5)
    assert sum(n for _, n in chart.bars) == 1000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_class_sizes_match_plain_python(seed: int) -> None:
    rng = random.Random(seed)
    rows = [(rng.choice("ab"), rng.choice([None, 1, 2, 3])) for _ in range(rng.choice([0, 1, 40]))]
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE t ("x""y" VARCHAR, z INTEGER)')
        for row in rows:
            connection.execute("INSERT INTO t VALUES (?, ?)", row)
        rows_by_size = connection.execute(class_sizes(table("t"), ['x"y', "z"]).sql("duckdb")).fetchall()
    expected = Counter(Counter(rows).values())
    assert rows_by_size == [(size, n, size * n) for size, n in sorted(expected.items())]
    sizes = ClassSizes.from_rows(rows_by_size)
    for apart in (False, True):
        bins = sizes.bins(5, apart)
        assert sum(classes for _, _, classes, _ in bins) == sizes.classes == sum(expected.values())
        assert sum(row_count for *_, row_count in bins) == sizes.rows == len(rows)


@pytest.mark.thorough
@pytest.mark.parametrize("maximised", [False, True])
@pytest.mark.parametrize("limit", some([10_000, 7, 60], 3))
def test_frontier_matches_plain_python(maximised: bool, limit: int) -> None:
    rng = random.Random(limit)
    nodes = [
        ([a, b], a + b, rng.choice(["satisfies", "satisfies", "violates", "open"]), rng.randrange(40), rng.randrange(9))
        for a in range(15)
        for b in range(20)
    ]
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE lattice (levels INTEGER[], height INTEGER, bound DOUBLE, status VARCHAR, classes BIGINT, "
            "suppressed_rows BIGINT, score DOUBLE)"
        )
        rows = []
        for levels, height, status, out, score in nodes:
            figures = [None, None, None] if status == "open" else [5, out, score if status == "satisfies" else None]
            rows.append([levels, height, status, *figures])
        connection.executemany("INSERT INTO lattice VALUES (?, ?, 0.5, ?, ?, ?, ?)", rows)
        query = facts.checked_generalizations(table("lattice"), [3, 4], limit, maximised).sql("duckdb")
        points = connection.execute(query).fetchall()
        connection.execute("CREATE TABLE shuffled AS FROM lattice ORDER BY hash(levels)")
        again = connection.execute(query.replace('"lattice"', '"shuffled"')).fetchall()
    assert points == again
    evaluated = [node for node in nodes if node[2] != "open"]
    assert len(points) == min(limit, len(evaluated))
    sign = -1 if maximised else 1
    good = [(out, sign * score, levels) for levels, _, status, out, score in nodes if status == "satisfies"]
    beaten = {tuple(levels) for out, score, levels in good
              if any((o < out and s <= score) or (o == out and s < score) for o, s, _ in good)}  # fmt: skip
    for levels, status, _, _, _, frontier, chosen in points:
        assert chosen == (levels == [3, 4])
        if frontier:
            assert status == "satisfies"
            assert tuple(levels) not in beaten
    if limit > len(evaluated):
        corners = {(out, score) for out, score, levels in good if tuple(levels) not in beaten}
        assert {(out, sign * score) for _, _, _, out, score, frontier, _ in points if frontier} == corners


# Published and hidden statements


@pytest.fixture(scope="module")
def source() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(SOURCE)
        yield connection


class Pages:
    """The pages of a table full of needles: of a policy, private, and of its releases. Made on first use."""

    def __init__(self, db: sqlanon.Database, folder: Path) -> None:
        policy = make_policy(ATTRIBUTES, k=4, table="people", search={"suppression_limit": 0.02})
        closeness = [{"attribute": "illness", "distance": "equal", "t": 0.9}]
        tree = policy.model_dump(exclude_none=True) | {"privacy": {"k": 4, "t_closeness": closeness}}
        self.db, self.folder, self.policy = db, folder, sqlanon.Policy(**tree)
        self.result = db.anonymize(self.policy)

    def __getitem__(self, name: str) -> Path:
        path = self.folder / f"{name}.html"
        if path.exists():
            return path
        if name in ("public", "private"):
            assert self.result.report(path, private=name == "private")
        else:
            kind = "parquet" if name == "parquet" else "duckdb"
            release = self.result.publish(self.folder / f"{name}.{kind}", "people")
            assert self.db.report(release.path, path, policy=self.policy if name == "policy" else None)
        return path


@pytest.fixture(scope="module")
def pages(source: duckdb.DuckDBPyConnection, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with sqlanon.connect(source) as db:
        yield Pages(db, tmp_path_factory.mktemp("pages"))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("duckdb", "parquet", "policy")]
PUBLIC = ("public", *SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC)
def test_pages_contain_no_private_values(name: str, pages: Pages, source: duckdb.DuckDBPyConnection) -> None:
    parsed = read(pages[name])
    everything = "\n".join([parsed.text, *parsed.scripts, *map(str, leaves(parsed.charts)), *dict(parsed.attributes)])
    everything += pages[name].read_text(encoding="utf-8")
    texts = {name: value for name, value in needles(source).items() if not name.endswith(("binary", "suppressed"))}
    texts |= {name: value for name, value in needles(source).items() if value.isascii() and b"odd-" in value}
    assert len(texts) > 2 * ROWS
    assert [name for name, value in texts.items() if value.decode() in everything] == []
    assert "QX71" in everything
    # A text that differs in every row is not shown, though it is released.
    assert "Note number" not in everything


@pytest.mark.thorough
def test_the_search_finds_private_values_in_the_private_page(pages: Pages, source: duckdb.DuckDBPyConnection) -> None:
    text = read(pages["private"]).text
    values = [value for (value,) in source.execute("SELECT DISTINCT city::VARCHAR FROM people").fetchall()]
    assert len(values) == 5
    assert all(value in text for value in values)
    assert "odd-illness" in text


@pytest.mark.thorough
@pytest.mark.parametrize("name", PUBLIC)
def test_public_page_hides_counts_below_k(name: str, pages: Pages) -> None:
    drawn = list(records(read(pages[name]).charts))
    rows = [record["rows"] for record in drawn if "rows" in record]
    assert len(rows) > 20
    assert min(rows) >= 4
    # (Of ranges of class sizes all are counted: none below k is filled.)
    below = [record for record in drawn if record.get("label", "").startswith(("fewer than", "more than"))]
    assert [record["count"] for record in below] == [0, 0]


@pytest.mark.slow
def test_only_the_private_page_shows_the_source(pages: Pages) -> None:
    private, public = read(pages["private"]), read(pages["public"])
    assert {"frontier", "lattice", "levels"} <= private.charts.keys()
    assert not {"frontier", "lattice", "levels"} & public.charts.keys()
    assert "explorer" in dict.fromkeys(value for name, value in private.attributes if name == "id")
    assert "explorer" not in dict.fromkeys(value for name, value in public.attributes if name == "id")
    assert "Try other settings" in private.text
    assert "Try other settings" not in public.text
    assert "The SQL that makes the release" in private.text
    assert "The SQL that makes the release" not in public.text
    assert "in the source" not in public.text.lower().replace("reads as in the source", "")
    assert private.text.count("PRIVATE: for internal use only") == 3
    assert "PRIVATE" not in public.text
    assert stat.S_IMODE(pages["private"].stat().st_mode) == 0o600


@pytest.mark.thorough
def test_requirements_that_need_the_source_hide_their_distance(pages: Pages) -> None:
    """A release alone does not show it; with the source it holds, and its distance from its limit stays hidden."""
    assert "not verifiable alone: against the release's own" in read(pages["duckdb"]).text
    for name in ("public", "policy"):
        assert "0.9-closeness of illnessholdsverified with the source" in read(pages[name]).text
    assert "farthest class from the table: " in read(pages["private"]).text


@pytest.mark.slow
def test_policy_page_equals_release_page(pages: Pages) -> None:
    policy, release = read(pages["public"]).charts, read(pages["duckdb"]).charts
    assert policy == release


@pytest.mark.slow
def test_the_figures_of_the_page(pages: Pages) -> None:
    text = read(pages["public"]).text
    assert f"rows released{ROWS}rows left out{ODD}" in text
    assert "shared by at least 4 rows (4-anonymity)" in text
    assert "At most 2 % of the rows may be left out." in text
    for column, done in {
        "name": "left out", "city": "level 1 of 2: groups of values; a label is the group", "sex": "unchanged",
        "born": "level 1 of 3: by year", "illness": "unchanged",
    }.items():  # fmt: skip
        kind = view.ROLES[ATTRIBUTES[column]["role"] if isinstance(ATTRIBUTES[column], dict) else ATTRIBUTES[column]]
        assert f"{column}{kind}{done}" in text


@pytest.mark.slow
@pytest.mark.cases(1)
@pytest.mark.parametrize("name", [*PUBLIC, "private"])
def test_the_security_policy_names_all_that_runs(name: str, pages: Pages) -> None:
    text, parsed = pages[name].read_text(encoding="utf-8"), read(pages[name])
    (policy_text,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    policy = dict(part.strip().split(" ", 1) for part in policy_text.split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in policy_text
    styles = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    scripts = parsed.scripts[2 if name == "private" else 1 :]  # before them stand the data
    for elements, directive in ((scripts, policy["script-src"]), (styles, policy["style-src"])):
        hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in elements]
        assert directive == " ".join(f"'sha256-{digest}'" for digest in hashes)
    assert len(scripts) == 2
    assert not [name for name, _ in parsed.attributes if name.startswith("on") or name in ("src", "style")]
    assert {value[:1] for name, value in parsed.attributes if name == "href"} == {"#"}, "links lead to the page itself"


@pytest.mark.slow
def test_the_page_is_accessible(pages: Pages) -> None:
    parsed = read(pages["private"])
    assert parsed.tags["caption"] == parsed.tags["table"] > 20
    scopes = [value for name, value in parsed.attributes if name == "scope"]
    assert len(scopes) == parsed.tags["th"]
    assert set(scopes) == {"col", "row"}
    assert ("lang", "en") in parsed.attributes
    assert "Redistribution and use in source and binary forms" in parsed.text
    assert parsed.tags["figure"] == parsed.tags["figcaption"] == len(parsed.charts)


# Hostile names and labels

DRAWN = {
    *("label", "place", "rows", "of", "count", "level", "height", "loss", "whole", "caption"),
    *("levels", "status", "classes", "out", "score", "frontier", "chosen", "x", "y", "x2", "y2", "text"),
}


def hostile_result(db: sqlanon.Database, **sections: Any) -> sqlanon.Result:
    names = {f"q{HOSTILE[0]}": "suppress", f"s{HOSTILE[1]}": "sensitive", f"i{HOSTILE[4]}": "insensitive"}
    return db.anonymize(make_policy(names, k=2, table="t", **sections))


@pytest.fixture
def hostile() -> Iterator[sqlanon.Database]:
    quoted = [name.replace('"', '""') for name in (f"q{HOSTILE[0]}", f"s{HOSTILE[1]}", f"i{HOSTILE[4]}")]
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE t ("{quoted[0]}" VARCHAR, "{quoted[1]}" VARCHAR, "{quoted[2]}" VARCHAR)')
        rows = [[text, HOSTILE[i % 3], text] for i, text in enumerate(HOSTILE * 3)] + [[None, None, None]] * 3
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        with sqlanon.connect(connection) as db:
            yield db


@pytest.mark.thorough
def test_hostile_names_and_labels_are_text(hostile: sqlanon.Database, tmp_path: Path) -> None:
    result = hostile_result(hostile)
    result.report(tmp_path / "private.html", private=True)
    release = result.publish(tmp_path / "r.duckdb", f"t{HOSTILE[1]}")
    hostile.report(release.path, tmp_path / "public.html")
    for name in ("private", "public"):
        text, parsed = (tmp_path / f"{name}.html").read_text(encoding="utf-8"), read(tmp_path / f"{name}.html")
        assert parsed.tags.keys() <= ALLOWED, parsed.tags
        assert parsed.tags["script"] == (4 if name == "private" else 3)
        assert all(text in parsed.text for text in HOSTILE), "they are shown as they are"
        embedded = text.partition('id="charts">')[2].partition("</script>")[0]
        assert not set("<>&\u2028") & set(embedded)
        assert set(map(escape_chart_text, HOSTILE)) <= set(leaves(parsed.charts))
        # No name and no label is a key, or in an expression: only data, and titles of charts.
        keys = {key for record in records(parsed.charts) for key in record}
        assert keys <= DRAWN
        assert not re.search(r'"(href|url|expr|calculate|signal|labelExpr|test)":', embedded)


@pytest.mark.thorough
def test_reprs_for_notebooks_are_escaped_and_scan_nothing(hostile: sqlanon.Database, tmp_path: Path) -> None:
    result = hostile_result(hostile)
    release = result.publish(tmp_path / "r.duckdb", f"t{HOSTILE[1]}")
    hostile.close()  # nothing can be asked any more
    release.path.unlink()
    for display in (result._repr_html_(), release._repr_html_()):
        assert Parsed(display).tags.keys() == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert HOSTILE[0] in Parsed(result._repr_html_()).text
    assert f"Release t{HOSTILE[1]}" in Parsed(release._repr_html_()).text


# Charts in notebooks


@pytest.mark.slow
def test_the_charts_of_a_result(hostile: sqlanon.Database) -> None:
    chart = hostile_result(hostile).chart
    drawn = {
        "classes": chart.classes(), "classes before": chart.classes(private=True), "risk": chart.risk(),
        "attributes": chart.attributes(), "frontier": chart.frontier(), "lattice": chart.lattice(),
        "distribution": chart.distribution(f"s{HOSTILE[1]}", private=True),
    }  # fmt: skip
    for picture in drawn.values():  # a notebook draws them without a network
        bundle = picture._repr_mimebundle_()
        assert sorted(name.split("/")[0] for name in bundle) == ["application", "image"]
        assert bundle["image/svg+xml"].startswith("<svg")
        assert "<script" not in bundle["image/svg+xml"]
    specs = {name: chart.to_dict() for name, chart in drawn.items()}
    assert {"the release"} == {record["of"] for record in records({"": specs["classes"]})}
    assert {"the release", "the source"} == {record["of"] for record in records({"": specs["classes before"]})}
    shares = [record["count"] for record in records({"": specs["risk"]})]
    assert sum(shares) == pytest.approx(1)
    assert (
        sum(record["chosen"] for record in records({"": specs["lattice"]}) if "chosen" in record) == 3
    )  # mark and ring
    with pytest.raises(PolicyError, match="no column 'nobody' is released"):
        chart.distribution("nobody")


@pytest.mark.thorough
def test_a_strategy_without_a_lattice_has_no_chart_of_it(hostile: sqlanon.Database, tmp_path: Path) -> None:
    result = hostile_result(hostile, search={"strategy": "mondrian"})
    with pytest.raises(PolicyError, match="does not search the lattice"):
        result.chart.frontier()
    with pytest.raises(PolicyError, match="does not search the lattice"):
        result.chart.lattice()
    assert result.report(tmp_path / "page.html", private=True)
    assert "there is no picture of it" in read(tmp_path / "page.html").text


KINDS: dict[str, dict[str, Any]] = {
    "noise": {"privacy": {"k": 20}, "attributes": {"cost": {"role": "quasi", "noise": {"epsilon": 4.0}}}},
    "decoys": {"release": {"decoys": True}},
    "masked": {"release": {"suppressed": "mask"}},
    "cells": {"search": {"suppression": "cells"}},
    "combinations": {"search": {"strategy": "mu-argus", "suppression_limit": 1}},
    "without k": {"privacy": {"l_diversity": [{"attribute": "diagnosis", "kind": "distinct", "l": 2}]}},
    "most": {"search": {"measure": "distinct"}},
    "persons": {"source": {"person": "name"}, "attributes": {"name": None}},
    "earlier": {"release": {"after": "all"}},
}


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_of_any_kind_has_the_page_of_its_release(kind: str, tmp_path: Path) -> None:
    make_hospital(tmp_path / "hospital.duckdb", rows=3000)
    case = KINDS[kind]
    tree: dict[str, Any] = {
        "zip": "mask", "birth_date": {"dates": ["year", "decade"]}, "sex": "suppress", "diagnosis": "sensitive",
        "cost": "insensitive", "name": "identifying", "address": "identifying",
    } | case.get("attributes", {})  # fmt: skip
    attributes = {name: spec for name, spec in tree.items() if spec is not None}
    sections = {
        "source": {
            "database": tmp_path / "hospital.duckdb",
            "table": "patients",
            "undeclared": "drop",
            **case.get("source", {}),
        },
        "attributes": make_policy(attributes).model_dump(exclude_none=True)["attributes"],
        "privacy": case.get("privacy", {"k": 5}),
        "search": {"suppression_limit": 0.02, **case.get("search", {})},
        "release": {"table": "patients", **case.get("release", {})},
        "catalog": {"database": tmp_path / "catalog.duckdb"},
    }
    policy = sqlanon.Policy(**sections)
    with sqlanon.connect() as db:
        if kind == "earlier":
            first = sections | {"release": {"table": "patients"}, "privacy": {"k": 9}}
            db.anonymize(sqlanon.Policy(**first)).publish(tmp_path / "first.duckdb")
        result = db.anonymize(policy)
        assert result.report(tmp_path / "private.html", private=True)
        assert result.report(tmp_path / "public.html")
        release = result.publish(tmp_path / "release.duckdb")
        assert db.report(release.path, tmp_path / "release.html")
        assert db.report(release.path, tmp_path / "checked.html", policy=policy)
    assert read(tmp_path / "public.html").charts == read(tmp_path / "release.html").charts
    assert read(tmp_path / "private.html").charts.keys() > read(tmp_path / "public.html").charts.keys()
    few = case.get("privacy", {}).get("k", 5)
    row_counts = [record["rows"] for record in records(read(tmp_path / "public.html").charts) if "rows" in record]
    assert min(row_counts, default=few) >= few
    assert bool(row_counts) == (kind != "persons")


# Wrong requests, and missing files


@pytest.fixture
def workshop(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "people.duckdb") as connection:
        connection.execute("CREATE TABLE people AS SELECT i % 4 AS ward, i AS age FROM range(40) AS r(i)")
    (tmp_path / "policy.toml").write_text(
        '[source]\ndatabase = "people.duckdb"\ntable = "people"\n[attributes]\n'
        'ward = { role = "quasi", hierarchy = "suppress" }\n'
        'age = { role = "quasi", hierarchy = { intervals = [20] } }\n'
        '[privacy]\nk = 5\n[release]\ndatabase = "release.duckdb"\n'
    )
    return tmp_path


@pytest.mark.slow
def test_report_command_writes_the_page(workshop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy, release = workshop / "policy.toml", workshop / "release.duckdb"
    assert cli("report", policy, "-o", workshop / "page.html").status == 0
    assert not release.exists(), "nothing is published"
    assert capsys.readouterr().out.startswith(f"{workshop / 'page.html'}: the policy's requirements hold\n")
    assert cli("report", policy, "-o", workshop / "inside.html", "--private", "--compare").status == 0
    assert "strategies" in read(workshop / "inside.html").charts
    with sqlanon.connect() as db:
        db.anonymize(sqlanon.Policy.load(policy)).publish()
    assert cli("report", release, "-o", workshop / "page.html").status == 0
    assert cli("report", release, "-o", workshop / "page.html", "--policy", policy).status == 0
    assert "against the source: source rows" not in read(workshop / "page.html").text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["policy.toml", "-o", "people.duckdb"], "the report's name must end in .html"),
        (["policy.toml", "-o", "nowhere/page.html"], "does not exist"),
        (["policy.toml", "-o", "page.html", "--policy", "policy.toml"], "is for a report of a release"),
        (["policy.toml", "-o", "page.html", "--compare"], "needs a private report"),
        (["people.duckdb", "-o", "page.html", "--private", "--compare"], "give the policy instead of the release"),
        (["people.duckdb", "-o", "page.html"], "it has no manifest"),
        (["gone.duckdb", "-o", "page.html"], "there is no release"),
        (["gone.toml", "-o", "page.html"], "gone.toml"),
    ],
)
def test_mistakes_are_reported(
    arguments: list[str],
    message: str,
    workshop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workshop)
    before = (workshop / "people.duckdb").read_bytes()
    assert cli("report", *arguments).status == 2
    assert message in capsys.readouterr().err
    assert (workshop / "people.duckdb").read_bytes() == before
    assert not (workshop / "page.html").exists()


@pytest.mark.slow
def test_a_release_that_was_tampered_with(workshop: Path) -> None:
    with sqlanon.connect() as db:
        release = db.anonymize(sqlanon.Policy.load(workshop / "policy.toml")).publish()
    with duckdb.connect(release.path) as connection:
        connection.execute(f"DELETE FROM {_table_of(connection)} WHERE rowid = 0")
    assert cli("report", release.path, "-o", workshop / "page.html").status == 1
    assert "This release does NOT hold what it claims." in read(workshop / "page.html").text
    with duckdb.connect(release.path) as connection:
        connection.execute('UPDATE sqlanon.manifest SET columns = \'[{"name": "x", "type": "y", "role": "quasi"}]\'')
    assert cli("report", release.path, "-o", workshop / "page.html").status == 1
    assert "the page shows no more" in read(workshop / "page.html").text


def _table_of(connection: duckdb.DuckDBPyConnection) -> str:
    """The table that holds the released rows, whatever it is called."""
    query = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' ORDER BY estimated_size DESC"
    (name, *_) = connection.execute(query).fetchone() or ("",)
    return str(name)


@pytest.mark.thorough
@pytest.mark.parametrize("library", ["altair", "vl_convert"])
def test_a_report_without_its_extra_names_the_package(
    library: str, workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert cli("report", workshop / "policy.toml", "-o", workshop / "page.html").status == 2
    assert capsys.readouterr().err == (
        f"error: a report needs {library.replace('vl_convert', 'vl-convert-python')}, which is not installed; "
        "in the checkout of sqlanon, run: pip install '.[report]'\n"
    )
    with sqlanon.connect() as db:
        chart = db.anonymize(sqlanon.Policy.load(workshop / "policy.toml")).chart
        if library == "altair":
            with pytest.raises(MissingLibraryError, match=r"a chart needs altair.*'\.\[report\]'"):
                chart.classes()
        else:  # charts alone do not need it
            assert chart.classes().to_dict()


@pytest.mark.slow
def test_a_page_that_cannot_be_written_leaves_nothing(workshop: Path) -> None:
    (workshop / "page.html").mkdir()
    with sqlanon.connect() as db, pytest.raises(ReleaseError, match="cannot be written"):
        db.report(sqlanon.Policy.load(workshop / "policy.toml"), workshop / "page.html")
    assert [path.name for path in workshop.iterdir() if path.name.startswith(".")] == []


# Words


def test_every_requirement_and_every_measure_has_its_words() -> None:
    attributes = {"a": "suppress", "b": "suppress", "s": "sensitive", "u": "sensitive"}
    privacy: dict[str, Any] = {
        "k": 3, "average_risk": 0.2, "sample_uniqueness": 0.1, "k_map": 2,
        "delta_presence": {"max": 0.5}, "k_anonymity": [{"quasi": ["a"], "k": 7}],
        "population_uniqueness": {"limit": 0.05, "population": 1000},
        "l_diversity": [{"attribute": "s", "kind": "distinct", "l": 2}, {"attribute": "s", "kind": "entropy", "l": 1.5},
                        {"attribute": "u", "kind": "recursive", "l": 2, "c": 4, "joint": True}],
        "t_closeness": [{"attribute": "s", "distance": "equal", "t": 0.3}],
        "delta_disclosure": [{"attribute": "s", "delta": 2}], "beta_likeness": [{"attribute": "u", "beta": 3}],
        "alpha_k": [{"attribute": "s", "alpha": 0.75}],
    }  # fmt: skip
    roles = make_policy(attributes).model_dump(exclude_none=True)["attributes"]
    policy = sqlanon.Policy(attributes=roles, privacy=privacy, population={"table": "p"})
    sentences = view.list_requirement_sentences(policy.redact())
    assert len(sentences) == 14
    assert "{" not in " ".join(sentences)
    for figure in ("at least 3 rows", "at least 7 rows", "20 %", "10 %", "5 %", "75 %", "c = 4", "at most 0.3"):
        assert any(figure in sentence.lower() for sentence in sentences), figure
    assert all(measure.description and measure.formula for measure in MEASURES.values())


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release as Parquet, 30 rows in six classes of five, its values of m in tens and threes of rows."""
    path = tmp_path_factory.mktemp("plain") / "r.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 6 AS q, if(i < 3, 'x', if(i < 10, 'y', 'z')) AS m FROM range(30) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            rule = {"role": "quasi", "hierarchy": {"intervals": [1, 6]}, "min_level": 1, "max_level": 1}
            db.anonymize(make_policy({"q": rule, "m": "insensitive"}, k=2)).publish(path, "t")
    return path


def with_policy(release: Path, target: Path, **changed: Any) -> Path:
    """The same rows, and a manifest that shows another policy."""
    with duckdb.connect() as connection:
        query = f"SELECT decode(value) FROM parquet_kv_metadata('{release}') WHERE decode(key) = 'sqlanon'"
        manifest = json.loads(connection.execute(query).fetchall()[0][0])
        manifest["policy"] = json.dumps(json.loads(manifest["policy"]) | changed)
        text = json.dumps(manifest).replace("'", "''")
        connection.execute(f"COPY (FROM '{release}') TO '{target}' (FORMAT parquet, KV_METADATA {{sqlanon: '{text}'}})")
    return target


@pytest.mark.thorough
@pytest.mark.parametrize(("privacy", "few"), [
    ({"k": 2}, 2),
    ({"k": 4, "l_diversity": [{"attribute": "m", "kind": "distinct", "l": 2}]}, 4),
    ({"k": 2, "l_diversity": [{"attribute": "m", "kind": "entropy", "l": 6.5}]}, 7),
    ({"k": 2, "k_anonymity": [{"quasi": ["q"], "k": 9}]}, 9),
    ({"k_anonymity": [{"quasi": ["q"], "k": 3}]}, 5),
    ({"l_diversity": [{"attribute": "m", "kind": "distinct", "l": 8}]}, 8),
    ({"k": "two"}, 5),
])  # fmt: skip
def test_no_count_below_the_promised_one_is_shown(privacy: Any, few: int, plain: Path, tmp_path: Path) -> None:
    facts = read_release_facts(with_policy(plain, tmp_path / "r.parquet", privacy=privacy))
    assert facts.few == few
    (column,) = (facts_column for facts_column in facts.columns if facts_column.name == "m")
    assert dict(column.after.bars) == ({"x": 3, "y": 7, "z": 20} if few <= 3 else {"z": 20})  # x alone could be counted
    below = 6 if few > 5 else 0  # all classes have five rows
    assert sum(n for _, high, n, _ in (facts.sizes or ClassSizes.from_classes({})).bins(few) if high < few) == below


@pytest.mark.cases(2)
@pytest.mark.parametrize("rules", [7, [3], [{"rule": "intervals", "widths": "x"}], [{}], [{"rule": "dates"}]])
def test_a_strange_manifest_has_its_page(rules: Any, plain: Path, tmp_path: Path) -> None:
    attributes = {"q": {"role": "quasi", "hierarchy": rules}, "m": {"role": "insensitive"}}
    facts = read_release_facts(with_policy(plain, tmp_path / "r.parquet", attributes=attributes))
    assert "level 1 of 3: generalized" in render_page(facts)


@pytest.mark.slow
def test_a_release_in_postgres_shows_itself(plain: Path) -> None:
    """The server cannot be reached."""
    spot = PostgresLocation("postgresql://me:secret@127.0.0.1:1/hospital", "shared", HOSTILE[1])
    display = PostgresRelease(spot, read_release_facts(plain).claims)._repr_html_()
    assert Parsed(display).tags.keys() == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert f"Release shared.{HOSTILE[1]}" in Parsed(display).text
    assert "30 of 30, 0 suppressed" in display
    assert "secret" not in display


ON_SERVERS = ["env:NOT_SET_ANYWHERE", "postgresql://127.0.0.1:1/hospital", "sc://127.0.0.1:1", "local[2]"]


@pytest.mark.slow
@pytest.mark.parametrize("place", ON_SERVERS)
@pytest.mark.parametrize("verb", ["report", "attack"])
def test_a_release_on_a_server_is_refused_with_a_remedy(verb: str, place: str, tmp_path: Path) -> None:
    output = ["-o", str(tmp_path / "page.html")] if verb == "report" else []
    done = cli(verb, place, *output)
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert "publish the release to a file, too" in line
    with pytest.raises(ReleaseError, match="publish the release to a file, too"), sqlanon.connect() as db:
        db.report(place, tmp_path / "page.html") if verb == "report" else sqlanon.attack(place)


# Charts that others write into pages and pictures

IN_PIECES = [
    "</script><img src=x onerror=alert(1)>",
    "<!-- <script>",
    "</SCRIPT >",
    "a\x01b",
    "a\\x01b",
    "\x1b[31m",
    "\uffff",
]


def charts_of(texts: list[str], db: sqlanon.Database) -> Iterator[Any]:
    """All charts of a table with such names and labels."""
    chart = db.anonymize(make_policy({f"q{texts[0]}": "suppress", f"s{texts[1]}": "sensitive"}, k=2, table="t")).chart
    yield chart.distribution(f"s{texts[1]}", private=True)
    yield chart.distribution(f"q{texts[0]}")
    yield from (chart.classes(), chart.risk(), chart.attributes(), chart.frontier(), chart.lattice())


@pytest.fixture
def in_pieces() -> Iterator[sqlanon.Database]:
    with duckdb.connect() as connection:
        connection.execute(f'CREATE TABLE t ("q{IN_PIECES[0]}" VARCHAR, "s{IN_PIECES[1]}" VARCHAR)')
        connection.executemany("INSERT INTO t VALUES (?, ?)", [[label, label] for label in IN_PIECES * 3])
        with sqlanon.connect(connection) as db:
            yield db


@pytest.mark.slow
def test_no_label_ends_the_script_that_altair_writes(in_pieces: sqlanon.Database) -> None:
    for chart in charts_of(IN_PIECES, in_pieces):
        bundle = chart._repr_mimebundle_()
        html = (bundle[0] if isinstance(bundle, tuple) else bundle).get("text/html") or chart.to_html()
        for text in (html, chart.to_html()):
            parsed = Parsed(text)
            assert "img" not in parsed.tags
            assert parsed.tags["script"] == len(re.findall("</script", text, re.IGNORECASE))
            assert "<!--" not in text
            assert not re.search("[\x00-\x08\x0e-\x1f\uffff]", text)
            assert not re.search("[\x00-\x08\x0e-\x1f\uffff]", "".join(map(str, leaves(chart.to_dict()))))


@pytest.mark.slow
def test_labels_that_render_alike_stay_separate(in_pieces: sqlanon.Database) -> None:
    chart = next(charts_of(IN_PIECES, in_pieces)).to_dict()
    labels = [record["label"] for record in records({"": chart})]
    assert len(labels) == 2 * len(IN_PIECES)
    assert len(set(labels)) == len(IN_PIECES)


@pytest.mark.thorough
def test_charts_with_signs_that_cannot_be_shown_are_pictures(tmp_path: Path) -> None:
    """Runs in a separate process, because the library that draws ends it."""
    script = """
import sys, duckdb, sqlanon
from sqlanon.report.charts import distribution
from sqlanon.report.distributions import Distribution
texts = ["\\x00", "a\\x01", "\\x1b[31m", "\\x7f", "\\ufffe", "\\uffff", "\\ud800", "</script>", "a"]
chart = distribution("\\x01name\\uffff", Distribution(tuple((text, 10) for text in texts)))
for kind in ("svg", "png", "html"):
    chart.save(f"{sys.argv[1]}/chart.{kind}")
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, timeout=120)
    drawn = xml.etree.ElementTree.parse(tmp_path / "chart.svg")
    assert {"\\x00", "a\\x01", "\\uffff", "\\ud800"} <= {element.text for element in drawn.iter() if element.text}
    page = (tmp_path / "chart.html").read_text(encoding="utf-8")
    assert "</script><" not in page.rpartition("vegaEmbed(")[2][:3000]
    assert not re.search(r"<(script|link)[^>]*(src|href)=", page), "it loads nothing from a network"


# Consequences of published statements


@pytest.mark.thorough
def test_no_count_follows_by_subtraction(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 3 AS q, if(i < 3, 'rare', 'd' || i % 3) AS s, "
            "if(i < 3, NULL, i % 60) AS n FROM range(400) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            policy = make_policy({"q": "suppress", "s": "sensitive", "n": "insensitive"}, k=5, table="t")
            db.anonymize(policy).report(tmp_path / "page.html")
    parsed = read(tmp_path / "page.html")
    drawn = [[record["rows"] for record in records({"": spec}) if "rows" in record] for spec in parsed.charts.values()]
    sums = [sum(rows) for rows in drawn if rows]
    assert len(sums) == 3
    assert all(total == 400 or total <= 395 for total in sums)
    assert [total for total in sums if total != 400] == [133 + 132]
    assert "or (no value)" in str(parsed.charts)
    assert "rare" not in str(parsed.charts)
    assert "Values in fewer than 5 rows are not shown, nor others that would give these away." in parsed.text


@pytest.mark.slow
def test_no_value_is_shown_where_persons_count(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT i % 3 AS q, 'p' || i % 40 AS who, if(i % 40 = 7, 'of one', 'd') AS s "
            "FROM range(400) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            policy = make_policy({"q": "suppress", "s": "sensitive"}, k=2, table="t")
            tree = policy.model_dump(exclude_none=True)
            tree["source"]["person"] = "who"
            result = db.anonymize(sqlanon.Policy(**tree))
            result.report(tmp_path / "page.html")
            result.report(tmp_path / "private.html", private=True)
    page = read(tmp_path / "page.html")
    assert "of one" not in str(page.charts)
    assert not [record for record in records(page.charts) if "rows" in record]
    assert page.text.count("no value is shown") == 2
    assert "of one" in str(read(tmp_path / "private.html").charts)


@pytest.mark.slow
def test_the_smallest_class_is_reported_consistently(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT if(i < 2, 9, i % 2) AS q, 'd' || i % 2 AS s FROM range(40) AS r(i)"
        )
        with sqlanon.connect(connection) as db:
            tree = make_policy({"q": "suppress", "s": "sensitive"}, table="t").model_dump(exclude_none=True)
            tree["privacy"] = {"sample_uniqueness": 0.5}
            db.anonymize(sqlanon.Policy(**tree)).report(tmp_path / "page.html")
    text = read(tmp_path / "page.html").text
    assert "smallest group2" in text
    assert "highest risk of a row1 in 2" in text
    assert "rows in groups of fewer than 52" in text
    assert "fewer than 512" in text


MALFORMED: dict[str, Any] = {
    "attributes": 5, "attributes of": {"attributes": {"q": 3}}, "privacy": 5, "search": [1], "rows": "x",
    "classes": None, "generalization": {"q": "x"}, "score": [], "published_at": 5, "noise": {"q": 1},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_manifest_is_reported_as_broken(name: str, plain: Path, tmp_path: Path) -> None:
    wrong = MALFORMED[name]
    in_policy = {"attributes": {"attributes": wrong}, "privacy": {"privacy": wrong}, "search": {"search": wrong}}
    policy = wrong if name == "attributes of" else in_policy.get(name, {})
    path = with_policy(plain, tmp_path / "r.parquet", **policy)
    if not policy:
        parquet = pq.read_table(path)
        metadata = dict(parquet.schema.metadata)
        (key,) = (key for key, value in metadata.items() if b"policy_hash" in value)
        value = json.dumps(wrong) if name in ("generalization", "noise") else wrong
        metadata[key] = json.dumps(json.loads(metadata[key]) | {name: value}).encode()
        pq.write_table(parquet.replace_schema_metadata(metadata), path)
    with pytest.raises(BrokenReleaseError, match="its manifest is broken"):
        read_release_facts(path)


@pytest.mark.slow
def test_only_a_report_is_overwritten(plain: Path, tmp_path: Path) -> None:
    page_ = tmp_path / "page.html"
    with sqlanon.connect() as db:
        page_.write_text("<!DOCTYPE html>\n<p>mine</p>")
        with pytest.raises(ReleaseError, match="exists and is not a report"):
            db.report(plain, page_)
        assert page_.read_text() == "<!DOCTYPE html>\n<p>mine</p>"
        page_.write_text("")
        assert db.report(plain, page_)
        first = page_.read_text()
        assert db.report(plain, page_)
        assert page_.read_text() == first


def test_a_release_whose_rows_are_not_read_has_its_page(plain: Path, tmp_path: Path) -> None:
    """Written by another program, it has metadata that releases do not have."""
    pq.write_table(pq.read_table(plain), tmp_path / "r.parquet")
    facts = read_release_facts(tmp_path / "r.parquet")
    assert facts.columns == ()
    assert "ARROW:schema" in render_page(facts)
    assert "not read" in render_page(facts)
