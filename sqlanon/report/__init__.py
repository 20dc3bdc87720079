"""The report: one page for readers, and its charts for notebooks.

`facts` are computed alike for a release and before publication; `charts` draws them, `view` turns them into texts and
tables, and `page` renders these. Drawing needs the extra ``report``, which is loaded on demand.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from sqlanon.audit.verification import Verification
from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import MissingLibraryError, ReleaseError
from sqlanon.policy import AboutSection
from sqlanon.report.facts import MARK, ReportFacts, UnpublishedResult, read_release_facts
from sqlanon.support.workdir import new_file_mode

__all__ = [
    "UnpublishedResult",
    "check_target",
    "refuse_without_charts",
    "report_release",
    "report_result",
    "write_page",
]


def refuse_without_charts(page: bool = True) -> None:
    for name, library in {"altair": "altair", **({"vl_convert": "vl-convert-python"} if page else {})}.items():
        try:
            import_module(name)
        except ImportError:
            raise MissingLibraryError("a report" if page else "a chart", library, "report") from None


def check_target(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a report. It ends in .html, and an existing file there is a report.

    >>> check_target("release.duckdb")
    Traceback (most recent call last):
        ...
    sqlanon.errors.ReleaseError: release.duckdb: the report's name must end in .html
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ReleaseError(f"{target}: the report's name must end in .html")
    if not target.absolute().parent.is_dir():
        raise ReleaseError(f"{target}: the folder {target.absolute().parent} does not exist; create it first")
    if target.is_file():
        try:
            with target.open("rb") as file:
                beginning = file.read(100)
        except OSError as error:
            raise ReleaseError(f"{target} cannot be read: {error.strerror}") from error
        if beginning and MARK.encode() not in beginning:
            raise ReleaseError(f"{target}: it exists and is not a report; give another name, or delete it first")
    return target.absolute()


def report_release(
    release: Path,
    path: str | os.PathLike[str],
    with_source: Verification | None = None,
    limits: Limits = NO_LIMITS,
    about: AboutSection | None = None,
) -> ReportFacts:
    target = check_target(path)
    refuse_without_charts()
    from sqlanon.report.page import render_page  # noqa: PLC0415 - altair loads slowly

    facts = read_release_facts(release, with_source, limits, about)
    write_page(target, render_page(facts), private=False)
    return facts


def report_result(
    result: UnpublishedResult,
    path: str | os.PathLike[str],
    private: bool = False,
    comparison: Sequence[Mapping[str, Any]] = (),
) -> ReportFacts:
    target = check_target(path)
    refuse_without_charts()
    from sqlanon.report.page import render_page  # noqa: PLC0415 - altair loads slowly

    facts = result.facts(private)
    private_facts = result.private_facts(comparison) if private else None
    write_page(target, render_page(facts, private_facts), private)
    return facts if private_facts is None else replace(facts, risks=(*facts.risks, *private_facts.risks))


def write_page(target: Path, text: str, private: bool) -> None:
    """Replace a page in one step; a private page can be read by its owner only."""
    staged: Path | None = None
    try:
        with NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            staged = Path(file.name)
            file.write(text)
        if not private:
            staged.chmod(new_file_mode())
        staged.replace(target)
    except OSError as error:
        if staged is not None:
            staged.unlink(missing_ok=True)
        raise ReleaseError(f"{target} cannot be written: {error.strerror}") from error
