"""The documentation site is built without warnings, has no broken link, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from sqlanon.policy.models import parse_toml
from support.files import ROOT

pytest.importorskip("zensical", reason="the site is built by zensical: pip install '.[docs]'")
pytestmark = pytest.mark.slow

CONFIG = ROOT / "zensical.toml"
PAGES = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
LOADED = {"link": "href"} | dict.fromkeys(("script", "img", "iframe", "source", "video", "audio"), "src")


class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in LOADED and LOADED[tag] in values and values.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(CONFIG, folder)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    output = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    assert done.returncode == 0 and "Warning" not in output, output
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


@pytest.mark.thorough
def test_every_page_is_built_and_in_the_navigation(site: Path) -> None:
    def list_pages(node: object) -> list[str]:
        if isinstance(node, str):
            return [node]
        return [page for part in (node.values() if isinstance(node, dict) else node) for page in list_pages(part)]  # type: ignore[attr-defined]

    assert sorted(list_pages(parse_toml(CONFIG)["project"]["nav"])) == PAGES
    assert [page for page in PAGES if not (site / page).with_suffix(".html").exists()] == []


@pytest.mark.thorough
def test_all_links_resolve(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    checked = 0
    for path, page in pages.items():
        if path.name == "404.html":  # its links start at the root of a server
            continue
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchors = pages[target].anchors if target in pages else {""}
            if not target.is_file() or unquote(parts.fragment) not in anchors | {""}:
                broken.append((str(path.relative_to(site)), link))
    assert checked > 500 and broken == []


def test_pages_load_only_local_files(site: Path, pages: dict[Path, Page]) -> None:
    elsewhere = [
        (path.name, address) for path, page in pages.items() for address in page.loaded if urlsplit(address).netloc
    ]
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert elsewhere == []
    assert [
        match for match in re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')]+)", styles) if urlsplit(match).netloc
    ] == []
