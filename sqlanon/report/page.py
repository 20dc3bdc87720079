"""The page: one HTML file that loads nothing.

Its security policy names its scripts and its style by their hashes. Vega interprets its expressions, so it needs no
``unsafe-eval``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import vl_convert
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from sqlanon.report.facts import MARK, PrivateFacts, ReportFacts
from sqlanon.report.view import GRADES, PageView
from sqlanon.support.markup import escape_html

RUNNING = "PRIVATE: for internal use only"
_PRIVATE = f"{RUNNING}. This page shows what is in the source, not only what was released."
_DRAFT = "DRAFT. This release is for testing: do not pass it on. It was not compared with earlier releases."


def render_page(facts: ReportFacts, private: PrivateFacts | None = None) -> str:
    notes = {RUNNING: _PRIVATE} if private is not None else {}
    notes |= {"DRAFT": _DRAFT} if facts.claims.draft else {}
    running_head = " · ".join(notes)
    bundle, script, style = _bundle(), _read_part("page.js"), _read_part("page.css")
    if running_head:
        # A fixed element is repeated on every printed page; some browsers also have boxes in the margins.
        box = f'content: "{running_head}"; color: #a3122c; font: 700 9pt sans-serif;'
        style += f"@page {{ @top-center {{ {box} }} }}\n"
    security_policy = (
        f"default-src 'none'; script-src {_hash(bundle)} {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    trusted = {"mark": MARK, "security_policy": security_policy, "style": style, "bundle": bundle, "script": script}
    return render_template(
        "page.html",
        view=PageView(facts, private),
        grades=GRADES,
        notes=[*notes.values()],
        running_head=running_head,
        licences=_read_part("licences.txt"),
        **{name: Markup(text) for name, text in trusted.items()},  # our own texts
    )


def render_plain_page(name: str, view: object) -> str:
    """A page without charts and scripts."""
    style = _read_part("page.css")
    security_policy = f"default-src 'none'; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    trusted = {"mark": MARK, "security_policy": security_policy, "style": style}
    return render_template(name, view=view, **{name: Markup(text) for name, text in trusted.items()})


def render_template(name: str, **values: Any) -> str:
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    environment = Environment(
        autoescape=True,
        finalize=lambda value: value if isinstance(value, Markup) else Markup(escape_html(value)),
        loader=FunctionLoader(_read_part),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"code": _mark_code, "json": embed_json}
    return environment


def _mark_code(text: str) -> Markup:
    """A text with its `code` in elements."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", escape_html(text)))


def embed_json(value: Mapping[str, Any]) -> Markup:
    """JSON for a script element: nothing in it ends the element or begins a comment.

    >>> print(embed_json({"a": "</script><!--"}))
    {"a":"\\u003c/script\\u003e\\u003c!--"}
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return Markup(text)


@cache
def _bundle() -> str:
    text: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    if "</script" in text.lower() or "<!--" in text:  # it would end its element
        raise ValueError("the script of the charts cannot be embedded")
    return text


def _read_part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
