"""The manifest: what a release claims about its rows and its policy, without private values."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from dataclasses import fields as fields_of
from datetime import datetime, timezone
from typing import Any

from sqlanon.policy import PrivacySection
from sqlanon.policy.guarantee import GUARANTEES
from sqlanon.policy.problems import read_part

FORMAT = 1
DIGEST = "sum-xor-cells"
"""The algorithm of ``sqlanon.digest``."""

_JSON_FIELDS = ("policy", "columns", "generalization", "heights", "noise", "confidence")
_PERSON_FIELDS = (
    "smallest_class_rows",
    "persons",
    "released_persons",
    "suppressed_persons",
    "partly_released_persons",
)
_COUNT_FIELDS = ("rows", "released_rows", "suppressed_rows", "classes", "smallest_class")


def utc_now() -> datetime:
    return datetime.now(timezone.utc).replace(tzinfo=None, microsecond=0)


def version_name(table_name: str, version: int) -> str:
    """The name of the table of a version.

    >>> version_name("patients", 3)
    'patients_v3'
    """
    return f"{table_name}_v{version}"


@dataclass(frozen=True)
class ReleasedColumn:
    name: str
    type: str
    role: str


def types_in(columns: Iterable[ReleasedColumn]) -> dict[str, str]:
    """DuckDB's types of released columns, by name."""
    return {column.name: column.type for column in columns}


@dataclass(frozen=True)
class Facts:
    """The counts and the content digest of a staged release; the version is None in a Parquet file."""

    rows: int
    classes: int
    smallest_class: int
    digest: str
    version: int | None = None


def has_open_ends(rules: Any) -> bool:
    """Whether a rule of a manifest has open ends.

    >>> has_open_ends([{"rule": "intervals", "widths": [5], "above": 90}]), has_open_ends(None)
    (True, False)
    """
    if not isinstance(rules, Sequence):
        return False
    return any(isinstance(rule, Mapping) and ("below" in rule or "above" in rule) for rule in rules)


@dataclass(frozen=True)
class Manifest:
    """One row of ``sqlanon.manifest``: its columns, with the JSON ones as Python values.

    All fields follow from the policy and the released rows.

    Attributes
    ----------
    generalization:
        The level of each quasi-identifier; None if its values are released at several levels.
    rows:
        Rows of the source.
    classes, smallest_class:
        Of the release. With persons, ``smallest_class`` is the fewest persons in a class.
    score:
        None if it depends on more than the release (`sqlanon.release.score`).
    optimal:
        Whether the strategy always proves its result optimal.
    guarantee:
        Whether the requirements hold for all quasi-identifiers together, or for ``combinations`` of them.
    epsilon, noise:
        For a record, and by attribute; None without noise.
    confidence:
        As in the policy.
    decoys:
        Decoys among the released rows; None if the policy has none.
    dropped_lines:
        Bad lines that were left out of CSV files; None unless the policy drops them.
    smallest_class_rows, persons, released_persons, suppressed_persons, partly_released_persons:
        The fewest rows in a class, and the figures of `Result`; None without persons.
    heights:
        Heights of hierarchies that readers can derive. The top of a mask is level 1 of 1 (see `levels`).
    version:
        Number of the version in its file or schema; None in a Parquet file.
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

    @property
    def types(self) -> dict[str, str]:
        """DuckDB's types of the columns, by name."""
        return types_in(self.columns)

    def attribute(self, name: str) -> Mapping[str, Any]:
        """The policy of an attribute, whose name may be in another case; empty without one."""
        attributes = self.policy.get("attributes", {})
        return next((spec for key, spec in attributes.items() if key.lower() == name.lower()), {})

    def has_open_ends(self, name: str) -> bool:
        """Whether a rule of a column's hierarchy has open ends, so that level 0 has labels."""
        return has_open_ends(self.attribute(name).get("hierarchy"))

    @property
    def privacy(self) -> PrivacySection | None:
        """The requirements in the policy; None if they cannot be read."""
        return read_part(PrivacySection, self.policy.get("privacy"), "privacy", {})[0]

    @property
    def draft(self) -> bool:
        """Whether the release is a draft, which is not compared with other releases."""
        return bool(self.policy.get("draft"))

    @property
    def rows_table(self) -> str:
        """The table with the rows; ``table_name`` is the view of it."""
        return self.table_name if self.version is None else version_name(self.table_name, self.version)

    @property
    def fewest_rows(self) -> int:
        """The fewest rows in a class."""
        return self.smallest_class if self.smallest_class_rows is None else self.smallest_class_rows

    def levels(self, heights: Mapping[str, int]) -> dict[str, int | None]:
        """The levels in hierarchies of these heights; a top level becomes the top level of its hierarchy."""
        published_heights = {name.lower(): height for name, height in (self.heights or {}).items()}
        tops, levels = {name.lower(): height for name, height in heights.items()}, dict(self.generalization)
        for name, level in levels.items():
            if level is not None and level == published_heights.get(name.lower()):
                levels[name] = tops.get(name.lower(), level)
        return levels

    def row(self) -> dict[str, Any]:
        fields = asdict(self)
        for name in _JSON_FIELDS:
            fields[name] = None if fields[name] is None else json.dumps(fields[name], ensure_ascii=False)
        return fields

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Manifest:
        fields = dict(row)
        _refuse_unexpected_fields(fields)
        for name in _JSON_FIELDS:
            if fields.get(name) is not None:
                fields[name] = _parse_json(fields[name])
        _refuse_invalid_types(fields)
        fields["columns"] = tuple(ReleasedColumn(**column) for column in fields["columns"])
        if isinstance(fields["published_at"], str):
            fields["published_at"] = datetime.fromisoformat(fields["published_at"])
        if not isinstance(fields["published_at"], datetime):
            raise ValueError("published_at is not a time")
        return cls(**fields)

    def fingerprint(self) -> str:
        """The SHA-256 of all fields but the version."""
        claims = {name: value for name, value in json.loads(self.to_json()).items() if name != "version"}
        return hashlib.sha256(json.dumps(claims, ensure_ascii=False).encode()).hexdigest()

    def to_json(self) -> str:
        return json.dumps({**self.row(), "published_at": self.published_at.isoformat()}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        return cls.from_row(_parse_json(text))


def _parse_json(text: str) -> Any:
    """Parse JSON in the exact form of `json.dumps`: duplicate keys could hide a value."""
    value = json.loads(text)
    if text not in (json.dumps(value, ensure_ascii=False), json.dumps(value)):
        raise ValueError("its JSON has duplicate keys or extra space")
    return value


def find_invalid_fields(manifest: Manifest) -> list[str]:
    """The fields with invalid values. Only names of tables, columns and attributes are free text."""
    levels = {name: level or 0 for name, level in manifest.generalization.items()}
    heights, confidence = manifest.heights or {}, manifest.confidence or {}
    optional, dropped = (manifest.decoys, manifest.version), manifest.dropped_lines
    person_figures = [getattr(manifest, name) for name in _PERSON_FIELDS]
    is_valid = {
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
        "persons": all(figure is None or type(figure) is int for figure in person_figures),
    }
    return [name for name, valid in is_valid.items() if not valid]


_VERSION = re.compile(r"\d+(\.\d+)*([a-z]+\d+)?(\.(post|dev)\d+)?(\+[a-z0-9.]{1,12})?")
_ENGINE = re.compile(
    r"(duckdb|spark|postgresql) \d+(\.(dev|post)?\d+)*((a|b|rc|beta)\d+)?(-[A-Za-z0-9.]{1,12})?( \([-+~.\w ]{1,50}\))?"
    r", python \d+(\.\d+)*((a|b|rc)\d+)?\+?"
)
_HASH = re.compile(r"[0-9a-f]{64}")


def _refuse_unexpected_fields(row: Mapping[str, Any]) -> None:
    """Refuse a manifest without all fields: a default value would not be a claim of the publisher."""
    names = {field.name for field in fields_of(Manifest)}
    if missing := sorted(names - row.keys()):
        raise ValueError(f"it lacks {', '.join(missing)}")
    if row.keys() - names:
        raise ValueError("it has fields that no manifest has")


def _refuse_invalid_types(fields: Mapping[str, Any]) -> None:
    policy, noise = fields["policy"], fields["noise"] or {}
    if not isinstance(policy, dict) or not isinstance(fields["generalization"], dict):
        raise ValueError("the policy or the generalization is not a JSON object")
    objects = {f"the {name}": fields[name] or {} for name in ("noise", "confidence", "heights")}
    objects |= {f"{name} of the policy": policy.get(name, {}) for name in ("attributes", "privacy", "search")}
    for name, value in objects.items():
        if not isinstance(value, dict):
            raise ValueError(f"{name} is not a JSON object")
    if not all(isinstance(spec, dict) for spec in (*policy.get("attributes", {}).values(), *noise.values())):
        raise ValueError("an attribute is not a JSON object")
    for name in _COUNT_FIELDS:
        if type(fields[name]) is not int:
            raise ValueError(f"{name} is not an integer")
    levels = [*fields["generalization"].values(), *(fields["heights"] or {}).values()]
    if not all(level is None or type(level) is int for level in levels):
        raise ValueError("a level is not an integer")
    if fields["score"] is not None and type(fields["score"]) not in (int, float):
        raise ValueError("the score is not a number")
