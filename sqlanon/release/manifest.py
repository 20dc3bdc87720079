"""The manifest: what a release claims of itself. It holds no private value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlanon.privacy.combinations import GUARANTEES

FORMAT = 1
DIGEST = "xor-md5-cells"
"""The algorithm of ``sqlanon.digest``."""

DIGESTS: Mapping[str, str] = {DIGEST: "digest", "sum-md5-lower64": "digest_of_rows"}
"""The macros of the algorithms: of this version's, and of older ones'."""


_AS_JSON = ("policy", "columns", "generalization", "heights", "noise", "confidence")
_COUNTS = ("rows", "released_rows", "suppressed_rows", "classes", "smallest_class")


def versioned(table_name: str, version: int) -> str:
    """The name of the table with the rows of a version.

    >>> versioned("patients", 3)
    'patients_v3'
    """
    return f"{table_name}_v{version}"


@dataclass(frozen=True)
class ReleasedColumn:
    """A column of a release: its name, its type and its role."""

    name: str
    type: str
    role: str


@dataclass(frozen=True)
class Manifest:
    """One row of ``sqlanon.manifest``: its columns, with the JSON ones as Python values.

    ``rows`` counts the source's rows; ``classes`` and ``smallest_class`` are the release's. ``generalization`` has a
    level for each quasi-identifier, or None where its values are released at several. ``guarantee`` says of what the
    requirements hold: of the quasi-identifiers together, or (``combinations``) of some of them at a time. ``epsilon``
    and what follows are of noise, and None without: the ε of a record, and by attribute; the share of records that are
    linked to their own values (to a hundredth); what was suppressed for the confidence that was asked for. ``decoys``
    and what follows are of decoys, and None where none were asked for: how many of the released rows they are, how many
    classes they fill, and the smallest class without them. The score is that of the real rows. ``heights`` are those of
    the hierarchies, by quasi-identifier. ``version`` counts the releases in one file; None where there is one table and
    no more: in a Parquet file, and in releases of sqlanon before it counted.
    """

    table_name: str
    published_at: datetime
    sqlanon_version: str
    engine: str
    policy: Mapping[str, Any]
    policy_hash: str
    columns: tuple[ReleasedColumn, ...]
    generalization: Mapping[str, int | None]
    rows: int
    released_rows: int
    suppressed_rows: int
    classes: int
    smallest_class: int
    measure: str
    score: float
    optimal: bool
    digest: str
    guarantee: str = GUARANTEES[0]
    epsilon: float | None = None
    noise: Mapping[str, Mapping[str, Any]] | None = None
    linking_risk: float | None = None
    confidence: Mapping[str, Any] | None = None
    decoys: int | None = None
    decoy_classes: int | None = None
    smallest_class_without_decoys: int | None = None
    heights: Mapping[str, int] | None = None
    version: int | None = None
    digest_algorithm: str = DIGEST
    format: int = FORMAT

    @property
    def quasi(self) -> list[str]:
        """The quasi-identifiers among the columns that make the classes: those without noise."""
        noisy = {name.lower() for name in self.noise or ()}
        return [column.name for column in self.columns if column.role == "quasi" and column.name.lower() not in noisy]

    @property
    def rows_table(self) -> str:
        """The table that has the rows, in a file that has tables; ``table_name`` is a view of it."""
        return self.table_name if self.version is None else versioned(self.table_name, self.version)

    def row(self) -> dict[str, Any]:
        """Value by column, as the table holds them."""
        fields = asdict(self)
        for name in _AS_JSON:
            fields[name] = None if fields[name] is None else json.dumps(fields[name], ensure_ascii=False)
        return fields

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Manifest:
        """Read what `row` wrote."""
        fields = dict(row)
        for name in _AS_JSON:
            if fields.get(name) is not None:
                fields[name] = json.loads(fields[name])
        _refuse_strange(fields)
        fields["columns"] = tuple(ReleasedColumn(**column) for column in fields["columns"])
        if isinstance(fields["published_at"], str):
            fields["published_at"] = datetime.fromisoformat(fields["published_at"])
        if not isinstance(fields["published_at"], datetime):
            raise ValueError("published_at is no time")
        return cls(**fields)

    def fingerprint(self) -> str:
        """The SHA-256 of what it claims: of the rows, not of their place. What an older version did not claim, and this
        one does not either, counts for nothing."""
        claimed = {name: value for name, value in json.loads(self.to_json()).items() if name != "version"}
        if claimed["heights"] is None:
            del claimed["heights"]
        return hashlib.sha256(json.dumps(claimed, ensure_ascii=False).encode()).hexdigest()

    def to_json(self) -> str:
        """The same row as JSON, for a file that has no tables."""
        return json.dumps({**self.row(), "published_at": self.published_at.isoformat()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read what `to_json` wrote."""
        return cls.from_row(json.loads(text))


def _refuse_strange(fields: Mapping[str, Any]) -> None:
    """Say what does not have the form of a manifest; whoever has the file can write there what they like."""
    if not isinstance(fields["policy"], dict) or not isinstance(fields["generalization"], dict):
        raise ValueError("the policy or the generalization is no JSON object")
    for name in ("noise", "confidence", "heights"):
        if not isinstance(fields.get(name) or {}, dict):
            raise ValueError(f"the {name} is no JSON object")
    policy = fields["policy"]
    for name in ("attributes", "privacy", "search"):
        if not isinstance(policy.get(name, {}), dict):
            raise ValueError(f"{name} of the policy is no JSON object")
    for part in (policy.get("attributes", {}), fields.get("noise") or {}):
        if not all(isinstance(one, dict) for one in part.values()):
            raise ValueError("what it says of an attribute is no JSON object")
    _refuse_no_numbers(fields)


def _refuse_no_numbers(fields: Mapping[str, Any]) -> None:
    for name in _COUNTS:
        if type(fields[name]) is not int:
            raise ValueError(f"{name} is no whole number")
    levels = [*fields["generalization"].values(), *(fields.get("heights") or {}).values()]
    if not all(level is None or type(level) is int for level in levels):
        raise ValueError("a level is no whole number")
    if not isinstance(fields["score"], (int, float)):
        raise ValueError("the score is no number")
