"""Match the columns of a source with the attributes of a policy, and those of several files with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.errors import SourceError
from sqlanon.places.databases import file_name, format_address
from sqlanon.policy import Policy
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.sources.source import Source
from sqlanon.support.coding import Column
from sqlanon.support.expressions import col, is_null, template
from sqlanon.support.fields import nearest_word
from sqlanon.support.names import EARLIER_RELEASES_COLUMN

_MAX_DIFFERENCES = 5  # in an error


@dataclass(frozen=True)
class Columns:
    """Columns of a source by their role, in the order of the policy."""

    by_attribute: Mapping[str, str]  # the column of each attribute
    # Quasi-identifiers with a hierarchy, those with noise, and the sensitive attributes that requirements examine.
    generalized: tuple[str, ...]
    noisy: tuple[str, ...]
    sensitive: tuple[str, ...]
    sensitive_names: tuple[str, ...]  # as named in the policy
    person: str | None  # None: each row is a person
    key: tuple[str, ...] = ()  # identifies rows, if the policy has a key
    # In the order of the source: attributes that are not identifying, without the marks of earlier releases.
    released: tuple[Column, ...] = ()
    # Sampling weights and households for `risk`, if the policy names them.
    weights: str | None = None
    household: str | None = None


def match_columns(policy: Policy, source: Source) -> Columns:
    """Match columns with attributes by name, ignoring case."""
    by_lower = {name.lower(): name for name in source.columns}
    person, key = policy.source.person_column, policy.source.key
    risk_columns = policy.risk.columns if policy.risk else {}
    declared = {name.lower() for name in (*policy.attributes, person, *key, *risk_columns.values()) if name}
    undeclared = [name for name in source.columns if name.lower() not in declared]
    problems: list[str] = []

    def report_missing(subject: str, names: Iterable[str]) -> None:
        """Report names that no column has, with columns of similar names."""
        missing = [name for name in names if name.lower() not in by_lower]
        guesses = {name: by_lower[guess] for name in missing if (guess := nearest_word(name, by_lower))}
        advice = "check the spelling"
        if guesses:
            pairs = (f"{guess!r}" + f" for {name!r}" * (len(missing) > 1) for name, guess in guesses.items())
            advice = f"did you mean {', '.join(pairs)}?"
        if missing:
            problems.append(f"{subject} {quote_names(missing)}; {advice}")

    report_missing("attributes without a column in the source:", policy.attributes)
    report_missing("source.person: the source has no column", [person] if person else [])
    report_missing("source.key: the source has no column", key)
    for risk_key, name in risk_columns.items():
        report_missing(f"risk.{risk_key}: the source has no column", [name])
    if undeclared and policy.source.undeclared == "error":
        problems.append(
            f"columns without a role: {quote_names(undeclared)}; "
            'declare them under [attributes], or set undeclared = "drop" under [source]'
        )
    if problems:
        title = "the columns of the source do not match the policy:"
        raise SourceError(problems[0] if len(problems) == 1 else "\n  - ".join([title, *problems]))
    matched = {name: by_lower[name.lower()] for name in policy.attributes}
    examined = examined_sensitive_attributes(policy.privacy, policy.attributes_with_role("sensitive"))
    # Nested values have no hierarchy; their parts may.
    nested = [name for name in (*policy.generalized_attributes, *examined) if is_nested(source.columns[matched[name]])]
    if nested:
        raise SourceError(
            "quasi-identifiers, and sensitive attributes of requirements, cannot have nested types: "
            f"{quote_names(nested)}; make their parts columns, with query = ... under [source] or in the data frame"
        )
    return Columns(
        matched,
        tuple(matched[name] for name in policy.generalized_attributes),
        tuple(matched[name] for name in policy.noisy_attributes),
        tuple(matched[name] for name in examined),
        examined,
        by_lower[person.lower()] if person else None,
        tuple(by_lower[name.lower()] for name in key),
        _find_released_columns(policy, source, matched),
        **{key: by_lower[name.lower()] for key, name in risk_columns.items()},
    )


def match_population_columns(policy: Policy, population: Source) -> tuple[tuple[str, ...], str | None]:
    """Find the columns of quasi-identifiers and of persons in the population table."""
    by_lower = {name.lower(): name for name in population.columns}
    person = policy.population.person if policy.population else None
    wanted = [*policy.generalized_attributes, *([person] if person else [])]
    missing = [name for name in wanted if name.lower() not in by_lower]
    if missing:
        raise SourceError(
            f"population: the table has no column {quote_names(missing)}; "
            "rename columns with query = ... under [population]"
        )
    columns = tuple(by_lower[name.lower()] for name in policy.generalized_attributes)
    return columns, by_lower[person.lower()] if person else None


def quote_names(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def _find_released_columns(policy: Policy, source: Source, matched: Mapping[str, str]) -> tuple[Column, ...]:
    by_column = {column: name for name, column in matched.items()}
    number = {name: i for i, name in enumerate(policy.generalized_attributes)}
    return tuple(
        Column(column, number.get(by_column[column]))
        for column in source.columns
        if column in by_column
        and column != EARLIER_RELEASES_COLUMN
        and policy.attributes[by_column[column]].role != "identifying"
    )


def refuse_repeated_keys(engine: Engine, source: Source, key: Sequence[str]) -> None:
    """Refuse a key that several rows have, or that some rows lack."""
    columns = {name.lower(): name for name in source.columns}
    key_columns = [columns[name.lower()] for name in key if name.lower() in columns]
    if len(key_columns) < len(key):
        return  # `match_columns` reports missing columns
    lacks_part = exp.or_(*(is_null(col(name)) for name in key_columns), copy=False)
    query = template("""
        SELECT
            count(*) FILTER (WHERE row_count > 1 AND NOT lacks_part),
            coalesce(sum(row_count) FILTER (WHERE lacks_part), 0)
        FROM (SELECT :lacks_part AS lacks_part, count(*) AS row_count FROM :source GROUP BY :key) AS counted_keys
    """)(lacks_part=lacks_part, source=source.relation, key=[col(name) for name in key_columns])
    repeated, without = engine.rows(query)[0]
    if repeated or without:
        raise SourceError(
            f"source.key: {repeated:,} keys belong to several rows, and {without:,} rows have no key; name columns "
            "that identify each row"
        )


def refuse_ambiguous_names(names: Sequence[str], where: str) -> None:
    """Refuse names that differ in case only: SQL treats them as equal."""
    counts = Counter(name.lower() for name in names)
    if twice := [name for name in names if counts[name.lower()] > 1]:
        raise SourceError(
            f"{where}: columns {quote_names(twice)} have the same name, or differ in case only; rename them"
        )


def refuse_different_columns(files: Sequence[tuple[str, Mapping[str, str | None]]], same_case: bool = False) -> None:
    """Refuse files that differ in the names or the types of their columns.

    Each file has its path, and the types of its columns; a type that is None equals every type.
    """
    paths = [path for path, _ in files]
    are_distinct = len(set(map(file_name, paths))) == len(paths)
    labels = [file_name(path) if are_distinct else format_address(path) for path in paths]
    first = {_key(name, same_case): (name, type_) for name, type_ in files[0][1].items()} if files else {}
    differences: list[str] = []
    for label, (_, columns) in zip(labels[1:], files[1:], strict=True):
        current = {_key(name, same_case): (name, type_) for name, type_ in columns.items()}
        differences += _describe_differences(labels[0], first, label, current)
    if not differences:
        return
    examples = differences[:_MAX_DIFFERENCES]
    if more := len(differences) - len(examples):
        examples.append(f"and {more:,} more {'difference' if more == 1 else 'differences'}")
    raise SourceError(
        f"source.files: the files do not have the same columns: {'; '.join(examples)}. Give all files the same "
        "columns, with the same types, or name only files of one layout"
    )


def _key(name: str, same_case: bool) -> str:
    return name if same_case else name.lower()


def _describe_differences(
    first_label: str,
    first: Mapping[str, tuple[str, str | None]],
    label: str,
    columns: Mapping[str, tuple[str, str | None]],
) -> Iterator[str]:
    if missing := [name for key, (name, _) in first.items() if key not in columns]:
        yield f"{label} lacks {quote_names(missing)} of {first_label}"
    if extra := [name for key, (name, _) in columns.items() if key not in first]:
        yield f"{label} has {quote_names(extra)}, which {first_label} lacks"
    for key, (name, type_) in first.items():
        current_type = columns[key][1] if key in columns else None
        if None not in (type_, current_type) and type_ != current_type:
            yield f"{name!r} is {type_} in {first_label} and {current_type} in {label}"
