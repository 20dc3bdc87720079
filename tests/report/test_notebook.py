"""The output of policies, plans, results, comparisons, releases and verifications in notebooks and prompts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pytest

import sqlanon
from sqlanon.support.checks import Check
from support.policies import make_policy

HOSTILE = "<script>alert('x')</script>"
COLUMN = f"zip {HOSTILE} \"&'"
TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td"}


class Seen(HTMLParser):
    """The tags of a text, their attributes, and the text that people read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes, self.text = set[str](), set[str](), ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


@pytest.fixture(scope="module")
def displayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One of each."""
    folder = tmp_path_factory.mktemp("notebook")
    with duckdb.connect() as live:
        quoted = COLUMN.replace('"', '""')
        rows = f"SELECT '0213' || i % 3 AS \"{quoted}\", i % 40 AS age, i % 2 AS ill FROM range(60) AS r(i)"
        live.execute(f"CREATE TABLE t AS {rows}")
        policy = sqlanon.Policy(
            source={"table": "t"},
            attributes={
                COLUMN: {"role": "quasi", "hierarchy": {"mask": "right"}},
                "age": {"role": "quasi", "hierarchy": {"intervals": [10, 20]}},
                "ill": {"role": "sensitive"},
            },
            privacy={"k": 4, "l_diversity": [{"attribute": "ill", "kind": "distinct", "l": 2}]},
            search={"suppression_limit": 0.125},
        )
        with sqlanon.connect(live) as db:
            result = db.anonymize(policy)
            release = result.publish(folder / f"{HOSTILE.replace('/', '_')}.duckdb")
            yield {
                "policy": policy,
                "plan": db.plan(policy),
                "result": result,
                "comparison": db.compare(policy, ["optimal", "datafly", "mondrian"]),
                "release": release,
                "verification": release.verify(),
            }


@pytest.mark.slow
def test_displays_are_plain_and_escaped(displayed: dict[str, Any]) -> None:
    """No script, no style and no colour: the notebook's own theme applies. Small enough for a page of them."""
    for name, display in displayed.items():
        seen = Seen(display._repr_html_())
        assert seen.tags <= ({"details", "summary", "pre"} if name == "plan" else TAGS), name
        assert seen.attributes <= {"scope", "class"}, name
        assert "<script" not in display._repr_html_(), name
        assert name == "plan" or len(display._repr_html_()) < 4000, name


@pytest.mark.slow
def test_displays_describe_their_object(displayed: dict[str, Any]) -> None:
    texts = {name: Seen(display._repr_html_()).text for name, display in displayed.items()}
    for part in (
        "4-anonymity, distinct 2-diversity of ill",
        "at most 12.5 %",
        COLUMN,
        "mask right",
        "intervals 10, 20",
    ):
        assert part in texts["policy"]
    assert "1. scan" in texts["plan"] and "SELECT" in texts["plan"] and COLUMN in texts["plan"].replace('""', '"')
    assert COLUMN in texts["result"] and "of 60 released" in texts["result"]
    assert {"optimal", "datafly", "mondrian"} <= set(texts["comparison"].split())
    assert "of 60, " in texts["release"] and displayed["release"].manifest.digest in texts["release"]
    assert ": verified" in texts["verification"] and "not verifiable alone" not in texts["verification"]


@pytest.mark.slow
def test_reprs_are_one_short_line(displayed: dict[str, Any]) -> None:
    for name in displayed.keys() - {"comparison"}:
        line = repr(displayed[name])
        assert re.match(r"(Policy|Plan|Result|Release|Verification)\(", line), name
        assert "\n" not in line and len(line) < 300, name
    assert (
        repr(displayed["policy"])
        == str(displayed["policy"])
        == (
            f"Policy(4-anonymity, distinct 2-diversity of ill; quasi: {COLUMN}, age; sensitive: ill; strategy: optimal)"
        )
    )
    assert "verified=True" in repr(displayed["verification"])


@pytest.mark.slow
def test_failed_verification_is_displayed_as_failed(displayed: dict[str, Any]) -> None:
    verification = displayed["verification"]
    broken = type(verification)(
        verification.path,
        verification.manifest,
        (*verification.checks, Check("rows", False, HOSTILE)),
        verification.digest,
    )
    assert "verified=False, failed=['rows']" in repr(broken)
    text = Seen(broken._repr_html_()).text
    assert "NOT verified" in text and "FAILED" in text and HOSTILE in text


@pytest.mark.slow
def test_a_comparison_is_a_relation(displayed: dict[str, Any]) -> None:
    comparison = displayed["comparison"]
    assert comparison.filter("strategy = 'optimal'").fetchall()[0][0] == "optimal"
    assert comparison.columns[:2] == ["strategy", "score"] and len(comparison) == 3
    assert repr(comparison) == repr(comparison.relation)
    with duckdb.connect() as connection:
        connection.register("comparison", comparison.to_arrow_table())
        assert connection.execute("SELECT count(*) FROM comparison").fetchall() == [(3,)]
    assert not hasattr(comparison, "_repr_mimebundle_") and not hasattr(comparison, "_ipython_display_")


def test_rules_of_a_policy_show_no_values(tmp_path: Path) -> None:
    """Categories, and the folders of files, may be read by others over a shoulder."""
    (tmp_path / "jobs.csv").write_text("nurse;health;*\nclerk;office;*\n", encoding="utf-8")
    policy = make_policy(
        {
            "job": {"file": str(tmp_path / "jobs.csv")},
            "ward": {"categories": {"inside": ["secret"], "outside": ["hidden"]}},
            "born": {"dates": ["month", "year"]},
            "sex": "suppress",
            "zip": [{"mask": "right", "levels": 2}, {"table": "areas"}],
            "height": {"role": "quasi", "noise": {"epsilon": 1.0}},
        }
    )
    text = Seen(policy._repr_html_()).text
    for part in ("file jobs.csv", "categories", "dates month, year", "suppress", "mask right; table areas", "noise"):
        assert part in text
    for private in ("secret", "hidden", "inside", str(tmp_path)):
        assert private not in policy._repr_html_()
