"""A suggested policy of several tables as TOML with comments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlanon.disclosure.residual_risk import format_percent
from sqlanon.suggest.linked_risk import Uniqueness
from sqlanon.suggest.links import Link, ProfiledTable
from sqlanon.suggest.person_tree import PersonTree
from sqlanon.suggest.policy_text import (
    SUPPRESSION_LIMIT,
    K,
    attribute_lines,
    comment_lines,
    join_keys,
    key_lines,
)
from sqlanon.suggest.propose import Proposal
from sqlanon.suggest.suggest import Location
from sqlanon.support.notices import count_noun
from sqlanon.support.toml import toml_key, toml_value

KNOWN = 2
_SECONDS = 300


@dataclass(frozen=True)
class TableSuggestion:
    """The section of a table: its key, the reference to its parent, and the proposals for its other columns."""

    table: ProfiledTable
    key: tuple[str, ...]
    link: Link | None
    proposals: Sequence[Proposal]


@dataclass(frozen=True)
class LinkedFindings:
    """Findings on the tables together, for the comments; ``notes`` say why the tables are known, if they are."""

    tree: PersonTree
    uniqueness: Uniqueness
    notes: Sequence[str] = ()


def linked_policy_text(location: Location, sections: Sequence[TableSuggestion], findings: LinkedFindings) -> str:
    """The text of the policy."""
    persons, source = sections[0].table, location.database
    file = Path(location.files[0]) if source is None else source
    name = re.sub(r"\W+", "_", file.stem).strip("_") or "tables"
    have_keys = all(section.key for section in sections)
    lines = [
        *comment_lines(
            f"A policy to start from, written by `sqlanon suggest` for {count_noun(len(sections), 'table')} about "
            f"{count_noun(persons.rows, 'person')}. sqlanon sees only names, types and statistics; you know what "
            "the columns mean. Read every line before you share a release. Keep this file as private as the tables."
        ),
        *_describe_choice(persons, findings),
        *_describe_risk(sections, findings.uniqueness),
        "",
        *([] if source is None else ["[source]", *key_lines({"database": location.show_path(source)}), ""]),
        *comment_lines("key: links the tables; replaced by random numbers. identifying: never released."),
        *comment_lines("quasi: others may know it, so it is generalized."),
        *comment_lines("sensitive: others must not learn it. insensitive: neither. Both are released unchanged."),
        *(line for section in sections for line in [*_table_section(section), ""]),
        "[privacy]",
        f"k = {K}  # everyone shares what others know with at least k - 1 others",
        f'known = {KNOWN}  # the child rows of a person that others know: 1, 2, 3 or "all"',
        "",
        "[search]",
        *comment_lines(
            "mondrian: levels for each class of persons, which usually keeps the most. optimal: one level for all "
            "persons, with a proof that none is better."
        ),
        'strategy = "mondrian"',
        f"suppression_limit = {SUPPRESSION_LIMIT}  # at most this share of the persons is left out",
        *(
            [f"row_suppression_limit = {SUPPRESSION_LIMIT}  # and of the child rows, individually"]
            if have_keys
            else comment_lines("row_suppression_limit needs a key of each table, and one has none.")
        ),
        f"time_limit = {_SECONDS}  # seconds; then the best release so far is taken",
        "",
        "[release]",
        *key_lines({"database": f"{name}_release.duckdb"}),
    ]
    return "\n".join(lines) + "\n"


def _describe_choice(persons: ProfiledTable, findings: LinkedFindings) -> list[str]:
    tree = findings.tree
    reason = "by its name" if persons.is_named_like_persons else "by its columns"
    text = f"{toml_key(persons.name)} is the table of persons, {reason} and the tables that belong to it."
    if tree.other_persons:
        names = join_keys(tree.other_persons)
        text += f" {names} may have persons, too, whom this policy does not protect; --person TABLE chooses another."
    lines = [line for note in findings.notes or (text,) for line in comment_lines(note)]
    if names := join_keys(tree.outside_tables):
        lines += comment_lines(
            f"Not in this policy: {names}."
            if findings.notes
            else f"Not in this policy, because their rows belong to no row of these tables: {names}."
        )
    return lines


def _describe_risk(sections: Sequence[TableSuggestion], uniqueness: Uniqueness) -> list[str]:
    """The shares of unique persons: by the table of persons alone, with each other table, and with all."""
    lines = comment_lines(
        "What each table adds to the risk: the share of the persons who are unique by the quasi-identifiers of the "
        "table of persons and of all their rows of another table."
    )
    rows = [(f"{toml_key(sections[0].table.name)} alone", uniqueness.persons_alone, "")]
    for section in sections[1:]:
        name = section.table.name
        most = f"{count_noun(section.table.rows, 'row')}, at most {uniqueness.most_rows[name]:,} of one person"
        rows.append((f"with {toml_key(name)}", uniqueness.by_table[name], most))
    if len(sections) > 2:
        rows.append(("with all tables", uniqueness.all_tables, ""))
    width = max(len(name) for name, *_ in rows)
    for name, share, note in rows:
        lines.append(f"#   {name:<{width}}  {format_percent(share):>7}  {note}".rstrip())
    return lines


def _table_section(section: TableSuggestion) -> list[str]:
    table, link = section.table, section.link
    lines = ["[[table]]"]
    lines += key_lines({"name": table.name})
    lines += key_lines(_source_keys(table))
    if link is None:
        lines += key_lines({"person": section.key})
    else:
        lines += key_lines({"key": section.key} if section.key else {})
        lines += comment_lines(f"{join_keys(link.columns)} names a row of {toml_key(link.parent)}, {link.reason}.")
        for target in dict.fromkeys(link.further.values()):
            columns = join_keys([column for column, parent in link.further.items() if parent == target])
            lines += comment_lines(f"{columns} names the row of {toml_key(target)} that this row belongs to.")
        lines.append(f"references = {toml_value(link.references)}")
        if link.orphans:
            lines += comment_lines(
                f"{count_noun(link.orphans, 'row')} of {table.rows:,} name none, so they are left out: "
                '"error" refuses them.'
            )
            lines.append('orphans = "suppress"')
    lines.append("[table.attributes]")
    keys = dict.fromkeys((*section.key, *(() if link is None else link.references)))
    lines += [f'{toml_key(name)} = {{ role = "key" }}' for name in table.columns if name in keys]
    lines += [line for proposal in section.proposals for line in attribute_lines(proposal)]
    return lines


def _source_keys(table: ProfiledTable) -> Mapping[str, object]:
    """The keys that locate a table, and say how its files are read."""
    keys = {key: value for key, value in table.location.policy_section.items() if key != "database"}
    if keys.get("table") == table.name:
        del keys["table"]
    return keys
