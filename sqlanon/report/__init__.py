"""The report: one page for people who look, and its charts for notebooks.

`facts` are counted in the same way for a release and for what is not published yet; `charts` draws them, `sections` and
`page` put them together. Charts need altair, and the page the script that vl-convert brings: extra ``report``. They are
loaded when something is drawn.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from sqlanon.engines.limits import NO_LIMITS, Limits
from sqlanon.errors import MissingLibraryError, ReleaseError
from sqlanon.policy import AboutSection
from sqlanon.release.targets.base import Verification
from sqlanon.report.facts import MARK, ReportFacts, Unpublished, facts_of_release
from sqlanon.support.workdir import new_file_mode

__all__ = ["MARK", "Unpublished", "refuse_without_charts", "report_of_release", "report_of_unpublished", "target_of"]


def refuse_without_charts(page: bool = True) -> None:
    for name, library in {"altair": "altair", **({"vl_convert": "vl-convert-python"} if page else {})}.items():
        try:
            import_module(name)
        except ImportError:
            raise MissingLibraryError("a report" if page else "a chart", library, "report") from None


def target_of(path: str | os.PathLike[str]) -> Path:
    """Where a report may be written: to a file that ends as pages do, and over nothing but an earlier report.

    >>> target_of("release.duckdb")
    Traceback (most recent call last):
        ...
    sqlanon.errors.ReleaseError: release.duckdb: the report's name must end in .html
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ReleaseError(f"{target}: the report's name must end in .html")
    if not target.absolute().parent.is_dir():
        raise ReleaseError(f"{target}: there is no folder {target.absolute().parent}")
    if target.is_file() and not _is_ours(target):
        raise ReleaseError(f"{target} is there and is no report: give another name, or delete it first")
    return target.absolute()


def _is_ours(target: Path) -> bool:
    try:
        with target.open("rb") as file:
            begin = file.read(100)
    except OSError as error:
        raise ReleaseError(f"{target} cannot be read: {error.strerror}") from error
    return not begin or MARK.encode() in begin


def report_of_release(
    release: Path,
    path: str | os.PathLike[str],
    with_source: Verification | None = None,
    limits: Limits = NO_LIMITS,
    about: AboutSection | None = None,
) -> ReportFacts:
    target = target_of(path)
    refuse_without_charts()
    from sqlanon.report.page import page  # noqa: PLC0415 - altair takes its time

    facts = facts_of_release(release, with_source, limits, about)
    _write(target, page(facts), private=False)
    return facts


def report_of_unpublished(
    found: Unpublished,
    path: str | os.PathLike[str],
    private: bool = False,
    compared: Sequence[Mapping[str, Any]] = (),
) -> ReportFacts:
    target = target_of(path)
    refuse_without_charts()
    from sqlanon.report.page import page  # noqa: PLC0415 - altair takes its time

    facts = found.facts(private)
    inside = found.inside(compared) if private else None
    _write(target, page(facts, inside), private)
    return facts if inside is None else replace(facts, risks=(*facts.risks, *inside.risks))


def _write(target: Path, text: str, private: bool) -> None:
    """Write a page in one step: whoever reads it meanwhile has the old one, or the new one."""
    written: Path | None = None
    try:
        with NamedTemporaryFile(  # it is for its owner alone
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            written = Path(file.name)
            file.write(text)
        if not private:
            written.chmod(new_file_mode())
        written.replace(target)
    except OSError as error:
        if written is not None:
            written.unlink(missing_ok=True)
        raise ReleaseError(f"{target} cannot be written: {error.strerror}") from error
