"""Match the columns of a source with the attributes of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from sqlanon.engines.base import Engine
from sqlanon.engines.dialects.kinds import is_nested
from sqlanon.errors import SourceError
from sqlanon.policy import Policy
from sqlanon.requirements import examined_sensitive_attributes
from sqlanon.sources.source import Source
from sqlanon.support.coding import Column
from sqlanon.support.expressions import col, is_null, template
from sqlanon.support.fields import nearest_word
from sqlanon.support.names import EARLIER_RELEASES_COLUMN


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


def _suggest_columns(missing: Sequence[str], by_lower: Mapping[str, str]) -> str:
    """Suggest columns for names that no column has."""
    guesses = {name: by_lower[guess] for name in missing if (guess := nearest_word(name, by_lower))}
    if not guesses:
        return "check the spelling"
    if len(missing) == 1:
        return f"did you mean {guesses[missing[0]]!r}?"
    return f"did you mean {', '.join(f'{guess!r} for {name!r}' for name, guess in guesses.items())}?"


def match_columns(policy: Policy, source: Source) -> Columns:
    """Match columns with attributes by name, ignoring case."""
    by_lower = {name.lower(): name for name in source.columns}
    person = policy.source.person_column
    missing = [name for name in policy.attributes if name.lower() not in by_lower]
    key = policy.source.key
    risk_columns = policy.risk.columns if policy.risk else {}
    declared = {
        name.lower() for name in (*policy.attributes, *([person] if person else []), *key, *risk_columns.values())
    }
    undeclared = [name for name in source.columns if name.lower() not in declared]
    problems = []
    if missing:
        problems.append(
            f"attributes without a column in the source: {quote_names(missing)}; {_suggest_columns(missing, by_lower)}"
        )
    if person and person.lower() not in by_lower:
        problems.append(f"source.person: there is no column {person!r}; {_suggest_columns([person], by_lower)}")
    if keyless := [name for name in key if name.lower() not in by_lower]:
        problems.append(f"source.key: there is no column {quote_names(keyless)}; {_suggest_columns(keyless, by_lower)}")
    problems += [
        f"risk.{key}: there is no column {name!r}; {_suggest_columns([name], by_lower)}"
        for key, name in risk_columns.items()
        if name.lower() not in by_lower
    ]
    if undeclared and policy.source.undeclared == "error":
        problems.append(
            f"columns without a role: {quote_names(undeclared)}; "
            'declare them under [attributes], or set undeclared = "drop" under [source]'
        )
    if problems:
        title = "the columns of the source do not match the policy:"
        raise SourceError(problems[0] if len(problems) == 1 else "\n  - ".join([title, *problems]))
    matched = {name: by_lower[name.lower()] for name in policy.attributes}
    looked_at = examined_sensitive_attributes(policy.privacy, policy.attributes_with_role("sensitive"))
    # Nested values have no hierarchy; their parts may.
    nested = [name for name in (*policy.generalized_attributes, *looked_at) if is_nested(source.columns[matched[name]])]
    if nested:
        raise SourceError(
            "quasi-identifiers, and sensitive attributes of requirements, cannot have nested types: "
            f"{quote_names(nested)}; make their parts columns, with query = ... under [source] or in the data frame"
        )
    return Columns(
        matched,
        tuple(matched[name] for name in policy.generalized_attributes),
        tuple(matched[name] for name in policy.noisy_attributes),
        tuple(matched[name] for name in looked_at),
        looked_at,
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
            f"population: there is no column {quote_names(missing)}; rename columns with query = ... under [population]"
        )
    return tuple(by_lower[name.lower()] for name in policy.generalized_attributes), by_lower[
        person.lower()
    ] if person else None


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


_REPEATED_KEYS = template("""
    SELECT count(*) FILTER (WHERE n > 1 AND NOT missing), coalesce(sum(n) FILTER (WHERE missing), 0)
    FROM (SELECT :missing AS missing, count(*) AS n FROM :source GROUP BY :key) AS k
""")


def repeated_keys_query(source: exp.Expr, key: Sequence[str]) -> exp.Select:
    """One row: the number of keys that several rows have, and of rows without a complete key."""
    columns = [col(name) for name in key]
    missing = exp.or_(*(is_null(column.copy()) for column in columns), copy=False)
    return _REPEATED_KEYS(missing=missing, source=source, key=columns)


def refuse_repeated_keys(engine: Engine, source: Source, key: Sequence[str]) -> None:
    """Refuse a key that several rows have, or that some rows lack."""
    columns = {name.lower(): name for name in source.columns}
    key_columns = [columns[name.lower()] for name in key if name.lower() in columns]
    if len(key_columns) < len(key):
        return  # `match_columns` reports missing columns
    repeated, without = engine.rows(repeated_keys_query(source.relation, key_columns))[0]
    if repeated or without:
        raise SourceError(
            f"source.key: {repeated:,} keys belong to several rows, and {without:,} rows have no key; name columns "
            "that identify each row"
        )
