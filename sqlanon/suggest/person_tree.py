"""The tree of tables below the table of persons, and the reference by which rows of each table name their parent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlanon.errors import PolicyError, Problem, SourceError
from sqlanon.suggest.links import Link, ProfiledTable, count_orphans
from sqlanon.support.toml import toml_key

MAX_ORPHANS = 0.1
"""The share of rows that name no row, above which another reference is preferred."""
_MIN_TRAITS = 2  # of a table that is not named like persons


@dataclass(frozen=True)
class PersonTree:
    """The tables below a table of persons, parents before children.

    Attributes
    ----------
    tables:
        The table of persons first.
    links:
        By table, the reference by which its rows belong to a row of another table.
    dropped:
        By table and column, the reason why it names a row and is not released.
    other_persons:
        Tables outside the tree that look like tables of persons, too.
    outside_tables:
        All tables outside the tree.
    """

    tables: tuple[ProfiledTable, ...]
    links: Mapping[str, Link]
    dropped: Mapping[str, Mapping[str, str]]
    other_persons: tuple[str, ...]
    outside_tables: tuple[str, ...]

    def key_of(self, table: ProfiledTable) -> tuple[str, ...]:
        """The columns that identify the rows of a table: those by which others name them, if any do."""
        referenced = [link.key for link in self.links.values() if link.parent == table.name]
        released = [key for key in table.keys if not self.dropped[table.name].keys() & {*key}]
        return next(iter((*referenced, *released, *table.constraints.keys)), ())


def build_tree(
    tables: Sequence[ProfiledTable], links: Sequence[Link], requested_person: str | None = None
) -> PersonTree:
    """Choose the table of persons, and one reference for each table whose rows belong to persons.

    If a table has several references, the preferred one is part of the table's key (a line belongs to its order), then
    leads to the table closest to the persons, then has the fewest orphans, then comes first. A reference with many
    orphans is the last resort.

    Raises
    ------
    SourceError
        No table looks like the table of persons, or two do equally well.
    """
    persons = _choose_persons(tables, links, requested_person)
    links = [*_select_links_by_common_key(links)]
    chosen: dict[str, Link] = {}
    order = [persons.name]
    by_name = {table.name: table for table in tables}
    owned = {link.child for link in links if _is_part_of_key(link, by_name[link.child])}
    strong = [
        link
        for link in links
        if link.orphans <= MAX_ORPHANS * by_name[link.child].rows
        and (link.child not in owned or _is_part_of_key(link, by_name[link.child]))
    ]
    while reached := _next_links(strong, order) or _next_links(links, order):
        children = [table.name for table in tables if any(link.child == table.name for link in reached)]
        for child in children:
            chosen[child] = min((link for link in reached if link.child == child), key=lambda link: link.orphans)
        order += children
    return PersonTree(
        tuple(by_name[name] for name in order),
        chosen,
        {name: _drop_columns(by_name, chosen, links, name) for name in order},
        tuple(table.name for table in tables if table.name not in order and _looks_like_persons(table)),
        tuple(table.name for table in tables if table.name not in order),
    )


def name_nearer_rows(tree: PersonTree, links: Sequence[Link]) -> PersonTree:
    """Choose the nearer parent for rows that name two rows, one of which belongs to the other.

    A result that names a visit and a patient belongs to the visit, if every result names the patient of its visit.
    """
    by_name = {table.name: table for table in tree.tables}
    chosen = dict(tree.links)
    for link in links:
        current = chosen.get(link.child)
        for near, far in () if current is None or current.further else ((link, current), (current, link)):
            above = tree.links.get(near.parent)
            if above is None or (above.parent, above.key) != (far.parent, far.key) or {*near.columns} & {*far.columns}:
                continue
            if near.child in _path_to_persons(near.parent, chosen):
                continue
            columns, keys = (*near.columns, *far.columns), (*near.key, *above.columns)
            if not count_orphans(by_name[near.child], columns, by_name[near.parent], keys):
                chosen[near.child] = replace(near, orphans=0, further=dict.fromkeys(far.columns, far.parent))
                break
    order = sorted(tree.tables, key=lambda table: len(_path_to_persons(table.name, chosen)))
    dropped = {
        name: {column: reason for column, reason in reasons.items() if column not in link.references}
        for name, reasons in tree.dropped.items()
        for link in [chosen.get(name) or tree.links.get(name)]
        if link is not None
    }
    return replace(tree, tables=tuple(order), links=chosen, dropped={**tree.dropped, **dropped})


def _path_to_persons(name: str, links: Mapping[str, Link]) -> list[str]:
    """A table and its ancestors, up to the table of persons."""
    path = [name]
    while (link := links.get(path[-1])) is not None:
        path.append(link.parent)
    return path


def _is_part_of_key(link: Link, child: ProfiledTable) -> bool:
    return any({*link.columns} < {*key} for key in child.keys[:1])


def _next_links(links: Sequence[Link], order: Sequence[str]) -> list[Link]:
    return [link for link in links if link.parent in order and link.child not in order]


def _looks_like_persons(table: ProfiledTable) -> bool:
    return bool(table.keys) and (table.is_named_like_persons or len(table.traits) >= _MIN_TRAITS)


def _choose_persons(tables: Sequence[ProfiledTable], links: Sequence[Link], requested: str | None) -> ProfiledTable:
    names = ", ".join(table.name for table in tables)
    if requested is not None:
        table = next((table for table in tables if table.name.lower() == requested.lower()), None)
        if table is None:
            raise PolicyError([Problem("person", f"table {requested!r} does not exist; the tables are {names}")])
        if not table.keys:
            message = f"no column of {table.name!r} identifies its rows: a table of persons has one row for each person"
            raise PolicyError([Problem("person", message)])
        return table
    reach = {table.name: len(_descendants(table.name, links)) for table in tables}
    candidates = [table for table in tables if reach[table.name] and _looks_like_persons(table)]
    if not candidates:
        raise SourceError(
            "no table looks like the persons to whom rows of the others belong: name it with --person TABLE, or name "
            f"one table to write a policy for it alone; the tables are {names}"
        )

    def rank(table: ProfiledTable) -> tuple[bool, int, int]:
        return table.is_named_like_persons, len(table.traits), reach[table.name]

    best = max(map(rank, candidates))
    tied = [table for table in candidates if rank(table) == best]
    if len(tied) > 1:
        raise SourceError(
            f"{' and '.join(table.name for table in tied)} look like tables of persons alike: name the one whose "
            "persons are to be protected with --person TABLE"
        )
    return tied[0]


def _descendants(name: str, links: Sequence[Link]) -> set[str]:
    """The tables whose rows belong to rows of a table, directly or through others."""
    reached = {name}
    while more := {link.child for link in links if link.parent in reached} - reached:
        reached |= more
    return reached - {name}


def _select_links_by_common_key(links: Sequence[Link]) -> Iterator[Link]:
    """The links by the key of their parent that most tables name."""
    counts = Counter((link.parent, link.key) for link in links)
    for link in links:
        most = max(count for (parent, _), count in counts.items() if parent == link.parent)
        keys = [key for (parent, key), count in counts.items() if parent == link.parent and count == most]
        if link.key == keys[0]:
            yield link


def _drop_columns(
    by_name: Mapping[str, ProfiledTable], chosen: Mapping[str, Link], links: Sequence[Link], name: str
) -> dict[str, str]:
    """The columns of a table that name rows, apart from its reference, with the reason why they are not released."""
    retained = chosen[name].columns if name in chosen else ()
    dropped: dict[str, str] = {}
    for link in links:
        if link.child != name or link == chosen.get(name):
            continue
        is_inside = link.parent in chosen or any(chosen_link.parent == link.parent for chosen_link in chosen.values())
        if not is_inside and not _looks_like_persons(by_name[link.parent]):
            continue
        for column in link.columns:
            if column not in retained:
                target = toml_key(link.parent)
                reason = f"names a row of {target}"
                if name in chosen:
                    reason += f", and each row here belongs to one of {toml_key(chosen[name].parent)}"
                dropped.setdefault(column, reason)
    return dropped
