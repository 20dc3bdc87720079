"""Sentences about a release of linked tables, for its comments and its report."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from sqlanon.linked.release.manifest import LinkedManifest, TableClaims
from sqlanon.linked.release.views import KNOWN_ROWS, WHOLE_ROWS
from sqlanon.release.manifest import ReleasedColumn
from sqlanon.release.metadata import column_comment, comment
from sqlanon.release.sentences import join_names, level_in_words
from sqlanon.support.expressions import table
from sqlanon.support.notices import count_noun

_ROLES = {"quasi": "quasi-identifier", "key": "key"}


def describe_known(known: int | str) -> str:
    """The child rows of a person that an attacker knows, in words."""
    if known == "all":
        return "all child rows"
    return count_noun(int(known), "child row") if known else "no child row"


def describe_claim(manifest: LinkedManifest) -> str:
    """The claim of a release, in one sentence."""
    persons = count_noun(manifest.smallest_group, "person")
    attacker = f"An attacker who knows the quasi-identifiers of a person and {describe_known(manifest.known)}"
    return f"{attacker} finds {persons} or more who match (required: {manifest.k:,})."


def describe_column(manifest: LinkedManifest, claims: TableClaims, column: ReleasedColumn) -> str:
    """Describe how a released column was treated, without a full stop."""
    if column.name in claims.references:
        return f"the new key of a row of {claims.parent}"
    if column.name in claims.ancestor_references:
        return f"the new key of a row of {claims.ancestor_references[column.name]}"
    if column.role == "key":
        return "a new key, drawn for this release"
    spec = _attribute(manifest, claims, column.name)
    rules = spec.get("hierarchy") or []
    is_moved = any(isinstance(rule, dict) and rule.get("shift") for rule in rules)
    moved = "; before, the dates of each person were moved by a random number of days" if is_moved else ""
    if column.role != "quasi":
        return f"unchanged{moved}" if not moved else moved.removeprefix("; before, ")
    level = next((level for name, level in claims.generalization.items() if name.lower() == column.name.lower()), None)
    if level is None:
        return f"generalized as far as each class of persons needs{moved}"
    return f"{level_in_words(rules, level, None)}{moved}"


def _attribute(manifest: LinkedManifest, claims: TableClaims, column: str) -> dict[str, list[dict[str, object]]]:
    """The attribute of a column in the policy of the manifest, which is not trusted."""
    tables = manifest.policy.get("tables")
    attributes = tables.get(claims.name) if isinstance(tables, dict) else None
    if not isinstance(attributes, dict):
        return {}
    spec = next((spec for name, spec in attributes.items() if name.lower() == column.lower()), None)
    return spec if isinstance(spec, dict) and isinstance(spec.get("hierarchy") or [], list) else {}


def release_comments(manifest: LinkedManifest, catalog: str) -> Iterator[exp.Comment]:
    """The comments of a release file, on its tables, their views and their columns.

    They have no figures, so that false figures in the manifest are found in the rows.
    """
    names = join_names([claims.name for claims in manifest.tables])
    for claims in manifest.tables:
        rows = "one row for each person" if claims.parent is None else f"rows of {claims.parent}"
        attacker = f"for an attacker who knows {describe_known(manifest.known)} of a person"
        text = (
            f"{rows}, anonymized by sqlanon {manifest.sqlanon_version} together with all of {names}, {attacker}; "
            "figures: sqlanon.linked_manifest"
        )
        for kind, name in (("VIEW", claims.name), ("TABLE", manifest.rows_table(claims))):
            relation = table(name, "main", catalog)
            yield comment(kind, relation.copy(), text)
            for column in claims.columns:
                role = _ROLES.get(column.role, f"{column.role} attribute")
                treatment = describe_column(manifest, claims, column)
                yield column_comment(relation, column.name, f"{role}: {treatment}")
    views = {
        KNOWN_ROWS: "the child rows of each person as an attacker may know them, for sqlanon.km_anonymity",
        WHOLE_ROWS: "the child rows of each person with the rows that belong to them, for sqlanon.relational_k",
    }
    for name, text in views.items():
        yield comment("VIEW", table(name, "main", catalog), text)


def expected_comments(manifest: LinkedManifest) -> dict[tuple[str, str], str]:
    """The comments of a release file by relation and column; the column is '' for the relation itself."""
    comments = {}
    for statement in release_comments(manifest, "c"):
        target = statement.this
        is_column = isinstance(target, exp.Column)
        comments[(target.table, target.name) if is_column else (target.name, "")] = statement.expression.name
    return comments
