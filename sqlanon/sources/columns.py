"""The columns of a source, matched with a policy: which attribute is which, and what is released."""

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
from sqlanon.support.fields import nearest
from sqlanon.support.names import EARLIER


@dataclass(frozen=True)
class Columns:
    by_attribute: Mapping[str, str]  # the column of each attribute
    # the quasi-identifiers with a hierarchy, those with noise, and the sensitive attributes that requirements look
    # at; for joint l-diversity all sensitive ones. By their columns, in the policy's order
    generalized: tuple[str, ...]
    noisy: tuple[str, ...]
    sensitive: tuple[str, ...]
    sensitive_names: tuple[str, ...]  # the sensitive attributes' names in the policy
    person: str | None  # the column that tells persons apart, or None: each row is a person
    key: tuple[str, ...] = ()  # the columns that tell rows apart, if the policy names them
    # what is released, in the source's order: everything with a role but the identifying; not the person, nor a key,
    # nor the marks of earlier releases
    released: tuple[Column, ...] = ()
    # the columns of sampling weights and of households that `risk` looks at, if the policy names them
    weights: str | None = None
    household: str | None = None


def _meant(missing: Sequence[str], by_lower: Mapping[str, str]) -> str:
    """The columns that are probably meant by names that no column has."""
    guesses = {name: by_lower[guess] for name in missing if (guess := nearest(name, by_lower))}
    if not guesses:
        return "check the spelling"
    if len(missing) == 1:
        return f"did you mean {guesses[missing[0]]!r}?"
    return f"did you mean {', '.join(f'{guess!r} for {name!r}' for name, guess in guesses.items())}?"


def match_columns(policy: Policy, source: Source) -> Columns:
    """Find the source's columns: by their names, whatever the case."""
    by_lower = {name.lower(): name for name in source.columns}
    person = policy.source.person_column
    missing = [name for name in policy.attributes if name.lower() not in by_lower]
    key = policy.source.key
    asked = policy.risk.columns if policy.risk else {}
    declared = {name.lower() for name in (*policy.attributes, *([person] if person else []), *key, *asked.values())}
    undeclared = [name for name in source.columns if name.lower() not in declared]
    wrong = []
    if missing:
        wrong.append(f"attributes without a column in the source: {quote_names(missing)}; {_meant(missing, by_lower)}")
    if person and person.lower() not in by_lower:
        wrong.append(f"source.person: there is no column {person!r}; {_meant([person], by_lower)}")
    if keyless := [name for name in key if name.lower() not in by_lower]:
        wrong.append(f"source.key: there is no column {quote_names(keyless)}; {_meant(keyless, by_lower)}")
    wrong += [
        f"risk.{what}: there is no column {name!r}; {_meant([name], by_lower)}"
        for what, name in asked.items()
        if name.lower() not in by_lower
    ]
    if undeclared and policy.source.undeclared == "error":
        wrong.append(
            f"columns without a role: {quote_names(undeclared)}; "
            'declare them under [attributes], or set undeclared = "drop" under [source]'
        )
    if wrong:
        several = "the columns of the source do not match the policy:"
        raise SourceError(wrong[0] if len(wrong) == 1 else "\n  - ".join([several, *wrong]))
    matched = {name: by_lower[name.lower()] for name in policy.attributes}
    looked_at = examined_sensitive_attributes(policy.privacy, policy.attributes_with_role("sensitive"))
    # Nested values have no hierarchy: their parts do.
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
        _released(policy, source, matched),
        **{what: by_lower[name.lower()] for what, name in asked.items()},
    )


def match_population_columns(policy: Policy, population: Source) -> tuple[tuple[str, ...], str | None]:
    """The columns of the quasi-identifiers in the population table, and the one of its persons."""
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


def _released(policy: Policy, source: Source, matched: Mapping[str, str]) -> tuple[Column, ...]:
    by_column = {column: name for name, column in matched.items()}
    number = {name: i for i, name in enumerate(policy.generalized_attributes)}
    return tuple(
        Column(column, number.get(by_column[column]))
        for column in source.columns
        if column in by_column and column != EARLIER and policy.attributes[by_column[column]].role != "identifying"
    )


_REPEATED_KEYS = template("""
    SELECT count(*) FILTER (WHERE n > 1 AND NOT missing), coalesce(sum(n) FILTER (WHERE missing), 0)
    FROM (SELECT :missing AS missing, count(*) AS n FROM :source GROUP BY :key) AS k
""")


def repeated_keys_query(source: exp.Expr, key: Sequence[str]) -> exp.Select:
    """One row: the keys that several rows have, and the rows without a whole key."""
    columns = [col(name) for name in key]
    missing = exp.or_(*(is_null(one.copy()) for one in columns), copy=False)
    return _REPEATED_KEYS(missing=missing, source=source, key=columns)


def refuse_repeated_keys(engine: Engine, source: Source, key: Sequence[str]) -> None:
    """Refuse a key that several rows have, or that rows are without."""
    columns = {name.lower(): name for name in source.columns}
    there = [columns[name.lower()] for name in key if name.lower() in columns]
    if len(there) < len(key):
        return  # said with everything else that is missing
    repeated, without = engine.rows(repeated_keys_query(source.relation, there))[0]
    if repeated or without:
        raise SourceError(
            f"source.key: {repeated:,} keys belong to several rows, and {without:,} rows have no key; name columns "
            "that identify each row"
        )
