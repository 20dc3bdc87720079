"""Export for a warehouse: a folder with the release statement, the tables that it reads, and the audit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.variables import comment_without_variables
from sqlanon.engines.dialects.warehouses import WAREHOUSES
from sqlanon.engines.statement_runner import one_line
from sqlanon.errors import ReleaseError
from sqlanon.publish.draft import ReleaseDraft
from sqlanon.recode.full_domain import FullDomainRecoding
from sqlanon.sources import UNKNOWN_TYPE
from sqlanon.support.resources import __version__
from sqlanon.support.workdir import private_directory, private_files
from sqlanon.warehouse import statements
from sqlanon.warehouse.statements import (
    SUPPRESSED,
    TEXTS,
    WarehouseTarget,
    check_dialect,
    name_value_tables,
    read_remotely,
)

STAGING_PREFIX = ".sqlanon-export-"
_UPLOADED_COLUMN = re.compile(r"value|known|(code|label)_\d+")
"""The columns that statements read from uploaded tables; a released column may have the name of another one."""

Commented = tuple[str, str]
"""A statement with its comment."""


def export(draft: ReleaseDraft, figures: Mapping[str, int], folder: str | os.PathLike[str], dialect: str) -> Path:
    dialect, target = check_dialect(dialect), Path(os.path.realpath(folder))
    recoding = draft.statement
    assert isinstance(recoding, FullDomainRecoding)  # other strategies are refused for warehouses
    warehouse = WarehouseTarget.from_draft(draft)
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise ReleaseError(f"{target} is not empty: name a new folder")
        with private_directory(target.parent, STAGING_PREFIX) as directory, private_files():
            staged = directory / "export"
            staged.mkdir()
            for name, query in _uploaded_tables(draft.run.engine, recoding, warehouse):
                draft.run.engine.execute(statements.write_parquet(query, str(staged / f"{name}.parquet")))
            release_text = _release_file(draft, recoding, warehouse, dialect)
            (staged / "release.sql").write_text(release_text, encoding="utf-8")
            audit_text = _audit_file(draft, recoding, warehouse, figures, dialect)
            (staged / "audit.sql").write_text(audit_text, encoding="utf-8")
            staged.replace(target)
    except OSError as error:
        raise ReleaseError(f"{target} cannot be written: {error.strerror or error}") from error
    return target


def _uploaded_tables(
    engine: Engine, recoding: FullDomainRecoding, warehouse: WarehouseTarget
) -> Iterator[tuple[str, exp.Select]]:
    """The tables that the statement reads, by their names in the warehouse, with the columns that it reads."""
    statement = read_remotely(recoding, warehouse.source).select(shuffled=False)
    tables = {relation.name for relation in statement.find_all(exp.Table)}
    read_columns = {column.name for column in statement.find_all(exp.Column)}
    names = name_value_tables([attribute.column for attribute in recoding.attributes])
    relations = [
        (name, attribute.table, attribute.open_ends, [TEXTS])
        for name, attribute in zip(names, recoding.attributes, strict=True)
    ]
    if recoding.suppressed is not None:
        relations.append((SUPPRESSED, recoding.suppressed, False, []))
    for name, relation, open_ends, more in relations:
        if name in tables:
            columns = dict.fromkeys([*engine.columns(relation), *more])
            uploaded = [column for column in columns if column in read_columns and _UPLOADED_COLUMN.fullmatch(column)]
            yield name, statements.select_uploaded(relation, uploaded, open_ends)


def _release_file(draft: ReleaseDraft, recoding: FullDomainRecoding, warehouse: WarehouseTarget, dialect: str) -> str:
    columns = [attribute.column for attribute in recoding.attributes]
    attributes = dict(zip(name_value_tables(columns), columns, strict=True))
    lines = [
        f"Made by sqlanon {__version__} for {dialect}, of a frequency set of the source.",
        *(["DRAFT, for testing, not for sharing."] if draft.is_draft else []),
        "1. Upload the Parquet files of this folder as tables of their names, where this statement finds them, and",
        "   keep them private: they have values of the source.",
    ]
    for name, _ in _uploaded_tables(draft.run.engine, recoding, warehouse):
        contents = "the suppressed classes"
        if name in attributes:
            contents = f"the values of {one_line(attributes[name])!r}, with codes and labels"
        lines.append(f"     {name}.parquet: {contents}")
    lines.append("2. Run this statement.")
    lines.append("3. Run audit.sql before anybody may read the release: the source may have changed.")
    setup = statements.setup_statements(dialect)
    return _file(dialect, lines, [("", text) for text in (*setup, warehouse.release_text(recoding, dialect))])


def _audit_file(
    draft: ReleaseDraft,
    recoding: FullDomainRecoding,
    warehouse: WarehouseTarget,
    expected: Mapping[str, int],
    dialect: str,
) -> str:
    policy, names = draft.search_input.policy, draft.search_input.columns.by_attribute
    audit = statements.audit_queries(policy, warehouse, names)
    quasi = [names[name] for name in policy.generalized_attributes]
    figures = statements.release_figures(warehouse.release, quasi)
    expected_figures = {name: value for name, value in expected.items() if name != "source_rows"}
    if draft.recoding.masked_rows:  # they may read like a released class, or be a separate class
        expected_figures = {"released_rows": expected_figures["released_rows"]}
    source_rows = statements.count_source_rows(warehouse.source.copy())
    changed_source = statements.unexpected_figures(source_rows, {"source_rows": expected["source_rows"]})
    queries = [
        *((one_line(name), query) for name, query in audit.violations),
        ("the rows in which the release and this statement differ", warehouse.different_rows(recoding)),
        ("the number of rows of the source, if it has changed", changed_source),
        (
            "the rows and classes of the release, if they differ from the search",
            statements.unexpected_figures(figures.copy(), expected_figures),
        ),
        ("For information: the classes", figures),
    ]
    lines = [
        "Each of these queries should return no row. The rows that it returns break the requirement in its comment.",
        *(f"Not checked here: {one_line(name)}" for name in audit.not_in_sql),
    ]
    if any(recoding.levels) and any(column.quasi is None for column in recoding.columns):
        lines.append(
            "Not checked here: whether other released columns narrow a generalized attribute. "
            "docs/explanation/dependencies.md has a query that shows it."
        )
    if untyped := [column.name for column in draft.columns() if column.type == UNKNOWN_TYPE]:
        note = "For information: a column with almost as many values as rows identifies people by itself"
        queries.append((note, statements.count_distinct_values(warehouse.release, untyped)))
    settings = [("A setting that the queries depend on", setting) for setting in WAREHOUSES[dialect].settings]
    texts = [(comment, warehouse.text(query, dialect)) for comment, query in queries]
    return _file(dialect, lines, [*settings, *texts])


def _file(dialect: str, lines: Sequence[str], commented: Sequence[Commented]) -> str:
    def comment(line: str) -> str:
        return f"-- {comment_without_variables(line, dialect)}\n"

    parts = ["".join(map(comment, lines))]
    parts += [f"{comment(text) if text else ''}{statement};\n" for text, statement in commented]
    return "\n".join(parts)
