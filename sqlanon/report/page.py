"""The page: one HTML file that needs nothing else, and asks for nothing.

Its security policy names the scripts and the style that it has by their hashes; nothing else may run, and nothing may
be loaded. Vega interprets its expressions, so that it needs no ``unsafe-eval``.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import vl_convert

from sqlanon.report.facts import MARK, Inside, ReportFacts
from sqlanon.report.overview import DRAFT, head
from sqlanon.report.sections import navigation, sections
from sqlanon.support.markup import escape_html

PRIVATE = "PRIVATE: for internal use only. This page shows what is in the source, not only what was released."
RUNNING = "PRIVATE: for internal use only"


def page(facts: ReportFacts, inside: Inside | None = None) -> str:
    charts: dict[str, Any] = {}
    found = list(sections(facts, inside, charts))
    title = f"{facts.claims.table_name}: how the people in it are protected"
    bundle, script, style = _bundle(), _part("page.js"), _part("page.css")
    running = " · ".join([*([RUNNING] if inside is not None else []), *(["DRAFT"] if facts.claims.draft else [])])
    if running:
        # Of a printed page, every browser repeats what is fixed, and some have boxes in the margins.
        style += f'@page {{ @top-center {{ content: "{running}"; color: #a3122c; font: 700 9pt sans-serif; }} }}\n'
    policy = (
        f"default-src 'none'; script-src {_hash(bundle)} {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    notes = [*([PRIVATE] if inside is not None else []), *([DRAFT] if facts.claims.draft else [])]
    top = "".join(f'<p class="private">{escape_html(note)}</p>\n' for note in notes)
    top += f'<div class="running" aria-hidden="true">{escape_html(running)}</div>\n' if running else ""
    return "\n".join(
        [
            "<!DOCTYPE html>",
            MARK,
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{escape_html(running + ' · ' if running else '')}{escape_html(title)}</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<a class="skip" href="#content">To the content</a>',
            f'<div class="layout">{navigation(found)}<main id="content">',
            top,
            head(facts, inside),
            *map(str, found),
            "</main></div>",
            "<footer><details><summary>Licences of the libraries that draw the charts</summary>",
            f"<pre>{escape_html(_part('licences.txt'))}</pre></details></footer>",
            f'<script type="application/json" id="charts">{embedded(charts)}</script>',
            _explorer(inside),
            f"<script>{bundle}</script>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _explorer(inside: Inside | None) -> str:
    if inside is None or inside.explorer is None or inside.explorer.data is None:
        return ""
    return f'<script type="application/json" id="explorer">{embedded(inside.explorer.data)}</script>'


def embedded(value: Mapping[str, Any]) -> str:
    """JSON for a script element: nothing in it ends the element, or begins a comment.

    >>> embedded({"a": "</script><!--"})
    '{"a":"\\\\u003c/script\\\\u003e\\\\u003c!--"}'
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


@cache
def _bundle() -> str:
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in text.lower() or "<!--" in text:  # it would end its element
        raise ValueError("the script of the charts cannot be embedded")
    return text


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
