"""A folder for a warehouse: the statement that makes the release there, what it reads, and the audit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.variables import comment_without_variables
from sqlanon.engines.statement_runner import one_line
from sqlanon.errors import ReleaseError
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.release.draft import ReleaseDraft
from sqlanon.sources import UNKNOWN_TYPE
from sqlanon.support.resources import __version__
from sqlanon.support.workdir import private_directory, private_files
from sqlanon.warehouse import statements as wa
from sqlanon.warehouse.statements import (
    SUPPRESSED,
    Target,
    audit_of,
    before,
    dialect_of,
    over_there,
    settings,
    value_tables,
)

STAGING_PREFIX = ".sqlanon-export-"

_LINES = "-- "

_SETTINGS = "A setting that the queries depend on"

_NEEDED = re.compile(r"value|known|(code|label)_\d+")
"""What a statement may read of our tables. (A released column may have the name of another of theirs.)"""


def export(draft: ReleaseDraft, figures: Mapping[str, int], folder: str | os.PathLike[str], dialect: str) -> Path:
    dialect, target = dialect_of(dialect), Path(os.path.realpath(folder))
    recoding = draft.statement
    assert isinstance(recoding, FullDomainRecoding)  # policies for warehouses ask for nothing else
    place = Target.of_draft(draft)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ReleaseError(f"{target} is not empty: name a new folder")
        with private_directory(target.parent, STAGING_PREFIX) as directory, private_files():
            staged = directory / "export"
            staged.mkdir()
            for name, query in _tables(draft.run.engine, recoding, place):
                draft.run.engine.execute(wa.written(query, str(staged / f"{name}.parquet")))
            (staged / "release.sql").write_text(_release(draft, recoding, place, dialect), encoding="utf-8")
            (staged / "audit.sql").write_text(_audit(draft, recoding, place, figures, dialect), encoding="utf-8")
            staged.replace(target)
    except OSError as error:
        raise ReleaseError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _tables(engine: Engine, recoding: FullDomainRecoding, place: Target) -> Iterator[tuple[str, exp.Select]]:
    """The tables that the statement reads, by their names there: of each the columns that it reads."""
    statement = over_there(recoding, place.source).select(shuffled=False)
    read = {one.name for one in statement.find_all(exp.Table)}
    used = {one.name for one in statement.find_all(exp.Column)}
    own = [attribute.table for attribute in recoding.attributes]
    open_ends = [attribute.open_ends for attribute in recoding.attributes]
    names = value_tables([attribute.column for attribute in recoding.attributes])
    if recoding.suppressed is not None:
        own, names, open_ends = [*own, recoding.suppressed], [*names, SUPPRESSED], [*open_ends, False]
    for name, relation, has_open_ends in zip(names, own, open_ends, strict=True):
        if name in read:
            columns = dict.fromkeys([*engine.columns(relation), *([] if name == SUPPRESSED else [wa.TEXTS])])
            needed = [column for column in columns if column in used and _NEEDED.fullmatch(column)]
            yield name, wa.uploaded(relation, needed, has_open_ends)


def _release(draft: ReleaseDraft, recoding: FullDomainRecoding, place: Target, dialect: str) -> str:
    columns = [attribute.column for attribute in recoding.attributes]
    what = dict(zip(value_tables(columns), columns, strict=True))
    files = [
        f"     {name}.parquet: "
        + (f"the values of {one_line(what[name])!r}, with codes and labels" if name in what else "the classes left out")
        for name, _ in _tables(draft.run.engine, recoding, place)
    ]
    lines = [
        f"Made by sqlanon {__version__} for {dialect}, of a frequency set of the source.",
        "1. Upload the Parquet files of this folder as tables of their names, where this statement finds them, and",
        "   keep them private: they have values of the source.",
        *files,
        "2. Run this statement.",
        "3. Run audit.sql before anybody may read the release: the source may have changed.",
    ]
    if draft.is_draft:
        lines.insert(1, "DRAFT, for trying out, not for sharing.")
    statements = (*before(dialect), place.release_statement(recoding, dialect))
    return _file(dialect, lines, [([], statement) for statement in statements])


def _audit(
    draft: ReleaseDraft, recoding: FullDomainRecoding, place: Target, expected: Mapping[str, int], dialect: str
) -> str:
    policy = draft.search_input.policy
    names = draft.search_input.columns.by_attribute
    audit = audit_of(policy, place, names)
    quasi = [names[name] for name in policy.generalized_attributes]
    wanted = {name: value for name, value in expected.items() if name != "source_rows"}
    if draft.recoding.masked_rows:  # they may read like a kept class, or be one of their own
        wanted = {"released_rows": wanted["released_rows"]}
    found = wa.figures(place.release, quasi)
    counted = {"source_rows": expected["source_rows"]}
    queries = [([one_line(name)], query) for name, query in audit.violations]
    queries.append((["the rows in which the release and this statement differ"],
                    place.other_rows(recoding)))  # fmt: skip
    queries.append((["the number of rows of the source, if it has changed"],
                    wa.other_figures(wa.row_count(place.source.copy()), counted)))  # fmt: skip
    queries.append((["the rows and classes of the release, if they differ from the search"],
                    wa.other_figures(found.copy(), wanted)))  # fmt: skip
    missing = [f"Not checked here: {one_line(one)}" for one in audit.not_in_sql]
    lines = [
        "Each of these queries should return no row. The rows that it returns break the requirement in its comment.",
        *missing,
    ]
    if any(recoding.levels) and any(column.quasi is None for column in recoding.columns):
        lines.append(
            "Not checked here: whether other released columns narrow a generalized attribute. "
            "docs/explanation/dependencies.md has a query that shows it."
        )
    others = [column.name for column in draft.columns() if column.type == UNKNOWN_TYPE]
    first = [([_SETTINGS], statement) for statement in settings(dialect)]
    texts = [(comment, place.text(query, dialect)) for comment, query in queries]
    texts.append((["For information: the classes"], place.text(found, dialect)))
    if others:
        note = "For information: a column with almost as many values as rows identifies people by itself"
        texts.append(([note], place.text(wa.distinct_values(place.release, others), dialect)))
    return _file(dialect, lines, [*first, *texts])


def _file(dialect: str, lines: list[str], statements: list[tuple[list[str], str]]) -> str:
    def commented(comment: list[str]) -> str:
        return "".join(f"{_LINES}{comment_without_variables(line, dialect)}\n" for line in comment)

    parts = [commented(lines), *(f"{commented(comment)}{statement};\n" for comment, statement in statements)]
    return "\n".join(parts)
