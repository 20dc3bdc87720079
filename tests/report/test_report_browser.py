"""The report in a real browser: it draws, asks for nothing, prints, and takes no text for a script."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import duckdb
import pytest

import sqlanon
from sqlanon.demo.hospital import make_hospital
from sqlanon.errors import InfeasibleError
from sqlanon.report.facts import SAMPLE
from sqlanon.report.page import RUNNING
from sqlanon.strategies.compare import compute_attribute_losses
from support.browser import Browser, chromium
from support.policies import make_policy
from support.report_pages import HOSTILE

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="chromium is not installed: apt-get install chromium"),
]
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"
SVG = {"svg", "g", "path", "line", "text", "rect", "defs", "clipPath", "tspan"}
MEGABYTE = 1_000_000
HOSPITAL: dict[str, Any] = {
    "name": "identifying", "address": "identifying", "zip": "mask",
    "birth_date": {"dates": ["month", "year", "decade"]}, "sex": "suppress", "ethnicity": "suppress",
    "diagnosis": "sensitive", "cost": "insensitive",
}  # fmt: skip


def losses_of(result: sqlanon.Result) -> list[float]:
    return [*compute_attribute_losses(result._draft.search_input, result._draft.result).values()]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    names = ("public", "private", "release", "local", "large", "hostile")
    paths = {name: folder / f"{name}.html" for name in names}
    make_hospital(folder / "hospital.duckdb", rows=2000)
    policy = make_policy(HOSPITAL, k=5, table="patients", search={"suppression_limit": 0.02})
    with sqlanon.connect(folder / "hospital.duckdb") as db:
        result = db.anonymize(policy)
        result.report(paths["public"])
        result.report(paths["private"], True, db.compare(policy, ["optimal", "datafly", "mondrian"]))
        db.report(result.publish(folder / "release.parquet", "patients").path, paths["release"])
        local = make_policy(HOSPITAL, k=5, table="patients", search={"strategy": "mondrian"})
        db.report(local, paths["local"], private=True)
    large(paths["large"])
    hostile(paths["hostile"])
    return paths


def large(path: Path) -> None:
    """Progress of a search that evaluated 100,000 generalizations."""
    with duckdb.connect() as connection:
        columns = ", ".join(f"'aaaaaaaa' || (i % 3) AS c{j}" for j in range(5))
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM range(100) AS r(i)")
        with sqlanon.connect(connection) as db:
            result = db.anonymize(make_policy({f"c{j}": "mask" for j in range(5)}, k=5))
            lattice = result._run.work("lattice").sql("duckdb")
            connection.execute(f"DELETE FROM {lattice}")
            connection.execute(
                f"INSERT INTO {lattice} SELECT l, list_sum(l), list_sum(l) / 50, if(hash(l) % 3 = 0, 'satisfies', "
                "'violates'), 50, hash(l) % 99, if(hash(l) % 3 = 0, list_sum(l) / 45 + (hash(l) % 7) / 90, NULL) FROM "
                "(SELECT [i % 10, i // 10 % 10, i // 100 % 10, i // 1000 % 10, i // 10000]::INTEGER[] AS l "
                "FROM range(100000) AS r(i))"
            )
            assert len(result.lattice) == 100_000
            result.report(path, private=True)


def hostile(path: Path) -> None:
    """Its columns and its labels try to be scripts."""
    with duckdb.connect() as connection:
        connection.execute('CREATE TABLE t ("<img src=x onerror=alert(0)>" VARCHAR, "${alert(1)}" VARCHAR)')
        connection.executemany("INSERT INTO t VALUES (?, ?)", [[text, text] for text in HOSTILE * 3])
        with sqlanon.connect(connection) as db:
            names = {"<img src=x onerror=alert(0)>": "suppress", "${alert(1)}": "sensitive"}
            db.report(make_policy(names, k=2, table="t"), path, private=True)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


NAMES = ["public", "private", "release", "local", "large", "hostile"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_draws_without_network_requests(name: str, scheme: str, pages: dict[str, Path], browser: Browser) -> None:
    assert pages[name].stat().st_size < 3 * MEGABYTE
    browser.scheme(scheme)
    browser.open(pages[name])
    browser.screenshot(SCREENSHOTS / f"{name}-{scheme}.png")
    assert browser.complaints == []
    assert browser.requests == [pages[name].as_uri()]
    figures = browser.value("document.querySelectorAll('figure').length")
    drawn = browser.value(
        "[...document.querySelectorAll('.plot svg')].filter(svg => svg.getBoundingClientRect().height > 20 "
        "&& svg.querySelectorAll('.role-mark path, .role-mark line').length > 0).length"
    )
    assert drawn == figures >= 4
    light = browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert light == (scheme == "light")
    texts = browser.value("getComputedStyle(document.querySelector('.plot svg text')).fill")
    assert texts == browser.value("getComputedStyle(document.querySelector('.plot')).color")


def test_a_complaint_is_heard(pages: dict[str, Path], browser: Browser) -> None:
    """The control of the test above: the page may load and run nothing more, and each attempt is noticed."""
    browser.open(pages["public"])
    assert browser.value("fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')") == "refused"
    assert any("127.0.0.1:9" in complaint for complaint in browser.complaints)
    heard = len(browser.complaints)
    browser.value("{ const more = document.createElement('script'); more.textContent = 'window.ran = 1'; "
                  "document.body.append(more); }")  # fmt: skip
    assert browser.value("window.ran === undefined")
    browser.value("document.body.insertAdjacentHTML('beforeend', '<img src=\"http://127.0.0.1:9/x.png\">')")
    browser.until("document.images.length === 1 && document.images[0].complete")
    assert len(browser.complaints) >= heard + 2
    assert {*browser.requests} == {pages["public"].as_uri(), *browser.refused}


def test_the_large_lattice_is_a_sample(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["large"])
    points = browser.value("document.querySelectorAll('#plot-frontier .mark-symbol path').length")
    assert SAMPLE < points <= SAMPLE + 10  # and what marks the chosen one, and the legend
    assert "The lattice has 100,000 generalizations" in browser.value("document.body.innerText")


@pytest.mark.parametrize("name", ["private", "hostile"])
def test_every_chart_can_be_saved(name: str, pages: dict[str, Path], browser: Browser, tmp_path: Path) -> None:
    browser.open(pages[name])
    charts = browser.value("document.querySelectorAll('figure').length")
    links = "[...document.querySelectorAll('.vega-actions a')]"
    assert browser.value(f"{links}.length") == 2 * charts
    saved = [browser.saved(f"{links}[{i}]", tmp_path) for i in range(2 * charts)]
    assert {path.suffix for path in saved} == {".png", ".svg"}
    assert len(set(saved)) == 2 * charts
    for path in saved:
        if path.suffix == ".png":
            assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        else:
            text = path.read_text(encoding="utf-8")
            assert {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()} <= SVG
            assert "currentColor" in text
    assert browser.complaints == []
    assert all(
        request == pages[name].as_uri() or request.startswith(("data:", "blob:")) for request in browser.requests
    )


def test_tooltips_show_texts(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["hostile"])
    tooltips = set()
    for i in range(browser.value("document.querySelectorAll('.plot .mark-rect path').length")):
        place = browser.value(
            f"(() => {{ const bar = document.querySelectorAll('.plot .mark-rect path')[{i}]; "
            "bar.scrollIntoView({block: 'center'}); const at = bar.getBoundingClientRect(); "
            "return [at.x + at.width / 2, at.y + at.height / 2]; })()"
        )
        browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        if browser.value("document.querySelector('#vg-tooltip-element.visible') !== null"):
            tooltips.add(browser.value("document.querySelector('#vg-tooltip-element').innerText"))
            inside = browser.value(
                "[...document.querySelectorAll('#vg-tooltip-element *')].map(one => one.tagName.toLowerCase())"
            )
            assert set(inside) <= {"table", "tbody", "tr", "td", "h2"}
    assert any("<script>alert(1)<\u2060/script>" in tooltip for tooltip in tooltips)
    assert browser.complaints == []


@pytest.mark.parametrize("name", ["private", "public", "hostile"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_is_accessible(name: str, scheme: str, pages: dict[str, Path], browser: Browser) -> None:
    """Check with axe (https://github.com/dequelabs/axe-core), after opening everything that can be expanded."""
    axe = pytest.importorskip("axe_core_python", reason="axe is not there: pip install axe-core-python")
    browser.scheme(scheme)
    browser.open(pages[name])
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    browser.value((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8") + "; 0")
    report = browser.value(
        "axe.run(document).then(all => [all.passes.length, all.violations.map(one => [one.id, one.impact, "
        "one.nodes.slice(0, 3).map(node => node.html.slice(0, 200) + node.failureSummary)])])"
    )
    passes, violations = report
    assert passes > 20
    assert [violation for violation in violations if violation[1] in ("serious", "critical")] == []


def test_axe_detects_planted_problems(pages: dict[str, Path], browser: Browser) -> None:
    """The control of the test above."""
    axe = pytest.importorskip("axe_core_python", reason="axe is not there: pip install axe-core-python")
    browser.open(pages["public"])
    browser.value("document.querySelector('main').append(document.createElement('input'))")
    browser.value((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8") + "; 0")
    assert "label" in browser.value("axe.run(document).then(all => all.violations.map(one => one.id))")


EXPLORED = [(5, 0.02, None), (12, 0.04, (2, 3, 0, 1)), (25, 0.2, (5, 2, 1, 0)), (3, 0.0, (3, 3, 1, 1))]


def explore(browser: Browser, k: int, limit: float, levels: tuple[int, ...]) -> dict[str, Any]:
    """Text of the page after moving the sliders to these levels."""
    moves = {"k": k, "limit": round(limit * 1000), **{f"level-{i}": level for i, level in enumerate(levels)}}
    for place, value in moves.items():
        browser.value(
            f"(() => {{ const one = document.getElementById('explore-{place}'); one.value = {value}; "
            "one.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )
    summary: dict[str, Any] = browser.value("({...document.getElementById('explore-summary').dataset})")
    losses = "[...document.querySelectorAll('#explore-columns [data-loss]')].map(one => Number(one.dataset.loss))"
    return {**summary, "losses": browser.value(losses), "text": browser.value("document.body.innerText")}


def test_explorer_figures_match_anonymize(pages: dict[str, Path], browser: Browser) -> None:
    """Offline, from the one file: sliders are moved, and each time a real run has the same figures."""
    browser.scheme("light")
    browser.open(pages["private"])
    best = 0
    with sqlanon.connect(pages["private"].parent / "hospital.duckdb") as db:
        for k, limit, levels in EXPLORED:
            tree = make_policy(HOSPITAL, k=k, table="patients", search={"suppression_limit": limit}).model_dump()
            names = [name for name, spec in tree["attributes"].items() if spec["role"] == "quasi"]
            for name, level in zip(names, levels or (), strict=levels is not None):
                tree["attributes"][name] |= {"min_level": level, "max_level": level}
            sections = {name: part for name, part in tree.items() if part is not None}
            try:
                result = db.anonymize(sqlanon.Policy(**sections))
            except InfeasibleError as error:
                assert levels is not None
                summary = explore(browser, k, limit, levels)
                assert summary["fits"] == "false"
                assert int(summary["suppressed"]) == error.suppressed_rows
                assert "Not allowed: " in summary["text"]
                continue
            best_levels = tuple(level or 0 for level in result.generalization.values())
            summary = explore(browser, k, limit, best_levels)
            figures = (int(summary["suppressed"]), int(summary["classes"]), int(summary["smallest"]))
            assert figures == (result.suppressed_rows, result.classes, result.smallest_class)
            assert float(summary["loss"]) == pytest.approx(result.score, abs=1e-12)
            assert summary["losses"] == pytest.approx(losses_of(result), abs=1e-12)
            assert summary["fits"] == "true"
            assert f"{result.released_rows:,} of 2,000 rows are left, in {result.classes:,} groups" in summary["text"]
            if levels is None:  # the best of all: the page finds it, too
                explore(browser, k, limit, (0, 0, 0, 0))
                browser.value("document.getElementById('explore-best').click()")
                again = browser.value("({...document.getElementById('explore-summary').dataset})")
                assert again == {key: summary[key] for key in again}
                best += 1
    assert best == 1
    assert browser.requests == [pages["private"].as_uri()]
    assert browser.complaints == []


POLICY = """
[source]
database = "hospital.duckdb"
table = "patients"

[attributes]
name = { role = "identifying" }
address = { role = "identifying" }
zip = { role = "quasi", hierarchy = { mask = "right" } }
birth_date = { role = "quasi", hierarchy = { dates = ["month", "year", "decade"] } }
sex = { role = "quasi", hierarchy = "suppress" }
ethnicity = { role = "quasi", hierarchy = "suppress" }
diagnosis = { role = "sensitive" }
cost = { role = "insensitive" }

[privacy]
k = 5

[search]
suppression_limit = 0.02
"""


def paste_lines(policy: str, lines: str) -> str:
    """A policy with the copied lines in place of those with the same keys."""
    copied = {line.partition(" = ")[0]: line for line in lines.splitlines() if " = " in line}
    replaced = [copied.pop(line.partition(" = ")[0], line) for line in policy.splitlines()]
    assert not copied
    return "\n".join(replaced)


def test_the_explorer_works_with_the_keyboard_and_copies_lines(pages: dict[str, Path], browser: Browser) -> None:
    browser.scheme("light")
    browser.open(pages["private"])
    browser.value("document.getElementById('explore-k').focus()")
    for _ in range(3):
        for kind in ("keyDown", "keyUp"):
            browser.call(
                "Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight", windowsVirtualKeyCode=39
            )
    assert browser.value("document.getElementById('explore-k-shown').textContent") == "8"
    assert (
        browser.value("document.getElementById('explore-k').labels[0].textContent") == "k: rows in the smallest group"
    )
    browser.value("document.getElementById('explore').scrollIntoView()")
    browser.screenshot(SCREENSHOTS / "explorer.png", width=1280)
    browser.value("document.getElementById('explore-copy').click()")
    browser.until("document.getElementById('explore-copied').textContent !== ''")
    lines = browser.value("document.getElementById('explore-lines').textContent")
    parsed = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(lines)
    assert (parsed["privacy"], parsed["search"]) == ({"k": 8}, {"suppression_limit": 0.02})
    chosen = browser.value(
        "[...document.querySelectorAll('#explore-columns td:nth-child(2)')].map(one => one.textContent)"
    )
    summary = browser.value("({...document.getElementById('explore-summary').dataset})")
    policy = pages["private"].with_name("pasted.toml")
    policy.write_text(paste_lines(POLICY, lines), encoding="utf-8")
    with sqlanon.connect() as db:
        result = db.anonymize(sqlanon.Policy.load(policy), record=False)
    assert [str(level) for level in result.generalization.values()] == [level.split()[0] for level in chosen]
    figures = (result.policy.privacy.k, result.suppressed_rows, result.classes, result.smallest_class)
    assert figures == (8, int(summary["suppressed"]), int(summary["classes"]), int(summary["smallest"]))
    browser.value("document.getElementById('explore-reset').click()")
    assert browser.value("document.getElementById('explore-k-shown').textContent") == "5"


def test_the_explorer_takes_no_label_for_a_script(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["hostile"])
    assert browser.value("document.querySelectorAll('#explore-columns tr').length") == 1
    text = browser.value("document.getElementById('explore').innerText")
    assert "level of <img src=x onerror=alert(0)>" in text
    inside = browser.value("[...document.querySelectorAll('#explore *')].map(one => one.tagName.toLowerCase())")
    assert not {"img", "script", "b"} & set(inside)
    assert browser.complaints == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_prints(name: str, pages: dict[str, Path], browser: Browser) -> None:
    browser.scheme("dark")  # paper is white nevertheless
    browser.open(pages[name])
    target = SCREENSHOTS / f"{name}.pdf"
    browser.pdf(target)
    assert browser.complaints == []
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed: apt-get install poppler-utils")
    done = subprocess.run(["pdftotext", "-layout", target, "-"], capture_output=True, text=True, check=True)
    sizes = subprocess.run(["pdfinfo", target], capture_output=True, text=True, check=True).stdout
    assert "(A4)" in sizes
    *printed, remainder = done.stdout.split("\f")
    assert remainder == ""
    assert len(printed) >= 2
    is_private = name in ("private", "local", "large", "hostile")
    assert [RUNNING in page for page in printed] == [is_private] * len(printed)


def test_a_page_fits_a_telephone(pages: dict[str, Path], browser: Browser) -> None:
    browser.open(pages["private"])
    browser.screenshot(SCREENSHOTS / "private-telephone.png", width=400)
    assert browser.value("document.documentElement.scrollWidth") <= 400
    for place in (".risks p:not(.share)", "section li", "figcaption", "th", "#explore-form label"):  # a long name there
        browser.value(f"document.querySelector('{place}').textContent = 'a_long_name_of_a_column'.repeat(9)")
    assert browser.value("document.documentElement.scrollWidth") <= 400
