"""Incompatible features of a policy, as one table: `TABLE`.

A row names two features that cannot be combined, the place of the problem, and the way out. The checks of policies,
their messages and the page docs/reference/compatibility.md (`page`) are made from the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sqlanon.errors import Problem
from sqlanon.measures import MEASURES
from sqlanon.policy.problems import join_key
from sqlanon.policy.rules import TableRule
from sqlanon.policy.strategies import STRATEGIES
from sqlanon.requirements import estimated_requirements
from sqlanon.requirements.registry import requirement_types
from sqlanon.support.names import table_parts


@dataclass(frozen=True)
class PolicySections:
    """The valid sections of a policy; None: the section is missing or invalid."""

    source: Any = None
    population: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    privacy: Any = None
    risk: Any = None
    search: Any = None
    release: Any = None
    catalog: Any = None
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The sections as written, valid or not."""
    complete: bool = True
    """All attributes are valid."""
    privacy_keys_known: bool = True
    """All keys of ``[privacy]`` are known."""
    exported: bool = False
    """Statements for a warehouse are exported, whatever the source is."""
    connected: Mapping[str, Any] = field(default_factory=dict)
    """The connected source that replaces the policy's."""

    def get(self, path: str) -> Any:
        """The value at ``section.key``; None if it is missing."""
        section, _, key = path.partition(".")
        part = getattr(self, section)
        return getattr(part, key) if part is not None and key else part

    @property
    def requirements(self) -> set[str]:
        return set() if self.privacy is None else set(self.privacy.requirements)

    def writes(self, path: str) -> bool:
        """Whether a section or its key is written, valid or not."""
        section, _, key = path.partition(".")
        part = self.written.get(section)
        return part is not None and (not key or part.get(key) is not None)


def collect_sections(parts: Mapping[str, Any], **facts: Any) -> PolicySections:
    sections = {name: part for name, part in parts.items() if part is not None and name != "about"}
    return PolicySections(**sections, **facts)


@dataclass(frozen=True)
class Use:
    """A place where a policy uses a feature, with the words that messages quote."""

    place: str
    words: Mapping[str, str] = field(default_factory=dict)
    position: int = 0
    """The position of the attribute, for a feature of attributes."""


@dataclass(frozen=True)
class Feature:
    """A feature that a policy can use, or an operation on the policy."""

    label: str
    find_uses: Callable[[PolicySections], Iterable[Use]]
    of_attributes: bool = False


@dataclass(frozen=True)
class Row:
    """Two features that cannot be combined. The message may quote the words of both uses."""

    feature: Feature
    beside: Feature
    message: str
    place: str = ""
    """The place of the problem; by default, that of the feature."""

    def problems(self, policy: PolicySections) -> Iterator[tuple[int, Problem]]:
        """One problem for each pair of uses, with the position of its attribute."""
        uses_beside = list(self.beside.find_uses(policy))
        for use in self.feature.find_uses(policy) if uses_beside else ():
            for use_beside in uses_beside:
                message = self.message.format(**{**use_beside.words, **use.words})
                yield use.position, Problem(self.place or use.place, message)


def find_conflicts(rows: Sequence[Row], policy: PolicySections) -> Iterator[Problem]:
    """The conflicts in a policy, row by row; for adjacent rows on attributes, attribute by attribute."""
    for _, group in groupby(rows, key=lambda row: row.feature.of_attributes):
        problems = [positioned for row in group for positioned in row.problems(policy)]
        yield from (problem for _, problem in sorted(problems, key=lambda positioned: positioned[0]))


# --- Features of keys and sections


def _feature_at(label: str, place: str, condition: Callable[[PolicySections], object]) -> Feature:
    """A feature with one place."""
    return Feature(label, lambda policy: [Use(place)] if condition(policy) else [])


def _setting(*paths: str) -> Feature:
    """Any of some keys with a value that is not empty."""
    return Feature(_join_paths(paths), lambda policy: [Use(path) for path in paths if policy.get(path)])


def _present(*paths: str) -> Feature:
    """Any of some keys or sections."""
    return Feature(_join_paths(paths), lambda policy: [Use(path) for path in paths if policy.get(path) is not None])


def _join_paths(paths: Sequence[str]) -> str:
    *first, last = (f"`{path}`" if "." in path else f"`[{path}]`" for path in paths)
    return f"{', '.join(first)} or {last}" if first else last


def _missing(path: str) -> Feature:
    return _feature_at(f"no `{path}`", path, lambda policy: not policy.get(path))


def _operation(label: str) -> Feature:
    """An operation on any policy."""
    return Feature(label, lambda policy: [Use("")])


PERSON = _feature_at("`source.person`", "source.person", lambda policy: isinstance(policy.get("source.person"), str))
KEY = _setting("source.key")
QUERY = _setting("source.query")
RISK = _present("risk")
POPULATION = _present("population")
MASK = _feature_at(
    '`release.suppressed = "mask"`', "release.suppressed", lambda policy: policy.get("release.suppressed") == "mask"
)
AFTER = _setting("release.after")
DECOYS = _setting("release.decoys")
EPSILON_TOTAL = _setting("privacy.epsilon_total")
DRAFT = _setting("release.draft")
KEEP = _feature_at(
    "`release.keep` of several versions", "release.keep", lambda policy: (policy.get("release.keep") or 1) > 1
)
STORAGE_VERSION = _feature_at(
    "`release.storage_version`",
    "release.storage_version",
    lambda policy: policy.release is not None and "storage_version" in policy.release.model_fields_set,
)
NO_LEDGER = _feature_at(
    "`release.ledger = false`", "release.ledger", lambda policy: policy.get("release.ledger") is False
)
CONFIDENCE = _present("privacy.confidence")
SMALL_K = _feature_at(
    "no `privacy.k`, or `k = 1`", "privacy.k", lambda policy: policy.privacy is not None and (policy.privacy.k or 1) < 2
)
LIVE_VIEW = _operation("a live view")
EXTENSION = _operation("a release that grows")
RELEASE_OUTSIDE_FILE = _feature_at(
    "a release outside a file",
    "release",
    lambda policy: not (policy.get("release.database") or policy.get("release.file")),
)
FILES = _feature_at(
    "`source.files`",
    "source.files",
    lambda policy: policy.connected.get("files") or (policy.get("source.files") and "database" not in policy.connected),
)


# --- Features of [search]


def _search(label: str, key: str, condition: Callable[[Any], object], **words: Callable[[Any], str]) -> Feature:
    def find_uses(policy: PolicySections) -> Iterator[Use]:
        search = policy.search
        if search is not None and condition(search):
            names = {"strategy": search.strategy, "measure": search.measure, "aggregate": search.aggregate}
            yield Use(f"search.{key}", names | {name: describe(search) for name, describe in words.items()})

    return Feature(label, find_uses)


def _search_key(key: str) -> Feature:
    """A key of ``[search]`` that is set, also to its default."""
    return _search(f"`search.{key}`", key, lambda search: key in search.model_fields_set)


def _strategy(
    label: str, trait: str, has: bool = True, between: str = " and ", **words: Callable[[Any], str]
) -> Feature:
    """A strategy with a trait, or without it; messages quote the strategies with it as ``able``."""

    def list_able() -> list[str]:
        return [name for name, strategy in STRATEGIES.items() if getattr(strategy.traits, trait)]

    return _search(
        _list_names(label, list_able()),
        "strategy",
        lambda search: bool(getattr(search.traits, trait)) is has,
        able=lambda search: between.join(list_able()),
        **words,
    )


def _measure(label: str, trait: str, has: bool = True) -> Feature:
    """A measure with a trait, or without it; messages quote the measures with it as ``able``."""

    def list_measures(has: bool) -> list[str]:
        return [name for name, measure in MEASURES.items() if getattr(measure, trait) is has]

    return _search(
        _list_names(label, list_measures(has)),
        "measure",
        lambda search: search.measure in list_measures(has),
        able=lambda search: " or ".join(list_measures(True)),
    )


def _list_names(label: str, names: Iterable[str]) -> str:
    return f"{label} ({', '.join(f'`{name}`' for name in names)})"


def _describe_local(search: Any) -> str:
    return f"strategy {search.strategy}" if search.traits.is_local else 'suppression = "cells"'


def _find_local(policy: PolicySections) -> Iterator[Use]:
    search = policy.search
    if search is not None and search.is_local:
        key = "suppression" if search.suppression == "cells" else "strategy"
        yield Use(f"search.{key}", {"local": _describe_local(search), "strategy": search.strategy})


LOCAL = Feature('a strategy below the full domain, or `search.suppression = "cells"`', _find_local)
LOCAL_STRATEGY = _strategy("a strategy below the full domain", "is_local")
SPLITS_EQUAL_ROWS = _strategy("a strategy that may split equal rows", "may_split_equal_rows")
NO_SUMMARIES = _strategy("a strategy other than those that summarize", "summarizes", has=False)
NO_CUTS = _strategy("a strategy other than those with cuts", "splits_classes", has=False)
COMBINATIONS_ONLY = _strategy("a strategy that guarantees combinations", "protects_combinations_only")
NOT_COMBINATIONS = _strategy(
    "a strategy other than those for combinations", "protects_combinations_only", has=False, between=" or "
)
LIMITED_STRATEGY = _strategy(
    "a strategy that supports some requirements only",
    "supported_requirements",
    local=_describe_local,
    known=lambda search: " and ".join(sorted(search.traits.supported_requirements or ())),
)
CELLS = _search('`search.suppression = "cells"`', "suppression", lambda search: search.suppression == "cells")
AGGREGATE = _search_key("aggregate")
SUMMARY = _search_key("summary")
ENDS = _search_key("ends")
CUTS = _search_key("cuts")
LISTS = _search('`search.sets = "list"`', "sets", lambda search: search.sets == "list")
NO_SETS = _search("no sets", "summary", lambda search: search.summary != "set" or not search.traits.summarizes)
LEVEL_MEASURE = _measure("a measure of one level for all rows", "needs_levels")
MEASURE_WITHOUT_FIGURES = _measure("a measure without a figure for each attribute", "aggregates", has=False)
CLASS_MEASURE = _measure("a measure of classes", "counts_classes")
SOURCE_MEASURE = _measure("a measure of one source", "compares_with_source")
OTHER_AGGREGATE = _search(
    "an aggregate other than mean and sum",
    "aggregate",
    lambda search: MEASURES[search.measure].aggregates and search.aggregate not in ("mean", "sum"),
    able=lambda search: " or ".join(name for name, measure in MEASURES.items() if measure.aggregates),
)


# --- Features of [attributes]


def _attribute(key: str, condition: Callable[[Any], object]) -> Feature:
    def find_uses(policy: PolicySections) -> Iterator[Use]:
        for position, (name, attribute) in enumerate(policy.attributes.items()):
            if condition(attribute):
                yield Use(join_key(join_key("attributes", name), key), position=position)

    return Feature(f"`attributes.*.{key}`", find_uses, of_attributes=True)


WEIGHT = _attribute("weight", lambda attribute: attribute.weight != 1)
IDENTIFICATION = _attribute("identification", lambda attribute: attribute.identification != "identifying")
ATTRIBUTE_NOISE = _attribute("noise", lambda attribute: attribute.noise is not None)
TABLE_HIERARCHY = _attribute(
    "hierarchy", lambda attribute: any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ())
)
UNKNOWN_WITH_NOISE = _attribute("on_unknown", lambda attribute: attribute.noise and attribute.on_unknown == "suppress")


def _noisy_attributes(policy: PolicySections) -> list[str]:
    return [name for name, attribute in policy.attributes.items() if attribute.noise is not None]


NOISE = _feature_at("noise", "attributes", _noisy_attributes)
# An invalid attribute may be meant to have noise.
NO_NOISE = _feature_at("no noise", "attributes", lambda policy: policy.complete and not _noisy_attributes(policy))


# --- Features of [privacy]


def _keys_where(condition: Callable[[Any], bool]) -> list[str]:
    """The keys of requirements whose entry has a property."""
    return [type_.entry.key for type_ in requirement_types() if condition(type_.entry)]


def _population_keys() -> list[str]:
    return _keys_where(lambda entry: entry.scope == "population")


def _table_keys() -> list[str]:
    return _keys_where(lambda entry: entry.scope == "table")


def _whole_source_keys() -> list[str]:
    return _keys_where(lambda entry: entry.whole_source)


def _covering_keys() -> list[str]:
    return _keys_where(lambda entry: entry.scope == "population" and entry.whole_source)


def _person_keys() -> list[str]:
    return _keys_where(lambda entry: entry.compares_persons)


def _requirements(label: str, find_keys: Callable[[PolicySections], Iterable[str]]) -> Feature:
    def find_uses(policy: PolicySections) -> Iterator[Use]:
        for key in find_keys(policy):
            place = join_key("privacy", key)
            yield Use(place, {"requirement": place, "name": key})

    return Feature(label, find_uses)


def _written_requirements(label: str, list_keys: Callable[[], list[str]]) -> Feature:
    """Requirements as written: an invalid number does not hide a missing population."""
    return _requirements(
        _list_names(label, list_keys()), lambda policy: [key for key in list_keys() if policy.writes(f"privacy.{key}")]
    )


def _find_unsupported(policy: PolicySections) -> list[str]:
    supported = None if policy.search is None else policy.search.traits.supported_requirements
    if supported is None:
        return []
    return sorted(policy.requirements - supported - {*_population_keys(), *_table_keys()})


def _shields(policy: PolicySections) -> dict[str, Sequence[Any]]:
    """By key, the requirements on subsets of the quasi-identifiers."""
    keys = _keys_where(lambda entry: entry.subsets)
    return {key: shields for key in keys if policy.privacy is not None and (shields := getattr(policy.privacy, key))}


def _find_noisy_shields(policy: PolicySections) -> Iterator[Use]:
    noisy = _noisy_attributes(policy)
    for key, shields in _shields(policy).items():
        for i, shield in enumerate(shields):
            for j, name in enumerate(shield.quasi):
                if name in noisy:
                    yield Use(f"{join_key('privacy', key)}[{i}].quasi[{j}]", {"name": repr(name)})


def _find_decided(policy: PolicySections) -> Iterator[Use]:
    """Requirements that are decided before noise is drawn, and not again."""
    for key in _whole_source_keys():
        if key in policy.requirements:
            yield Use(join_key("privacy", key), {"decided": f"{key} was"})


def _find_decided_with_persons(policy: PolicySections) -> Iterator[Use]:
    yield from _find_decided(policy)
    if isinstance(policy.get("source.person"), str):
        for key in _shields(policy):
            yield Use(join_key("privacy", key), {"decided": "shields over persons were"})


POPULATION_REQUIREMENT = _requirements(
    _list_names("a requirement on a population", _population_keys()),
    lambda policy: sorted(policy.requirements & {*_population_keys()}),
)
TABLE_REQUIREMENT = _requirements(
    _list_names("a requirement on the whole table", _table_keys()),
    lambda policy: sorted(policy.requirements & {*_table_keys()}),
)
UNSUPPORTED_REQUIREMENT = _requirements("a requirement that the strategy does not support", _find_unsupported)
MORE_THAN_K = _requirements("a requirement other than `k`", lambda policy: sorted(policy.requirements - {"k"}))
ESTIMATE = _requirements(
    "an estimate of the population", lambda policy: estimated_requirements(policy.privacy) if policy.privacy else ()
)
NOISY_SHIELD = Feature("a shield over an attribute with noise", _find_noisy_shields)
DECIDED_BEFORE_NOISE = Feature(_list_names("a requirement on the whole source", _whole_source_keys()), _find_decided)
DECIDED_WITH_PERSONS = Feature(
    _list_names("a requirement on the whole source, or shields over persons", _whole_source_keys()),
    _find_decided_with_persons,
)
NEEDS_POPULATION = _written_requirements("a requirement on a population", _population_keys)
COVERING_REQUIREMENT = _written_requirements("a requirement on a population as a whole", _covering_keys)
COMPARES_PERSONS = _written_requirements("a requirement that compares persons with the population's", _person_keys)
NO_POPULATION = _feature_at("no `[population]`", "population", lambda policy: not policy.writes("population"))
WRITTEN_POPULATION = _feature_at("`[population]`", "population", lambda policy: policy.writes("population"))
WRITTEN_MASK = _feature_at(
    MASK.label, "release.suppressed", lambda policy: policy.written.get("release", {}).get("suppressed") == "mask"
)


def _find_unused_population(policy: PolicySections) -> Iterator[Use]:
    is_used = policy.writes("risk") or any(policy.writes(f"privacy.{key}") for key in _population_keys())
    if policy.written.get("privacy") and policy.privacy_keys_known and not is_used:
        yield Use("population", {"kinds": " and ".join(_population_keys())})


NO_POPULATION_USE = Feature("no requirement on a population, and no `[risk]`", _find_unused_population)


# --- Features of the place of rows and releases


def _find_remote(policy: PolicySections) -> Iterator[Use]:
    """A source whose rows sqlanon does not see."""
    source = policy.source
    if policy.exported or (source is not None and source.frequency_set):
        rows = "and sqlanon does not see the rows of a table in a warehouse"
        yield Use("source", {"where": "in a warehouse", "rows": rows})
    elif source is not None and source.postgres is not None:
        yield Use("source", {"where": "in PostgreSQL", "rows": "and the rows of a source in PostgreSQL never leave it"})
    elif source is not None and source.spark is not None:
        yield Use("source", {"where": "in Spark", "rows": "and the rows of a source in Spark never leave it"})


def _remote(label: str, *locations: str) -> Feature:
    """A remote source in some locations."""
    return Feature(label, lambda policy: [use for use in _find_remote(policy) if use.words["where"] in locations])


REMOTE_SOURCE = Feature("a source in PostgreSQL, in Spark or in a warehouse", _find_remote)
POSTGRES_OR_WAREHOUSE = _remote("a source in PostgreSQL or in a warehouse", "in PostgreSQL", "in a warehouse")
WAREHOUSE = _remote("a table in a warehouse", "in a warehouse")
SPARK_SOURCE = _remote("a source in Spark", "in Spark")
FREQUENCY_SET = _setting("source.frequency_set")
NO_KEY = _feature_at(
    "no `source.key`, where there could be one",
    "source.key",
    lambda policy: not policy.get("source.key") and not [*_find_remote(policy)],
)
NO_PERSON = _feature_at(
    "no `source.person`",
    "source",
    lambda policy: not policy.written.get("source", {}).get("person") and not [*_find_remote(policy)],
)
NO_PERSON_OF_POPULATION = _feature_at(
    "`[population]` without `person`",
    "population",
    lambda policy: policy.writes("population") and not policy.writes("population.person"),
)
POPULATION_OF_SOURCE = _feature_at(
    "`[population]` without a database or files",
    "population",
    lambda policy: policy.population is not None and policy.population.database is None and not policy.population.files,
)


def _find_release_in_source_schema(policy: PolicySections) -> Iterator[Use]:
    source, release = policy.source, policy.release
    if source is None or release is None:
        return
    source_schema = table_parts(source.table)[:-1][-1:] if source.table else ()
    release_schema = table_parts(release.table)[:1]
    same_server = source.postgres is not None and release.postgres == source.postgres
    in_postgres = same_server and source_schema == release_schema
    in_spark = source.spark is not None and release.spark and _lower(source_schema) == _lower(release_schema)
    if source_schema and (in_postgres or in_spark):
        yield Use("release.table", {"schema": repr(source_schema[0])})


def _lower(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]


def _releases_to_source(policy: PolicySections) -> bool:
    source, release = policy.get("source.table"), policy.get("release.table")
    return source is not None and release is not None and table_parts(source) == table_parts(release)


def _is_outside_spark(policy: PolicySections) -> object:
    """Whether the source names another location; a source without one may be connected as a Spark session."""
    source = policy.source
    return source is not None and source.spark is None and (source.database or source.postgres or source.files)


SOURCE_SCHEMA_MESSAGE = (
    "is in the source's schema {schema}: readers of the release would be let into that one; use another"
)
RELEASE_IN_SOURCE_SCHEMA = Feature("`release.table` in the schema of the source", _find_release_in_source_schema)
SPARK_RELEASE = _setting("release.spark")
NON_SPARK_SOURCE = _feature_at("a source that is not in Spark", "source", _is_outside_spark)
UNNAMED_RELEASE = _feature_at(
    "`release.table` that names no table",
    "release.table",
    lambda policy: policy.release and not table_parts(policy.release.table),
)
RELEASE_IS_SOURCE = _feature_at("`release.table` that is the source", "release.table", _releases_to_source)


# --- The table

FULL_DOMAIN_ADVICE = "use a full-domain strategy, such as optimal"
AFTER_ADVICE = "leave `after` out: the ledger then refuses a release that is not safe beside the earlier ones"
DECOYS_ADVICE = "leave decoys out: the rows of the classes that they would fill are suppressed then"

SEARCH = (
    Row(AGGREGATE, MEASURE_WITHOUT_FIGURES, "measure {measure} has no aggregate: leave it out, or use {able}"),
    Row(SUMMARY, NO_SUMMARIES, "applies to strategy {able}, not to {strategy}: leave it out"),
    Row(ENDS, NO_SUMMARIES, "applies to strategy {able}, not to {strategy}: leave it out"),
    Row(LISTS, NO_SETS, 'applies to released sets: use strategy = "mondrian" with summary = "set", or leave it out'),
    Row(CUTS, NO_CUTS, "applies to strategy {able}, not to {strategy}: leave it out"),
    Row(CELLS, LOCAL_STRATEGY, "strategy {strategy} already recodes below the full domain: leave it out"),
    Row(
        LEVEL_MEASURE,
        LOCAL_STRATEGY,
        "measure {measure} needs one level per attribute, and strategy {strategy} mixes levels: use loss, or a "
        "full-domain strategy",
    ),
    Row(
        LEVEL_MEASURE,
        CELLS,
        "measure {measure} needs one level per attribute, and blank cells have another: use loss, for example",
    ),
)
VERSIONS = (
    Row(KEEP, _present("release.file"), "a Parquet file holds one version: use database = ... instead of file = ..."),
    Row(KEEP, _present("release.postgres"), "PostgreSQL keeps one version: leave it out"),
    Row(KEEP, _setting("release.spark"), "Spark keeps one version: leave it out"),
    Row(STORAGE_VERSION, _present("release.file"), "a Parquet file has none: leave it out"),
    Row(STORAGE_VERSION, _present("release.postgres"), "applies to a release in a DuckDB file: leave it out"),
    Row(STORAGE_VERSION, _setting("release.spark"), "applies to a release in a DuckDB file: leave it out"),
    Row(KEEP, NO_LEDGER, "kept versions are compared through the ledger: leave ledger = false out"),
)
WEIGHTS = (
    Row(
        WEIGHT,
        MEASURE_WITHOUT_FIGURES,
        "measure {measure} has no weights: leave it out, or use {able} with mean or sum",
    ),
    Row(WEIGHT, OTHER_AGGREGATE, "aggregate {aggregate} has no weights: leave it out, or use {able} with mean or sum"),
)
STRATEGY_SUPPORT = (
    Row(
        LISTS, _present("release.postgres"), "a release in PostgreSQL has no lists: leave it out, or publish to a file"
    ),
    Row(LISTS, _setting("release.spark"), "a release in Spark has no lists: leave it out, or publish to a file"),
    Row(POPULATION_REQUIREMENT, LOCAL, "{local} does not use a population: " + FULL_DOMAIN_ADVICE),
    Row(
        TABLE_REQUIREMENT,
        LOCAL,
        "{local} decides class by class, and this requirement is about the whole table: " + FULL_DOMAIN_ADVICE,
    ),
    Row(UNSUPPORTED_REQUIREMENT, LIMITED_STRATEGY, "{local} supports only {known}: " + FULL_DOMAIN_ADVICE),
    Row(
        NO_KEY,
        SPLITS_EQUAL_ROWS,
        "is missing: strategy {strategy} divides equal rows by it; add the columns that identify a row, such as "
        'key = "id"',
    ),
    Row(
        PERSON,
        SPLITS_EQUAL_ROWS,
        "strategy {strategy} counts rows, so a class of k rows may be of one person: use another strategy, such as "
        "optimal, local or mondrian",
    ),
)
IDENTIFICATIONS = (
    Row(IDENTIFICATION, NOT_COMBINATIONS, "applies to strategy {able}, not to {strategy}: leave it out"),
)
POPULATIONS = (
    Row(
        NEEDS_POPULATION,
        NO_POPULATION,
        "needs a population: add [population] with table = ..., query = ... or files = ...",
    ),
    Row(COMPARES_PERSONS, NO_PERSON, "compares persons: add person = ... to [source]"),
    Row(COMPARES_PERSONS, NO_PERSON_OF_POPULATION, "compares persons: add person = ... to [population]"),
    Row(
        WRITTEN_POPULATION,
        NO_POPULATION_USE,
        "is not used: only {kinds} use it, and `risk` with a [risk] section; add one of them under [privacy], or leave "
        "the section out",
    ),
    Row(
        WRITTEN_MASK,
        COVERING_REQUIREMENT,
        'a masked class cannot be compared with a class of the population: with {requirement}, use "drop"',
    ),
)
BUDGETS = (
    Row(
        _present("privacy.epsilon", "privacy.epsilon_total", "privacy.linkable_noise", "privacy.confidence"),
        NO_NOISE,
        "applies to attributes with noise, and no attribute has noise: add noise = {{}} to one, or leave it out",
    ),
)
WITH_NOISE = (
    Row(SMALL_K, NOISE, "noise hides a record among the others of its class: add k = 5, for example"),
    Row(
        NOISY_SHIELD,
        NOISE,
        "{name} has noise, and k_anonymity is over generalized attributes: give it a hierarchy; a shield without it "
        "does not count who shares its values",
    ),
    Row(
        COMBINATIONS_ONLY,
        NOISE,
        "noise needs classes of k rows, which {strategy} does not guarantee: use optimal, for example",
    ),
)
LATE_SUPPRESSION = (
    Row(
        CONFIDENCE,
        PERSON,
        "counts rows, and source.person counts persons: give the attribute a hierarchy in place of noise; without "
        "confidence, the release does not promise that k records are near a noisy one",
    ),
    Row(
        UNKNOWN_WITH_NOISE,
        DECIDED_WITH_PERSONS,
        "suppresses rows after {decided} decided: exclude these rows with query = ... under [source]",
    ),
    Row(
        CONFIDENCE,
        DECIDED_BEFORE_NOISE,
        "suppresses rows after {decided} decided: give the attribute a hierarchy in place of noise; without "
        "confidence, the release does not promise that k records are near a noisy one",
    ),
)
EARLIER_RELEASES = (
    Row(AFTER, LOCAL, "{local} has no levels to compare with an earlier release: use a full-domain strategy"),
    Row(AFTER, CLASS_MEASURE, "measure {measure} counts classes, and `after` splits them: use loss, for example"),
    Row(AFTER, MASK, 'masked rows would reveal rows that no release has shown: use suppressed = "drop"'),
    Row(AFTER, POPULATION, "requirements with a population cannot be checked across releases: " + AFTER_ADVICE),
    Row(AFTER, ESTIMATE, "population uniqueness is estimated from whole classes: " + AFTER_ADVICE),
    Row(AFTER, NOISE, "noise is drawn anew in each release: " + AFTER_ADVICE),
)
LEDGER_FEATURES = (
    Row(AFTER, _missing("catalog"), "needs the ledger, which is in the catalog: add [catalog] database = ..."),
    Row(
        EPSILON_TOTAL,
        _missing("catalog"),
        "needs the ledger, which adds up the noise of all releases: add [catalog] database = ...; without it, readers "
        "of several releases can average the noise away",
    ),
    Row(
        KEEP,
        _missing("catalog"),
        "needs the ledger, which compares the versions before readers do: add [catalog] database = ...; without it, "
        "two versions can single out the persons who came or left in between",
    ),
)
WITH_DECOYS = (
    Row(SMALL_K, DECOYS, "decoys fill classes up to k rows: add k = 5, for example"),
    Row(
        DECOYS,
        MORE_THAN_K,
        "work with k alone: decoys, which are not persons, would decide whether {requirement} holds; " + DECOYS_ADVICE,
    ),
    Row(DECOYS, LOCAL, "{local} has no levels above a class to take values from: use a full-domain strategy"),
    Row(DECOYS, NOISE, "noise hides a record among real records, and decoys are not real: " + DECOYS_ADVICE),
    Row(DECOYS, PERSON, "are not persons, and source.person counts persons: " + DECOYS_ADVICE),
    Row(DECOYS, POPULATION, "are not in the population that classes are compared with: " + DECOYS_ADVICE),
    Row(DECOYS, MASK, 'fill the classes whose rows would be masked: use suppressed = "drop"'),
    Row(DECOYS, AFTER, "are missing from earlier releases, which would reveal them: " + DECOYS_ADVICE),
)
REMOTE_SOURCES = (
    Row(
        PERSON,
        WAREHOUSE,
        "a warehouse counts rows, so a class of k rows may be of one person: anonymize the table where persons are "
        "counted (DuckDB, PostgreSQL or Spark), or make it one row a person",
    ),
    Row(
        COMPARES_PERSONS,
        REMOTE_SOURCE,
        "compares persons row by row, {rows}: anonymize a copy of the table in DuckDB; without it, released rows may "
        "be attributed to other people",
    ),
    Row(
        KEY,
        REMOTE_SOURCE,
        "keys are recorded row by row, {rows}: leave it out; `extend` and `after`, which need it, read rows as well",
    ),
    Row(ATTRIBUTE_NOISE, POSTGRES_OR_WAREHOUSE, "is drawn row by row, {rows}: give it a hierarchy"),
    Row(
        TABLE_HIERARCHY,
        REMOTE_SOURCE,
        "names a table of a DuckDB source, and this one is {where}: export it, and use file = ...",
    ),
    Row(RISK, REMOTE_SOURCE, "needs single rows, {rows}: leave it out, and measure the risk of a release"),
    Row(LISTS, REMOTE_SOURCE, "lists are made where sqlanon runs, {rows}: leave it out"),
    Row(LOCAL, POSTGRES_OR_WAREHOUSE, "{local} places rows one by one, {rows}: " + FULL_DOMAIN_ADVICE, place="search"),
    Row(
        SPLITS_EQUAL_ROWS,
        SPARK_SOURCE,
        "strategy {strategy} divides equal rows by their key, {rows}: " + FULL_DOMAIN_ADVICE,
    ),
    Row(
        POPULATION_OF_SOURCE,
        REMOTE_SOURCE,
        "a table of a source {where} cannot be the population: give database = ... or files = ...",
    ),
    Row(DECOYS, REMOTE_SOURCE, "are drawn among the rows, {rows}: " + DECOYS_ADVICE),
    Row(AFTER, REMOTE_SOURCE, "needs the rows of an earlier release, {rows}: " + AFTER_ADVICE),
    Row(RELEASE_IN_SOURCE_SCHEMA, REMOTE_SOURCE, SOURCE_SCHEMA_MESSAGE),
    Row(
        SPARK_RELEASE,
        NON_SPARK_SOURCE,
        "applies to a source in Spark, and this source is elsewhere: give database = ... or file = ...",
    ),
    Row(UNNAMED_RELEASE, WAREHOUSE, "must be table, schema.table or database.schema.table, as the warehouse has it"),
    Row(
        _setting("release.database", "release.file", "release.postgres", "release.spark"),
        FREQUENCY_SET,
        "a frequency set has no rows to release: leave it out, export the statement that creates the release there, "
        'and name that with table = "schema.name"',
    ),
    Row(KEEP, FREQUENCY_SET, "applies to a release in a separate database: leave it out"),
    Row(RELEASE_IS_SOURCE, FREQUENCY_SET, "is the source: name another table of the warehouse"),
)
PUBLISH_ADVICE = "publish a release with anonymize, which keeps it"
LIVE_VIEWS = (
    Row(FILES, LIVE_VIEW, "a view needs a database: load the files into a table"),
    Row(QUERY, LIVE_VIEW, "create a view with this query, and name it: table = ..."),
    Row(POPULATION, LIVE_VIEW, "may change while the view is read: " + PUBLISH_ADVICE),
    Row(POPULATION_REQUIREMENT, LIVE_VIEW, "needs a population, which a view does not read: " + PUBLISH_ADVICE),
    Row(
        TABLE_REQUIREMENT,
        LIVE_VIEW,
        "is about the whole table and suppresses nothing, so a view cannot keep it: " + PUBLISH_ADVICE,
    ),
    Row(LOCAL, LIVE_VIEW, "recodes below the full domain: a view shows one level of each attribute; use optimal"),
    Row(MASK, LIVE_VIEW, 'a view omits suppressed rows: use "drop"'),
    Row(AFTER, LIVE_VIEW, "a view changes with its table, and cannot be compared with earlier releases"),
    Row(DECOYS, LIVE_VIEW, "are drawn once, and a view is computed on each read: " + DECOYS_ADVICE),
    Row(
        ATTRIBUTE_NOISE,
        LIVE_VIEW,
        "noise that a view draws on each read can be averaged away: give the attribute a hierarchy",
    ),
)
EXTENSIONS = (
    Row(_missing("source.key"), EXTENSION, "is missing: name the columns that identify a row and never change"),
    Row(POPULATION, EXTENSION, "does not grow with the release: run anonymize again"),
    Row(LOCAL, EXTENSION, "recodes below the full domain: new rows have no level to be at", place="search.strategy"),
    Row(SOURCE_MEASURE, EXTENSION, "compares with one source, and an extended release has rows of several"),
    Row(_missing("catalog"), EXTENSION, "is missing: its ledger records what was released"),
    Row(RELEASE_OUTSIDE_FILE, EXTENSION, "only a release in a file can be extended"),
    Row(NOISE, EXTENSION, "noise is drawn once for all rows of a class: run anonymize again"),
    Row(
        ESTIMATE,
        EXTENSION,
        "is estimated from one source, and an extended release has rows of several: run anonymize again",
    ),
    Row(MASK, EXTENSION, 'masked rows cannot be taken back: use "drop"'),
    Row(KEEP, EXTENSION, "an extended release contains the one before: leave it out"),
    Row(DECOYS, EXTENSION, "decoys cannot be distinguished from rows: run anonymize again"),
    Row(DRAFT, EXTENSION, "a draft cannot be extended: publish a release first"),
)

TABLE: Mapping[str, Sequence[Row]] = {
    "Strategies, measures and weights": (*SEARCH, *WEIGHTS),
    "Requirements and strategies": (*STRATEGY_SUPPORT, *IDENTIFICATIONS),
    "Populations": POPULATIONS,
    "Noise": (*BUDGETS, *WITH_NOISE, *LATE_SUPPRESSION),
    "Earlier releases": (*EARLIER_RELEASES, *LEDGER_FEATURES),
    "Versions": VERSIONS,
    "Decoys": WITH_DECOYS,
    "Sources whose rows stay where they are": REMOTE_SOURCES,
    "Live views": LIVE_VIEWS,
    "Releases that grow": EXTENSIONS,
}
"""All rows, by topic."""


# --- The page


class _Placeholders(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "…"


def page() -> str:
    """The page docs/reference/compatibility.md."""
    parts = [
        """# What goes together

Features that a policy cannot combine, or that rule out an operation. Each row is a mistake of the policy, reported with
all others before any data is read; `…` stands for names that the message gives. The page is the table in
`sqlanon/policy/compatibility.py`, in Markdown.
"""
    ]
    for title, rows in TABLE.items():
        lines = ["| feature | does not go with | message |", "| --- | --- | --- |"]
        for row in rows:
            message = row.message.format_map(_Placeholders())
            lines.append(f"| {row.feature.label} | {row.beside.label} | {message} |")
        parts.append("\n".join([f"## {title}\n", *lines, ""]))
    return "\n".join(parts)
