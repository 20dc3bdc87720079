"""The manifest of a release of linked tables: what it claims about the rows of all its tables."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlanon.policy.linked_requirements import read_requirement
from sqlanon.policy.linked_sections import Known
from sqlanon.release.manifest import DIGEST, ReleasedColumn, version_name
from sqlanon.requirements.base import ClassCondition

LINKED_FORMAT = 2
"""The format of the manifest; releases of one table have format 1."""


@dataclass(frozen=True)
class TableClaims:
    """The claims of a manifest about one table.

    Attributes
    ----------
    name, parent:
        The table, and the table that its rows belong to; None for the table of persons.
    key, references:
        The columns with the new keys: of its own rows, and of the parent's, in the order of the parent's key.
    ancestor_references:
        By further column with a new key, the table above the parent whose row it names.
    columns, generalization:
        The released columns, and the level of each quasi-identifier; None if classes of persons have several.
    rows, released_rows, suppressed_rows:
        Of the source, of the release, and the difference.
    digest:
        The content digest.
    """

    name: str
    parent: str | None
    key: tuple[str, ...]
    references: tuple[str, ...]
    ancestor_references: Mapping[str, str]
    columns: tuple[ReleasedColumn, ...]
    generalization: Mapping[str, int | None]
    rows: int
    released_rows: int
    suppressed_rows: int
    digest: str

    @property
    def quasi_identifiers(self) -> list[str]:
        """The released quasi-identifiers."""
        return [column.name for column in self.columns if column.role == "quasi"]

    @property
    def value_columns(self) -> list[str]:
        """The released columns but the keys."""
        return [column.name for column in self.columns if column.role != "key"]

    @classmethod
    def from_dict(cls, claims: Mapping[str, Any]) -> TableClaims:
        """Read the claims from JSON values."""
        fields = {**claims, "key": tuple(claims["key"]), "references": tuple(claims["references"])}
        fields["columns"] = tuple(ReleasedColumn(**column) for column in claims["columns"])
        return cls(**fields)


@dataclass(frozen=True)
class RequirementClaim:
    """A requirement on a sensitive attribute.

    Attributes
    ----------
    key, parameters:
        Its key in ``[privacy]``, and what the policy says of it.
    table, column:
        The released column with the values.
    """

    key: str
    parameters: Mapping[str, Any]
    table: str
    column: str

    @property
    def condition(self) -> ClassCondition:
        """The condition on groups; a `ValueError` if the requirement is unknown."""
        return read_requirement(self.key, self.parameters)


@dataclass(frozen=True)
class LinkedManifest:
    """The row of ``sqlanon.linked_manifest``.

    Attributes
    ----------
    k, known:
        The requirement: every combination of a person's quasi-identifiers with ``known`` child rows has k persons.
    smallest_group:
        The fewest persons who share such a combination.
    requirements:
        What the persons who share one meet as a group.
    """

    published_at: datetime
    sqlanon_version: str
    engine: str
    policy: Mapping[str, Any]
    policy_hash: str
    tables: tuple[TableClaims, ...]
    k: int
    known: Known
    persons: int
    released_persons: int
    smallest_group: int
    requirements: tuple[RequirementClaim, ...]
    optimal: bool
    version: int
    digest_algorithm: str = DIGEST
    format: int = LINKED_FORMAT

    @property
    def persons_table(self) -> TableClaims:
        """The claims about the table of persons."""
        return self.tables[0]

    @property
    def levels(self) -> Mapping[str, int | None]:
        """The level of each quasi-identifier by ``table.attribute``; None if classes of persons have several."""
        return {
            f"{claims.name}.{attribute}": level
            for claims in self.tables
            for attribute, level in claims.generalization.items()
        }

    def table(self, name: str) -> TableClaims:
        """The claims about a table."""
        return next(claims for claims in self.tables if claims.name == name)

    def parent_of(self, table: TableClaims) -> TableClaims | None:
        """The claims about the table that a table's rows belong to; None for the table of persons."""
        return None if table.parent is None else self.table(table.parent)

    def ancestors_of(self, table: TableClaims) -> list[TableClaims]:
        """The claims about the tables above the parent of a table, nearest first."""
        ancestors, above = list[TableClaims](), self.parent_of(table)
        while above is not None and (above := self.parent_of(above)) is not None:
            ancestors.append(above)
        return ancestors

    def rows_table(self, table: TableClaims) -> str:
        """The table with the rows of a released table; the table's name is a view of it."""
        return version_name(table.name, self.version)

    def row(self) -> dict[str, Any]:
        """The values of the manifest's columns."""
        fields = asdict(self)
        for name in ("policy", "tables", "requirements"):
            fields[name] = json.dumps(fields[name], ensure_ascii=False)
        return {**fields, "known": str(self.known)}

    def to_json(self) -> str:
        """The manifest as JSON, for locations without a table of manifests."""
        return json.dumps({**self.row(), "published_at": self.published_at.isoformat()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> LinkedManifest:
        """Read a manifest in the form of `to_json`: duplicate keys and extra space could hide a value."""
        row = json.loads(text)
        manifest = cls.from_row({**row, "published_at": datetime.fromisoformat(row["published_at"])})
        if manifest.to_json() != text:
            raise ValueError("its JSON has duplicate keys, extra space or other fields")
        return manifest

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> LinkedManifest:
        """Read a manifest. A `ValueError`, `KeyError` or `TypeError` says that it is broken."""
        fields = dict(row)
        fields["policy"] = json.loads(fields["policy"])
        fields["tables"] = tuple(map(TableClaims.from_dict, json.loads(fields["tables"])))
        fields["requirements"] = tuple(RequirementClaim(**claim) for claim in json.loads(fields["requirements"]))
        known = fields["known"]
        if known not in ("1", "2", "3", "all"):
            raise ValueError("known is not 1, 2, 3 or all")
        fields["known"] = known if known == "all" else int(known)
        manifest = cls(**fields)
        if not manifest.tables or manifest.format != LINKED_FORMAT:
            raise ValueError("it has no tables, or another format")
        persons, *children = manifest.tables
        names = {persons.name}
        for claims in children:
            if persons.parent is not None or claims.parent not in names:
                raise ValueError("its tables are not a tree below the table of persons, parents first")
            names.add(claims.name)
        for claims in manifest.tables:
            if not {*claims.ancestor_references.values()} <= {above.name for above in manifest.ancestors_of(claims)}:
                raise ValueError("its columns name rows of tables that are not above their own")
        for claim in manifest.requirements:
            columns = [column for claims in manifest.tables if claims.name == claim.table for column in claims.columns]
            _ = claim.condition  # raises ValueError
            if claim.column not in [column.name for column in columns]:
                raise ValueError("it has a requirement on a column that is not released")
        return manifest


def describe_structure(tables: Sequence[TableClaims]) -> object:
    """The tables, keys and columns of a release; the types of quasi-identifiers depend on their levels."""
    return [
        (
            (claims.name, claims.parent, claims.key, claims.references, dict(claims.ancestor_references)),
            [(column.name, column.role, column.role != "quasi" and column.type) for column in claims.columns],
            [*claims.generalization],
        )
        for claims in tables
    ]


def hash_manifest(manifest: LinkedManifest) -> str:
    """The hash of a manifest that the ledger records."""
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()
