"""The manifest: the claims of a release, without private values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from datetime import datetime, timezone
from typing import Any

from sqlanon.policy.guarantee import GUARANTEES

FORMAT = 1
DIGEST = "sum-xor-cells"
"""The algorithm of ``sqlanon.digest``."""

_AS_JSON = ("policy", "columns", "generalization", "heights", "noise", "confidence")
_OF_PERSONS = (
    "smallest_class_rows",
    "persons",
    "released_persons",
    "suppressed_persons",
    "partly_released_persons",
)
_COUNTS = ("rows", "released_rows", "suppressed_rows", "classes", "smallest_class")


def utc_now() -> datetime:
    return datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)


def version_name(table_name: str, version: int) -> str:
    """The name of the table of a version.

    >>> versioned("patients", 3)
    'patients_v3'
    """
    return f"{table_name}_v{version}"


@dataclass(frozen=True)
class ReleasedColumn:
    name: str
    type: str
    role: str


@dataclass(frozen=True)
class Facts:
    """The counts of a staged release, and its content digest. The version is None in a place with a single table."""

    rows: int
    classes: int
    smallest_class: int
    digest: str
    version: int | None = None


def has_open_ends(rules: Any) -> bool:
    """Whether one of the rules that a manifest shows has open ends.

    >>> has_open_ends([{"rule": "intervals", "widths": [5], "above": 90}]), has_open_ends(None)
    (True, False)
    """
    shown = [rule for rule in rules or () if isinstance(rule, Mapping)] if isinstance(rules, Sequence) else []
    return any("below" in rule or "above" in rule for rule in shown)


@dataclass(frozen=True)
class Manifest:
    """One row of ``sqlanon.manifest``: its columns, with the JSON ones as Python values.

    Everything follows from the policy and the released rows. ``rows`` counts the rows of the source; ``classes`` and
    ``smallest_class`` are those of the release. Where persons are counted, ``smallest_class`` is the fewest persons in
    a class, ``smallest_class_rows`` the fewest rows, and ``persons`` to ``partly_released_persons`` are what `Result`
    says; else these are None. ``generalization`` has a level for each quasi-identifier, or None if
    its values are released at several levels. ``guarantee`` says whether the requirements hold for all
    quasi-identifiers together or for some at a time (``combinations``). ``score`` is None if it depends on more than
    the release (`sqlanon.release.score`); ``optimal`` is true if the strategy always proves it. ``epsilon`` (of a
    record) and ``noise`` (by attribute) are None without noise; ``confidence`` is that of the policy. ``decoys`` is
    their number among the released rows, or None if the policy has none. ``dropped_lines`` counts the bad lines that
    were left out of CSV files; it is None unless the policy drops them. ``heights`` has the heights of hierarchies
    that readers can know; an attribute at the top of a mask has level 1 of 1 (`levels`). ``version`` counts the
    releases in one file; it is None in a Parquet file.
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
    score: float | None
    optimal: bool
    digest: str
    guarantee: str = GUARANTEES[0]
    epsilon: float | None = None
    noise: Mapping[str, Mapping[str, Any]] | None = None
    confidence: Mapping[str, Any] | None = None
    decoys: int | None = None
    dropped_lines: int | None = None
    smallest_class_rows: int | None = None
    persons: int | None = None
    released_persons: int | None = None
    suppressed_persons: int | None = None
    partly_released_persons: int | None = None
    heights: Mapping[str, int] | None = None
    version: int | None = None
    digest_algorithm: str = DIGEST
    format: int = FORMAT

    @property
    def quasi_identifiers(self) -> list[str]:
        """The quasi-identifiers that form the classes: those without noise."""
        noisy = {name.lower() for name in self.noise or ()}
        return [column.name for column in self.columns if column.role == "quasi" and column.name.lower() not in noisy]

    def has_open_ends(self, name: str) -> bool:
        """Whether a rule of a column's hierarchy has open ends: level 0 has labels then."""
        attributes = self.policy["attributes"].items()
        rules = next((one.get("hierarchy") for key, one in attributes if key.lower() == name.lower()), None)
        return has_open_ends(rules)

    @property
    def draft(self) -> bool:
        """Whether it is a draft, which is compared with no release."""
        return bool(self.policy.get("draft"))

    @property
    def rows_table(self) -> str:
        """The table with the rows; ``table_name`` is a view of it."""
        return self.table_name if self.version is None else version_name(self.table_name, self.version)

    @property
    def fewest_rows(self) -> int:
        """The rows of the class with fewest."""
        return self.smallest_class if self.smallest_class_rows is None else self.smallest_class_rows

    def levels(self, heights: Mapping[str, int]) -> dict[str, int | None]:
        """Its levels in hierarchies of these heights: a top level becomes their top level."""
        own, tops = ({name.lower(): n for name, n in by.items()} for by in (self.heights or {}, heights))
        return {
            name: tops.get(name.lower(), level) if level is not None and level == own.get(name.lower()) else level
            for name, level in self.generalization.items()
        }

    def row(self) -> dict[str, Any]:
        fields = asdict(self)
        for name in _AS_JSON:
            fields[name] = None if fields[name] is None else json.dumps(fields[name], ensure_ascii=False)
        return fields

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Manifest:
        fields = dict(row)
        _refuse_other_fields(fields)
        for name in _AS_JSON:
            if fields.get(name) is not None:
                fields[name] = _parsed(fields[name])
        _refuse_strange(fields)
        fields["columns"] = tuple(ReleasedColumn(**column) for column in fields["columns"])
        if isinstance(fields["published_at"], str):
            fields["published_at"] = datetime.fromisoformat(fields["published_at"])
        if not isinstance(fields["published_at"], datetime):
            raise ValueError("published_at is not a time")
        return cls(**fields)

    def fingerprint(self) -> str:
        """The SHA-256 of its claims about the rows."""
        claimed = {name: value for name, value in json.loads(self.to_json()).items() if name != "version"}
        return hashlib.sha256(json.dumps(claimed, ensure_ascii=False).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps({**self.row(), "published_at": self.published_at.isoformat()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        return cls.from_row(_parsed(text))


def _parsed(text: str) -> Any:
    """The value of JSON in the form of `json.dumps`; duplicate keys would hide a value."""
    value = json.loads(text)
    if text not in (json.dumps(value, ensure_ascii=False), json.dumps(value)):
        raise ValueError("its JSON has duplicate keys or extra space")
    return value


def find_invalid_fields(manifest: Manifest) -> list[str]:
    """The names of fields with unknown content. Only names of the table, columns and attributes are free text."""
    levels = {name: level or 0 for name, level in manifest.generalization.items()}
    heights, confidence = manifest.heights or {}, manifest.confidence or {}
    optional, dropped = (manifest.decoys, manifest.version), manifest.dropped_lines
    of_persons = [getattr(manifest, name) for name in _OF_PERSONS]
    sound = {
        "sqlanon_version": _VERSION.fullmatch(manifest.sqlanon_version),
        "engine": _ENGINE.fullmatch(manifest.engine),
        "policy_hash": _HASH.fullmatch(manifest.policy_hash),
        "published_at": manifest.published_at.tzinfo is None,
        "guarantee": manifest.guarantee in GUARANTEES,
        "optimal": type(manifest.optimal) is bool,
        "heights": heights.keys() <= levels.keys() and all(levels[name] <= heights[name] < 2**31 for name in heights),
        "confidence": confidence.keys() <= {"beta"}
        and all(type(figure) in (int, float) for figure in confidence.values()),
        "decoys": all(figure is None or type(figure) is int for figure in optional),
        "dropped_lines": dropped is None or (type(dropped) is int and dropped >= 0),
        "persons": all(figure is None or type(figure) is int for figure in of_persons),
    }
    return [name for name, right in sound.items() if not right]


_VERSION = re.compile(r"\d+(\.\d+)*([a-z]+\d+)?(\.(post|dev)\d+)?(\+[a-z0-9.]{1,12})?")
_ENGINE = re.compile(
    r"(duckdb|spark|postgresql) \d+(\.(dev|post)?\d+)*((a|b|rc|beta)\d+)?(-[A-Za-z0-9.]{1,12})?( \([-+~.\w ]{1,50}\))?"
    r", python \d+(\.\d+)*((a|b|rc)\d+)?\+?"
)
_HASH = re.compile(r"[0-9a-f]{64}")


def _refuse_other_fields(row: Mapping[str, Any]) -> None:
    """Refuse a manifest without all of the fields: a default is nothing that somebody claims."""
    names = {field.name for field in fields_of(Manifest)}
    if missing := sorted(names - row.keys()):
        raise ValueError(f"it lacks {', '.join(missing)}")
    if row.keys() - names:
        raise ValueError("it has fields that no manifest has")


def _refuse_strange(fields: Mapping[str, Any]) -> None:
    """Refuse a manifest of the wrong form, which anybody may have written."""
    if not isinstance(fields["policy"], dict) or not isinstance(fields["generalization"], dict):
        raise ValueError("the policy or the generalization is not a JSON object")
    for name in ("noise", "confidence", "heights"):
        if not isinstance(fields.get(name) or {}, dict):
            raise ValueError(f"the {name} is not a JSON object")
    policy = fields["policy"]
    for name in ("attributes", "privacy", "search"):
        if not isinstance(policy.get(name, {}), dict):
            raise ValueError(f"{name} of the policy is not a JSON object")
    for part in (policy.get("attributes", {}), fields.get("noise") or {}):
        if not all(isinstance(one, dict) for one in part.values()):
            raise ValueError("an attribute is not a JSON object")
    _refuse_no_numbers(fields)


def _refuse_no_numbers(fields: Mapping[str, Any]) -> None:
    for name in _COUNTS:
        if type(fields[name]) is not int:
            raise ValueError(f"{name} is not an integer")
    levels = [*fields["generalization"].values(), *(fields.get("heights") or {}).values()]
    if not all(level is None or type(level) is int for level in levels):
        raise ValueError("a level is not an integer")
    if fields["score"] is not None and type(fields["score"]) not in (int, float):
        raise ValueError("the score is not a number")
