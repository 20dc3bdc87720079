"""Names of tables as policies write them: taken apart here, and never parsed as SQL."""

from __future__ import annotations

import re

EARLIER = "sqlanon earlier releases"
"""The column of the marks that say which earlier releases have a row: no attribute can have this name."""

METADATA_VIEWS = ("release_overview", "class_sizes", "suppression_by", "quality")
"""The views that describe a release, in each release file."""

STAGED, VERIFIED, CATALOG = "sqlanon_staged", "sqlanon_verified", "sqlanon_catalog"
"""The databases of a release that is written, and of one that is verified, for the engine that has the source."""

_NAME = r'(?:"(?:[^"]|"")+"|[^".]+)'
_QUALIFIED = re.compile(rf"{_NAME}(?:\.{_NAME}){{0,2}}")


SHARED_CATALOG = "sqlanon.catalog.duckdb"
"""The catalog of a folder's policies, beside them."""


def labels_table(attribute: str) -> str:
    """The table with the labels of a generalized attribute, in each release file.

    >>> labels_table("age")
    'age_labels'
    """
    return f"{attribute}_labels"


def table_parts(name: str) -> tuple[str, ...]:
    """Take apart ``table``, ``schema.table`` or ``database.schema.table``, each in double quotes or not.

    >>> table_parts('geo."my.table"'), table_parts("a.b.c.d")
    (('geo', 'my.table'), ())
    """
    if not _QUALIFIED.fullmatch(name):
        return ()
    return tuple(
        part[1:-1].replace('""', '"') if part.startswith('"') else part.strip() for part in re.findall(_NAME, name)
    )
