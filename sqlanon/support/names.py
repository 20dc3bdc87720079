"""Names of tables: reserved ones, and table names in policies, which are never parsed as SQL."""

from __future__ import annotations

import re

EARLIER_RELEASES_COLUMN = "sqlanon earlier releases"
"""The column that marks which earlier releases have a row; no attribute can have this name."""

METADATA_VIEWS = ("release_overview", "class_sizes", "suppression_by", "quality")
"""The views that describe a release, in each release file."""

STAGED, VERIFIED, CATALOG = "sqlanon_staged", "sqlanon_verified", "sqlanon_catalog"
"""Names under which a staged release, a verified release and the catalog are attached to the source's engine."""

_NAME = r'(?:"(?:[^"]|"")+"|[^".]+)'
_QUALIFIED = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,2}}")


SHARED_CATALOG = "sqlanon.catalog.duckdb"
"""The file name of the catalog that the policies of a folder share."""


def labels_table(attribute: str) -> str:
    """The table with the labels of a generalized attribute, in each release file.

    >>> labels_table("age")
    'age_labels'
    """
    return f"{attribute}_labels"


def table_parts(name: str) -> tuple[str, ...]:
    """Split ``table``, ``schema.table`` or ``database.schema.table``, each optionally in double quotes.

    >>> table_parts('geo."my.table"'), table_parts("a.b.c.d")
    (('geo', 'my.table'), ())
    """
    if not _QUALIFIED.fullmatch(name):
        return ()
    return tuple(
        part[1:-1].replace('""', '"') if part.startswith('"') else part.strip() for part in re.findall(_NAME, name)
    )
