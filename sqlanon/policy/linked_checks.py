"""Checks of the tables of a policy against one another, and against its requirements and its search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from sqlanon.errors import Problem
from sqlanon.places.addresses import SERVER_NAMES
from sqlanon.policy.linked_requirements import depends_on_source
from sqlanon.policy.linked_sections import (
    LinkedPrivacySection,
    LinkedReleaseSection,
    LinkedSearchSection,
    LinkedSourceSection,
    TableSection,
)
from sqlanon.policy.rules import TableRule
from sqlanon.policy.sections import CatalogSection
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements.base import Requirement
from sqlanon.support.fields import nearest_word


def check_linked_sections(
    sections: Sequence[TableSection],
    source: LinkedSourceSection | None,
    privacy: LinkedPrivacySection | None,
    search: LinkedSearchSection | None,
) -> Iterator[Problem]:
    """Check the tables against one another, and against the source, the requirements and the search."""
    yield from _check_links(sections)
    if search is not None and search.row_suppression_limit:
        for i, section in enumerate(sections):
            if not section.person and not section.key:
                message = "is missing: rows that are suppressed individually need a key; name its columns"
                yield Problem(f"table[{i}].key", message)
    if privacy is not None:
        yield from _check_requirements(privacy, sections, search)
    if source is not None and source.server_key is not None:
        yield from _check_server(source.server_key, sections, search)


def check_release_in_spark(
    sections: Sequence[TableSection], source: LinkedSourceSection | None, release: LinkedReleaseSection | None
) -> Iterator[Problem]:
    """Check that tables released in Spark are not elsewhere. Without a source, they may be those of a session."""
    if release is None or not release.spark:
        return
    is_elsewhere = any(section.files or section.database is not None for section in sections)
    if is_elsewhere or (source is not None and (source.postgres is not None or source.database is not None)):
        message = "applies to tables in Spark, and these are elsewhere: give database = ... or folder = ..."
        yield Problem("release.spark", f"{message}, whose Parquet files Spark reads")


def check_earlier_release(
    sections: Sequence[TableSection],
    release: LinkedReleaseSection | None,
    search: LinkedSearchSection | None,
    catalog: CatalogSection | None,
) -> Iterator[Problem]:
    """Check that a release can be made from an earlier one."""
    if release is None or release.after is None:
        return
    if catalog is None:
        yield Problem("release.after", "needs the ledger, which is in the catalog: add [catalog] database = ...")
    if search is not None and STRATEGIES[search.strategy].traits.is_local:
        message = f"{search.strategy!r} has no levels to compare with an earlier release: use a full-domain strategy"
        yield Problem("release.after", message)
    if any(attribute.shift is not None for section in sections for attribute in section.attributes.values()):
        message = "dates are moved anew in each release, so the earlier one cannot be made again: leave one of both out"
        yield Problem("release.after", message)


COPY_ADVICE = "copy them to a DuckDB file, or export them to Parquet files, with files = ... for each [[table]]"


def _check_server(key: str, sections: Sequence[TableSection], search: LinkedSearchSection | None) -> Iterator[Problem]:
    """Check that the tables of a server need nothing that reads their rows. ``key`` names the server in the source."""
    server = SERVER_NAMES[key]
    for i, section in enumerate(sections):
        for table_key in ("database", "files", "csv"):
            if getattr(section, table_key):
                message = f"[source] {key} has all tables of the policy: leave it out, or copy all of them"
                yield Problem(f"table[{i}].{table_key}", message)
        for name, attribute in section.attributes.items():
            if any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ()):
                message = f"names a table of a DuckDB source, and these are in {server}: export it, and use file = ..."
                yield Problem(f"table[{i}].attributes.{name}.hierarchy", message)
    if search is not None and (problem := find_local_search(search, server)):
        yield Problem("search.strategy", problem)


def find_local_search(search: LinkedSearchSection, server: str) -> str:
    """The problem of a search that reads rows, which a server keeps; empty without one."""
    if not STRATEGIES[search.strategy].traits.is_local:
        return ""
    message = f"{search.strategy!r} is not supported for tables in {server}, whose rows never leave it"
    return f'{message}: use "optimal", or {COPY_ADVICE}'


def _check_links(sections: Sequence[TableSection]) -> Iterator[Problem]:
    """Check that the tables are a tree below one table of persons."""
    if problems := [*_check_names(sections), *_check_persons(sections)]:
        yield from problems
        return
    by_name = {section.name: section for section in sections}
    if problems := [problem for i, section in enumerate(sections) for problem in _check_targets(i, section, by_name)]:
        yield from problems
        return
    if problems := list(_check_cycles(sections, by_name)):
        yield from problems
        return
    for i, section in enumerate(sections):
        yield from _check_nearest_table(i, section, by_name)
    yield from _check_shifts(sections)
    if not any(section.names_of("quasi") for section in sections):
        advice = "give this role to the columns that other people may know about a person"
        yield Problem("table", f'no attribute has role = "quasi", so nothing is generalized: {advice}')


def _check_names(sections: Sequence[TableSection]) -> Iterator[Problem]:
    names: set[str] = set()
    for i, section in enumerate(sections):
        if section.name.lower() in names:
            message = f"two tables are named {section.name!r}, in any case: rename one, with table = ... for the source"
            yield Problem(f"table[{i}].name", message)
        names.add(section.name.lower())
    for i, section in enumerate(sections):
        version = re.fullmatch(r"(.+)_v\d+(_manifest)?", section.name.lower())
        if version is not None and version[1] in names:
            message = f"a release keeps versions of {version[1]!r} under such names: give the table another name"
            yield Problem(f"table[{i}].name", message)


def _check_persons(sections: Sequence[TableSection]) -> Iterator[Problem]:
    persons = [section.name for section in sections if section.person]
    if len(persons) != 1:
        having = f"{len(persons)} tables have it: {', '.join(persons)}" if persons else "no table has it"
        yield Problem("table", f"exactly one table has person = [...], its key, and {having}")


def _check_targets(i: int, section: TableSection, by_name: Mapping[str, TableSection]) -> Iterator[Problem]:
    """Check the tables that a table references."""
    place, targets = f"table[{i}].references", sorted(set(section.references.values()))
    for column, target in section.references.items():
        if target not in by_name:
            guess = nearest_word(target, by_name)
            advice = f"did you mean {guess!r}?" if guess else f"the tables are {', '.join(by_name)}"
            yield Problem(f"{place}.{column}", f"table {target!r} does not exist; {advice}")
        elif by_name[target].is_key_partly_reference:
            advice = f"give {target!r} its own key with query = ..."
            message = (
                f"a part of the key of {target!r} is a reference itself, and gets another new number than the rest"
            )
            yield Problem(f"{place}.{column}", f"{message}: {advice}")
        elif not (by_name[target].person or by_name[target].key):
            yield Problem(f"{place}.{column}", f"table {target!r} has no key: add key = [...] to it")
    for target in targets:
        key = () if target not in by_name else by_name[target].person or by_name[target].key
        columns = section.columns_naming(target)
        if key and len(key) != len(columns):
            yield Problem(place, f"{len(columns)} columns name a row of {target!r}, whose key has {len(key)}")


def _check_nearest_table(i: int, section: TableSection, by_name: Mapping[str, TableSection]) -> Iterator[Problem]:
    """Check that a row that names rows of several tables belongs to one of them, and that one to the others."""
    place, targets = f"table[{i}].references", sorted(set(section.references.values()))
    nearest = [name for name in targets if {*targets} <= {name, *_ancestors(name, by_name)}]
    if section.references and not nearest:
        message = (
            f"the tables {', '.join(targets)}: a row belongs to a row of one table, and may name only tables that this "
            "row belongs to; keep one reference, and give the other column the role identifying, which is not released"
        )
        yield Problem(place, message)
    elif nearest and set(section.key) <= set(section.references) != set():
        columns = section.columns_naming(nearest[0])
        if section.key and set(section.key) != set(columns):
            message = f"has references to several tables: add another column to it, or use {', '.join(columns)} alone"
            yield Problem(f"table[{i}].key", message)


def _ancestors(name: str, by_name: Mapping[str, TableSection]) -> set[str]:
    """The tables that the rows of a table belong to."""
    targets = set(by_name[name].references.values())
    return targets.union(*(_ancestors(target, by_name) for target in targets))


def _check_shifts(sections: Sequence[TableSection]) -> Iterator[Problem]:
    """Check that all dates are moved by the same days."""
    shifts = [
        (f"table[{i}].attributes.{name}.hierarchy", attribute.shift)
        for i, section in enumerate(sections)
        for name, attribute in section.attributes.items()
        if attribute.shift is not None
    ]
    for place, shift in shifts:
        if shift != shifts[0][1]:
            message = f"all dates of a person are moved by the same days, and {shifts[0][0]} has shift = {shifts[0][1]}"
            yield Problem(place, f"shift = {shift}: {message}; give all the same shift")


def _check_cycles(sections: Sequence[TableSection], by_name: Mapping[str, TableSection]) -> Iterator[Problem]:
    for i, section in enumerate(sections):
        if cycle := _find_cycle([section.name], by_name):
            message = f"{' > '.join(cycle)} is a cycle: no row of these tables belongs to a person"
            yield Problem(f"table[{i}].references", message)


def _find_cycle(path: Sequence[str], by_name: Mapping[str, TableSection]) -> Sequence[str]:
    """Extend a path of references until a table occurs twice; empty if none does."""
    for target in dict.fromkeys(by_name[path[-1]].references.values()):
        if target in path:
            return [*path, target]
        if cycle := _find_cycle([*path, target], by_name):
            return cycle
    return []


def _check_requirements(
    privacy: LinkedPrivacySection, sections: Sequence[TableSection], search: LinkedSearchSection | None
) -> Iterator[Problem]:
    """Check the requirements on sensitive attributes."""
    requirements = list(privacy.named_requirements)
    for key, i, requirement in requirements:
        place, reference = f"privacy.{key}[{i}]", requirement.sensitive_attributes[0]
        candidates = find_sensitive(sections, reference)
        if len(candidates) != 1:
            names = [f"{section.name}.{name}" for section in sections for name in section.names_of("sensitive")]
            having = f"the sensitive attributes are {', '.join(names)}" if names else "no attribute is sensitive"
            advice = f"name its table, as in {candidates[0][0].name}.{candidates[0][1]}" if candidates else having
            problem = "is an attribute of several tables" if candidates else "is not a sensitive attribute"
            yield Problem(f"{place}.attribute", f"{reference!r} {problem}: {advice}")
        elif isinstance(requirement, Requirement):
            section, _ = candidates[0]
            if not section.person:
                message = f"{reference!r} is an attribute of {section.name}, and a person may have several rows in it"
                yield Problem(f"{place}.attribute", f"{message}: use [[privacy.confidence]]")
            elif depends_on_source(requirement):
                message = "compares groups with the whole source, which is not supported with several tables"
                yield Problem(place, f"{message}: use [[privacy.confidence]], which limits what a group reveals")
    if requirements and search is not None:
        key = requirements[0][0]
        if STRATEGIES[search.strategy].traits.is_local:
            message = f"{search.strategy!r} is not supported with privacy.{key}, which it does not test"
            yield Problem("search.strategy", f'{message}: use "optimal"')


def find_sensitive(sections: Sequence[TableSection], reference: str) -> list[tuple[TableSection, str]]:
    """The sensitive attributes that a reference may mean: ``diagnosis``, or ``visits.diagnosis``."""
    return [
        (section, name)
        for section in sections
        for name in section.names_of("sensitive")
        if reference in (name, f"{section.name}.{name}")
    ]
