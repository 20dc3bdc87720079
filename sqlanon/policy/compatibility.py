"""Incompatible features of a policy, as one table: `TABLE`.

A row names two features that cannot be combined, and the way out. The checks of policies, their messages and the page
docs/reference/compatibility.md (`page`) are made from the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from sqlanon.errors import Problem
from sqlanon.measures import MEASURES
from sqlanon.places.addresses import SERVER_NAMES
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
    raw: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # as written, valid or not
    attribute_names: Sequence[str] = ()  # all attributes, valid or not; empty if all are valid
    privacy_keys_known: bool = True  # all keys of ``[privacy]`` are known
    exported: bool = False  # statements for a warehouse are exported, whatever the source is
    connected: Mapping[str, Any] = field(default_factory=dict)  # the connected source that replaces the policy's

    def get(self, path: str) -> Any:
        """The value at ``section.key``; None if it is missing."""
        section, _, key = path.partition(".")
        part = getattr(self, section)
        return getattr(part, key) if part is not None and key else part

    def is_set(self, path: str) -> bool:
        """Whether a section is present, or a key differs from its default."""
        section, _, key = path.partition(".")
        part, value = getattr(self, section), self.get(path)
        return value is not None and not (key and value == type(part).model_fields[key].default)

    def writes(self, path: str) -> bool:
        """Whether a section or its key is written, valid or not."""
        section, _, key = path.partition(".")
        part = self.raw.get(section)
        return part is not None and (not key or part.get(key) is not None)

    @property
    def complete(self) -> bool:
        """Whether all attributes are valid."""
        return not self.attribute_names or len(self.attributes) == len(self.attribute_names)

    @property
    def requirements(self) -> set[str]:
        return set() if self.privacy is None else set(self.privacy.requirements)

    @property
    def noisy_attributes(self) -> list[str]:
        return [name for name, attribute in self.attributes.items() if attribute.noise is not None]

    @property
    def remote_engine(self) -> str | None:
        """The engine of a source whose rows sqlanon does not see."""
        if self.exported or self.get("source.frequency_set"):
            return "a warehouse"
        return next((name for key, name in SERVER_NAMES.items() if self.get(f"source.{key}") is not None), None)

    @property
    def words(self) -> dict[str, str]:
        """The words about the whole policy that messages quote."""
        engine, search = self.remote_engine, self.search
        never_leave = f"and the rows of a source in {engine} never leave it"
        unseen = "and sqlanon does not see the rows of a table in a warehouse"
        words = {"where": f"in {engine}", "rows": unseen if engine == "a warehouse" else never_leave}
        if search is not None:
            words |= {"strategy": search.strategy, "measure": search.measure, "aggregate": search.aggregate}
            words["known"] = " and ".join(sorted(search.traits.supported_requirements or ()))
            words["local"] = f"strategy {search.strategy}" if search.traits.is_local else 'suppression = "cells"'
        return words


def collect_sections(parts: Mapping[str, Any], **facts: Any) -> PolicySections:
    sections = {name: part for name, part in parts.items() if part is not None and name != "about"}
    return PolicySections(**sections, **facts)


@dataclass(frozen=True)
class Use:
    """A place where a policy uses a feature, with the words about it that messages quote."""

    place: str
    words: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Feature:
    """A feature that a policy can use, or an operation on the policy."""

    label: str
    find_uses: Callable[[PolicySections], Iterable[Use]]


@dataclass(frozen=True)
class Row:
    """Two features that cannot be combined. The problem is at the place of the first one."""

    feature: Feature
    conflicting: Feature
    message: str


def find_conflicts(rows: Sequence[Row], policy: PolicySections) -> Iterator[Problem]:
    """The conflicts in a policy, row by row."""
    for row in rows:
        for use, conflicting_use in product(row.feature.find_uses(policy), row.conflicting.find_uses(policy)):
            yield Problem(use.place, row.message.format(**{**policy.words, **conflicting_use.words, **use.words}))


# --- Features of keys and sections


def _feature(label: str, place: str, condition: Callable[[PolicySections], object]) -> Feature:
    """A feature with one place."""
    return Feature(label, lambda policy: [Use(place)] if condition(policy) else [])


def _keys(*paths: str, label: str = "") -> Feature:
    """Any of some sections, or of some keys with a value other than their default."""
    *first, last = (f"`{path}`" if "." in path else f"`[{path}]`" for path in paths)
    names = f"{', '.join(first)} or {last}" if first else last
    return Feature(label or names, lambda policy: [Use(path) for path in paths if policy.is_set(path)])


def _missing(path: str) -> Feature:
    return _feature(f"no `{path}`", path, lambda policy: not policy.get(path))


PERSON = _feature("`source.person`", "source.person", lambda policy: policy.get("source.person_column"))
KEY = _keys("source.key")
QUERY = _keys("source.query")
RISK = _keys("risk")
POPULATION = _keys("population")
MASK = _keys("release.suppressed", label='`release.suppressed = "mask"`')
AFTER = _keys("release.after")
DECOYS = _keys("release.decoys")
DRAFT = _keys("release.draft")
KEEP = _keys("release.keep", label="`release.keep` of several versions")
STORAGE_VERSION = _feature(
    "`release.storage_version`",
    "release.storage_version",
    lambda policy: policy.release is not None and "storage_version" in policy.release.model_fields_set,
)
NO_LEDGER = _keys("release.ledger", label="`release.ledger = false`")
FILE_RELEASE = _keys("release.file")
POSTGRES_RELEASE = _keys("release.postgres")
SPARK_RELEASE = _keys("release.spark")
CONFIDENCE = _keys("privacy.confidence")
EPSILON_TOTAL = _keys("privacy.epsilon_total")
NOISE_KEYS = _keys("privacy.epsilon", "privacy.epsilon_total", "privacy.linkable_noise", "privacy.confidence")
SMALL_K = _feature(
    "no `privacy.k`, or `k = 1`", "privacy.k", lambda policy: policy.privacy is not None and (policy.privacy.k or 1) < 2
)
NO_CATALOG = _missing("catalog")
LIVE_VIEW = Feature("a live view", lambda policy: [Use("")])
EXTENSION = Feature("a release that grows", lambda policy: [Use("")])
RELEASE_OUTSIDE_FILE = _feature(
    "a release outside a file",
    "release",
    lambda policy: not (policy.get("release.database") or policy.get("release.file")),
)
FILES = _feature(
    "`source.files`",
    "source.files",
    lambda policy: policy.connected.get("files") or (policy.get("source.files") and "database" not in policy.connected),
)


# --- Features of [search]


def _search(
    label: str, key: str, condition: Callable[[Any], object], list_supported: Callable[[], str] | None = None
) -> Feature:
    """A feature of ``[search]``; messages quote ``supported``."""

    def find_uses(policy: PolicySections) -> list[Use]:
        is_used = policy.search is not None and condition(policy.search)
        return [Use(f"search.{key}", {"supported": list_supported()} if list_supported else {})] if is_used else []

    return Feature(label, find_uses)


def _search_key(key: str) -> Feature:
    """A key of ``[search]`` that is set, also to its default."""
    return _search(f"`search.{key}`", key, lambda search: key in search.model_fields_set)


def _strategy(label: str, trait: str, has: bool = True, between: str = " and ") -> Feature:
    """A strategy with a trait, or without it; messages quote the strategies with it as ``supported``."""

    def list_supported() -> list[str]:
        return [name for name, strategy in STRATEGIES.items() if getattr(strategy.traits, trait)]

    return _search(
        _list_names(label, list_supported()),
        "strategy",
        lambda search: bool(getattr(search.traits, trait)) is has,
        lambda: between.join(list_supported()),
    )


def _measure(label: str, trait: str, has: bool = True) -> Feature:
    """A measure with a trait, or without it; messages quote the measures with it as ``supported``."""

    def list_measures(has: bool) -> list[str]:
        return [name for name, measure in MEASURES.items() if getattr(measure, trait) is has]

    return _search(
        _list_names(label, list_measures(has)),
        "measure",
        lambda search: search.measure in list_measures(has),
        lambda: " or ".join(list_measures(True)),
    )


def _list_names(label: str, names: Iterable[str]) -> str:
    return f"{label} ({', '.join(f'`{name}`' for name in names)})"


def _local(place: str = "") -> Feature:
    def find_uses(policy: PolicySections) -> list[Use]:
        if policy.search is None or not policy.search.is_local:
            return []
        return [Use(place or f"search.{'suppression' if policy.search.suppression == 'cells' else 'strategy'}")]

    return Feature('a strategy below the full domain, or `search.suppression = "cells"`', find_uses)


LOCAL = _local()
LOCAL_STRATEGY = _strategy("a strategy below the full domain", "is_local")
SPLITS_EQUAL_ROWS = _strategy("a strategy that may split equal rows", "may_split_equal_rows")
NO_SUMMARIES = _strategy("a strategy other than those that summarize", "summarizes", has=False)
NO_CUTS = _strategy("a strategy other than those with cuts", "splits_classes", has=False)
COMBINATIONS_ONLY = _strategy("a strategy that guarantees combinations", "protects_combinations_only")
NOT_COMBINATIONS = _strategy(
    "a strategy other than those for combinations", "protects_combinations_only", has=False, between=" or "
)
LIMITED_STRATEGY = _strategy("a strategy that supports some requirements only", "supported_requirements")
CELLS = _search('`search.suppression = "cells"`', "suppression", lambda search: search.suppression == "cells")
AGGREGATE, SUMMARY, ENDS, CUTS = map(_search_key, ("aggregate", "summary", "ends", "cuts"))
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
    lambda: " or ".join(name for name, measure in MEASURES.items() if measure.aggregates),
)


# --- Features of [attributes]


def _attribute(key: str, condition: Callable[[Any], object]) -> Feature:
    def find_uses(policy: PolicySections) -> Iterator[Use]:
        names = [name for name, attribute in policy.attributes.items() if condition(attribute)]
        return (Use(join_key(join_key("attributes", name), key)) for name in names)

    return Feature(f"`attributes.*.{key}`", find_uses)


WEIGHT = _attribute("weight", lambda attribute: attribute.weight != 1)
IDENTIFICATION = _attribute("identification", lambda attribute: attribute.identification != "identifying")
ATTRIBUTE_NOISE = _attribute("noise", lambda attribute: attribute.noise is not None)
TABLE_HIERARCHY = _attribute(
    "hierarchy", lambda attribute: any(isinstance(rule, TableRule) for rule in attribute.hierarchy or ())
)
UNKNOWN_WITH_NOISE = _attribute("on_unknown", lambda attribute: attribute.noise and attribute.on_unknown == "suppress")
NOISE = _feature("noise", "attributes", lambda policy: policy.noisy_attributes)
# An invalid attribute may be meant to have noise.
NO_NOISE = _feature("no noise", "attributes", lambda policy: policy.complete and not policy.noisy_attributes)


# --- Features of [privacy]


def _requirement_keys(**properties: object) -> list[str]:
    """The keys of requirements whose entry has these properties."""
    entries = [type_.entry for type_ in requirement_types()]
    return [entry.key for entry in entries if all(getattr(entry, name) == value for name, value in properties.items())]


def _requirements(label: str, find_keys: Callable[[PolicySections], Iterable[str]]) -> Feature:
    def find_uses(policy: PolicySections) -> Iterator[Use]:
        return (Use(f"privacy.{key}", {"requirement": f"privacy.{key}"}) for key in find_keys(policy))

    return Feature(label, find_uses)


def _requirements_with(label: str, as_written: bool = False, **properties: object) -> Feature:
    """Requirements with properties, valid or as written: an invalid number does not hide a missing population."""

    def find_keys(policy: PolicySections) -> list[str]:
        keys = _requirement_keys(**properties)
        if as_written:
            return [key for key in keys if policy.writes(f"privacy.{key}")]
        return sorted(policy.requirements.intersection(keys))

    return _requirements(_list_names(label, _requirement_keys(**properties)), find_keys)


def _find_unsupported(policy: PolicySections) -> list[str]:
    supported = None if policy.search is None else policy.search.traits.supported_requirements
    of_all_rows = {*_requirement_keys(scope="population"), *_requirement_keys(scope="table")}
    return [] if supported is None else sorted(policy.requirements - supported - of_all_rows)


def _shields(policy: PolicySections) -> dict[str, Sequence[Any]]:
    """By key, the requirements on subsets of the quasi-identifiers."""
    keys = policy.requirements.intersection(_requirement_keys(subsets=True))
    return {key: shields for key in keys if (shields := getattr(policy.privacy, key))}


def _find_noisy_shields(policy: PolicySections) -> Iterator[Use]:
    noisy = policy.noisy_attributes
    for key, shields in _shields(policy).items():
        for i, shield in enumerate(shields):
            for j, name in enumerate(shield.quasi):
                if name in noisy:
                    yield Use(f"privacy.{key}[{i}].quasi[{j}]", {"name": repr(name)})


def _find_checked_early(policy: PolicySections) -> list[Use]:
    """Requirements that are checked before noise is drawn, and not again."""
    keys = [key for key in _requirement_keys(whole_source=True) if key in policy.requirements]
    return [Use(f"privacy.{key}", {"subject": f"{key} was"}) for key in keys]


def _find_checked_early_with_persons(policy: PolicySections) -> list[Use]:
    shields = _shields(policy) if policy.get("source.person_column") else ()
    return _find_checked_early(policy) + [
        Use(f"privacy.{key}", {"subject": "shields over persons were"}) for key in shields
    ]


def _find_unused_population(policy: PolicySections) -> list[Use]:
    keys = _requirement_keys(scope="population")
    is_used = policy.writes("risk") or any(policy.writes(f"privacy.{key}") for key in keys)
    is_unused = policy.raw.get("privacy") and policy.privacy_keys_known and not is_used
    return [Use("population", {"kinds": " and ".join(keys)})] if is_unused else []


POPULATION_REQUIREMENT = _requirements_with("a requirement on a population", scope="population")
TABLE_REQUIREMENT = _requirements_with("a requirement on the whole table", scope="table")
UNSUPPORTED_REQUIREMENT = _requirements("a requirement that the strategy does not support", _find_unsupported)
MORE_THAN_K = _requirements("a requirement other than `k`", lambda policy: sorted(policy.requirements - {"k"}))
ESTIMATE = _requirements(
    "an estimate of the population", lambda policy: estimated_requirements(policy.privacy) if policy.privacy else ()
)
NOISY_SHIELD = Feature("a shield over an attribute with noise", _find_noisy_shields)
DECIDED_BEFORE_NOISE = Feature(
    _list_names("a requirement on the whole source", _requirement_keys(whole_source=True)), _find_checked_early
)
DECIDED_WITH_PERSONS = Feature(
    _list_names("a requirement on the whole source, or shields over persons", _requirement_keys(whole_source=True)),
    _find_checked_early_with_persons,
)
NEEDS_POPULATION = _requirements_with("a requirement on a population", as_written=True, scope="population")
COVERING_REQUIREMENT = _requirements_with(
    "a requirement on a population as a whole", as_written=True, scope="population", whole_source=True
)
COMPARES_PERSONS = _requirements_with(
    "a requirement that compares persons with the population's", as_written=True, compares_persons=True
)
NO_POPULATION = _feature("no `[population]`", "population", lambda policy: not policy.writes("population"))
WRITTEN_POPULATION = _feature("`[population]`", "population", lambda policy: policy.writes("population"))
WRITTEN_MASK = _feature(
    MASK.label, "release.suppressed", lambda policy: policy.raw.get("release", {}).get("suppressed") == "mask"
)
NO_POPULATION_USE = Feature("no requirement on a population, and no `[risk]`", _find_unused_population)


# --- Features of the place of rows and releases


def _remote(label: str, *engines: str) -> Feature:
    """A remote source in some engines."""
    return _feature(label, "source", lambda policy: policy.remote_engine in engines)


REMOTE_SOURCE = _feature(
    "a source in PostgreSQL, in Spark or in a warehouse", "source", lambda policy: policy.remote_engine
)
POSTGRES_OR_WAREHOUSE = _remote("a source in PostgreSQL or in a warehouse", "PostgreSQL", "a warehouse")
WAREHOUSE = _remote("a table in a warehouse", "a warehouse")
SPARK_SOURCE = _remote("a source in Spark", "Spark")
FREQUENCY_SET = _keys("source.frequency_set")
NO_KEY = _feature(
    "no `source.key`, where there could be one",
    "source.key",
    lambda policy: not policy.get("source.key") and not policy.remote_engine,
)
NO_PERSON = _feature(
    "no `source.person`",
    "source",
    lambda policy: not policy.raw.get("source", {}).get("person") and not policy.remote_engine,
)
NO_PERSON_OF_POPULATION = _feature(
    "`[population]` without `person`",
    "population",
    lambda policy: policy.writes("population") and not policy.writes("population.person"),
)
POPULATION_OF_SOURCE = _feature(
    "`[population]` without a database or files",
    "population",
    lambda policy: policy.population is not None and policy.population.database is None and not policy.population.files,
)


def _find_release_in_source_schema(policy: PolicySections) -> list[Use]:
    source, release = policy.source, policy.release
    if source is None or release is None:
        return []
    source_schema = table_parts(source.table)[:-1][-1:] if source.table else ()
    release_schema = table_parts(release.table)[:1]
    same_server = source.postgres is not None and release.postgres == source.postgres
    in_spark = source.spark is not None and release.spark
    same_schema = [name.lower() for name in source_schema] == [name.lower() for name in release_schema]
    shared = (same_server and source_schema == release_schema) or (in_spark and same_schema)
    return [Use("release.table", {"schema": repr(source_schema[0])})] if source_schema and shared else []


def _releases_to_source(policy: PolicySections) -> bool:
    source, release = policy.get("source.table"), policy.get("release.table")
    return source is not None and release is not None and table_parts(source) == table_parts(release)


SOURCE_SCHEMA_MESSAGE = (
    "is in the source's schema {schema}: readers of the release would be let into that one; use another"
)
RELEASE_IN_SOURCE_SCHEMA = Feature("`release.table` in the schema of the source", _find_release_in_source_schema)
NON_SPARK_SOURCE = _feature(  # a source without a location may be connected as a Spark session
    "a source that is not in Spark",
    "source",
    lambda policy: (
        not policy.get("source.spark") and any(policy.get(f"source.{key}") for key in ("database", "postgres", "files"))
    ),
)
UNNAMED_RELEASE = _feature(
    "`release.table` that names no table",
    "release.table",
    lambda policy: policy.release and not table_parts(policy.release.table),
)
RELEASE_IS_SOURCE = _feature("`release.table` that is the source", "release.table", _releases_to_source)
RELEASE_LOCATION = _keys("release.database", "release.file", "release.postgres", "release.spark")


# --- The table

FULL_DOMAIN_ADVICE = "use a full-domain strategy, such as optimal"
AFTER_ADVICE = "leave `after` out; the ledger then refuses a release that is unsafe together with an earlier one"
DECOYS_ADVICE = "leave decoys out; the rows of classes that are too small are then suppressed"

# A row takes one to three lines.
# fmt: off
SEARCH = (
    Row(AGGREGATE, MEASURE_WITHOUT_FIGURES, "measure {measure} has no aggregate: leave it out, or use {supported}"),
    Row(SUMMARY, NO_SUMMARIES, "applies to strategy {supported}, not to {strategy}: leave it out"),
    Row(ENDS, NO_SUMMARIES, "applies to strategy {supported}, not to {strategy}: leave it out"),
    Row(LISTS, NO_SETS, 'applies to released sets: use strategy = "mondrian" with summary = "set", or leave it out'),
    Row(CUTS, NO_CUTS, "applies to strategy {supported}, not to {strategy}: leave it out"),
    Row(CELLS, LOCAL_STRATEGY, "strategy {strategy} already recodes below the full domain: leave it out"),
    Row(LEVEL_MEASURE, LOCAL_STRATEGY,
        "measure {measure} needs one level per attribute, and strategy {strategy} mixes levels: use loss, or a "
        "full-domain strategy"),
    Row(LEVEL_MEASURE, CELLS,
        "measure {measure} needs one level per attribute, and blank cells have another: use loss, for example"),
)
VERSIONS = (
    Row(KEEP, FILE_RELEASE, "a Parquet file holds one version: use database = ... instead of file = ..."),
    Row(KEEP, POSTGRES_RELEASE, "PostgreSQL keeps one version: leave it out"),
    Row(KEEP, SPARK_RELEASE, "Spark keeps one version: leave it out"),
    Row(STORAGE_VERSION, FILE_RELEASE, "a Parquet file has none: leave it out"),
    Row(STORAGE_VERSION, POSTGRES_RELEASE, "applies to a release in a DuckDB file: leave it out"),
    Row(STORAGE_VERSION, SPARK_RELEASE, "applies to a release in a DuckDB file: leave it out"),
    Row(KEEP, NO_LEDGER, "kept versions are compared through the ledger: leave ledger = false out"),
)
WEIGHTS = (
    Row(WEIGHT, MEASURE_WITHOUT_FIGURES,
        "measure {measure} has no weights: leave it out, or use {supported} with mean or sum"),
    Row(WEIGHT, OTHER_AGGREGATE,
        "aggregate {aggregate} has no weights: leave it out, or use {supported} with mean or sum"),
)
STRATEGY_SUPPORT = (
    Row(LISTS, POSTGRES_RELEASE, "a release in PostgreSQL has no lists: leave it out, or publish to a file"),
    Row(LISTS, SPARK_RELEASE, "a release in Spark has no lists: leave it out, or publish to a file"),
    Row(POPULATION_REQUIREMENT, LOCAL, "{local} does not use a population: " + FULL_DOMAIN_ADVICE),
    Row(TABLE_REQUIREMENT, LOCAL,
        "{local} decides class by class, and this requirement is about the whole table: " + FULL_DOMAIN_ADVICE),
    Row(UNSUPPORTED_REQUIREMENT, LIMITED_STRATEGY, "{local} supports only {known}: " + FULL_DOMAIN_ADVICE),
    Row(NO_KEY, SPLITS_EQUAL_ROWS,
        "is missing: strategy {strategy} divides equal rows by it; add the columns that identify a row, such as key = "
        '"id"'),
    Row(PERSON, SPLITS_EQUAL_ROWS,
        "strategy {strategy} counts rows, so a class of k rows may be a single person: use another strategy, such as "
        "optimal, local or mondrian"),
)
IDENTIFICATIONS = (
    Row(IDENTIFICATION, NOT_COMBINATIONS, "applies to strategy {supported}, not to {strategy}: leave it out"),
)
POPULATIONS = (
    Row(NEEDS_POPULATION, NO_POPULATION,
        "needs a population: add [population] with table = ..., query = ... or files = ..."),
    Row(COMPARES_PERSONS, NO_PERSON, "compares persons: add person = ... to [source]"),
    Row(COMPARES_PERSONS, NO_PERSON_OF_POPULATION, "compares persons: add person = ... to [population]"),
    Row(WRITTEN_POPULATION, NO_POPULATION_USE,
        "is not used: only {kinds} use it, and `risk` with a [risk] section; add one of them under [privacy], or leave "
        "the section out"),
    Row(WRITTEN_MASK, COVERING_REQUIREMENT,
        'a masked class cannot be compared with a class of the population: with {requirement}, use "drop"'),
)
BUDGETS = (
    Row(NOISE_KEYS, NO_NOISE,
        "applies to attributes with noise, and no attribute has noise: add noise = {{}} to one, or leave it out"),
)
WITH_NOISE = (
    Row(SMALL_K, NOISE, "noise hides a record among the others of its class: add k = 5, for example"),
    Row(NOISY_SHIELD, NOISE,
        "{name} has noise, and k_anonymity is over generalized attributes: give it a hierarchy; a shield without it "
        "does not protect its values"),
    Row(COMBINATIONS_ONLY, NOISE,
        "noise needs classes of k rows, which {strategy} does not guarantee: use optimal, for example"),
)
LATE_SUPPRESSION = (
    Row(CONFIDENCE, PERSON,
        "counts rows, and source.person counts persons: give the attribute a hierarchy in place of noise; without "
        "confidence, the release does not promise that k records are near a noisy one"),
    Row(UNKNOWN_WITH_NOISE, DECIDED_WITH_PERSONS,
        "suppresses rows after {subject} checked: exclude these rows with query = ... under [source]"),
    Row(CONFIDENCE, DECIDED_BEFORE_NOISE,
        "suppresses rows after {subject} checked: give the attribute a hierarchy in place of noise; without "
        "confidence, the release does not promise that k records are near a noisy one"),
)
EARLIER_RELEASES = (
    Row(AFTER, LOCAL, "{local} has no levels to compare with an earlier release: use a full-domain strategy"),
    Row(AFTER, CLASS_MEASURE, "measure {measure} counts classes, and `after` splits them: use loss, for example"),
    Row(AFTER, MASK, 'masked rows would reveal rows that no release has shown: use suppressed = "drop"'),
    Row(AFTER, POPULATION, "requirements with a population cannot be checked across releases: " + AFTER_ADVICE),
    Row(AFTER, ESTIMATE, "population uniqueness is estimated from whole classes: " + AFTER_ADVICE),
    Row(AFTER, NOISE, "each release draws new noise: " + AFTER_ADVICE),
)
LEDGER_FEATURES = (
    Row(AFTER, NO_CATALOG, "needs the ledger, which is in the catalog: add [catalog] database = ..."),
    Row(EPSILON_TOTAL, NO_CATALOG,
        "needs the ledger, which adds up the noise of all releases: add [catalog] database = ...; without it, readers "
        "of several releases can average the noise away"),
    Row(KEEP, NO_CATALOG,
        "needs the ledger, which compares the versions before readers can: add [catalog] database = ...; without it, "
        "two versions can single out persons who joined or left in between"),
)
WITH_DECOYS = (
    Row(SMALL_K, DECOYS, "decoys fill classes up to k rows: add k = 5, for example"),
    Row(DECOYS, MORE_THAN_K,
        "work with k alone: decoys, which are not persons, would decide whether {requirement} holds; " + DECOYS_ADVICE),
    Row(DECOYS, LOCAL, "{local} has no levels above a class to take values from: use a full-domain strategy"),
    Row(DECOYS, NOISE, "noise hides a record among real records, and decoys are not real: " + DECOYS_ADVICE),
    Row(DECOYS, PERSON, "are not persons, and source.person counts persons: " + DECOYS_ADVICE),
    Row(DECOYS, POPULATION, "are not in the population that classes are compared with: " + DECOYS_ADVICE),
    Row(DECOYS, MASK, 'fill the classes whose rows would be masked: use suppressed = "drop"'),
    Row(DECOYS, AFTER, "are missing from earlier releases, which would reveal them: " + DECOYS_ADVICE),
)
REMOTE_SOURCES = (
    Row(PERSON, WAREHOUSE,
        "a warehouse counts rows, so a class of k rows may be a single person: anonymize the table where persons are "
        "counted (DuckDB, PostgreSQL or Spark), or make it one row per person"),
    Row(COMPARES_PERSONS, REMOTE_SOURCE,
        "compares persons row by row, {rows}: anonymize a copy of the table in DuckDB; without it, released rows may "
        "be attributed to other people"),
    Row(KEY, REMOTE_SOURCE,
        "keys are recorded row by row, {rows}: leave it out; `extend` and `after`, which need it, read rows as well"),
    Row(ATTRIBUTE_NOISE, POSTGRES_OR_WAREHOUSE, "is drawn row by row, {rows}: give it a hierarchy"),
    Row(TABLE_HIERARCHY, REMOTE_SOURCE,
        "names a table of a DuckDB source, and this one is {where}: export it, and use file = ..."),
    Row(RISK, REMOTE_SOURCE, "needs single rows, {rows}: leave it out, and measure the risk of a release"),
    Row(LISTS, REMOTE_SOURCE, "lists are made where sqlanon runs, {rows}: leave it out"),
    Row(_local("search"), POSTGRES_OR_WAREHOUSE, "{local} places rows one by one, {rows}: " + FULL_DOMAIN_ADVICE),
    Row(SPLITS_EQUAL_ROWS, SPARK_SOURCE,
        "strategy {strategy} divides equal rows by their key, {rows}: " + FULL_DOMAIN_ADVICE),
    Row(POPULATION_OF_SOURCE, REMOTE_SOURCE,
        "a table of a source {where} cannot be the population: give database = ... or files = ..."),
    Row(DECOYS, REMOTE_SOURCE, "are drawn among the rows, {rows}: " + DECOYS_ADVICE),
    Row(AFTER, REMOTE_SOURCE, "needs the rows of an earlier release, {rows}: " + AFTER_ADVICE),
    Row(RELEASE_IN_SOURCE_SCHEMA, REMOTE_SOURCE, SOURCE_SCHEMA_MESSAGE),
    Row(SPARK_RELEASE, NON_SPARK_SOURCE,
        "applies to a source in Spark, and this source is elsewhere: give database = ... or file = ..."),
    Row(UNNAMED_RELEASE, WAREHOUSE, "must be table, schema.table or database.schema.table, as the warehouse has it"),
    Row(RELEASE_LOCATION, FREQUENCY_SET,
        "a frequency set has no rows to release: leave it out, export the statement that creates the release there, "
        'and name that with table = "schema.name"'),
    Row(KEEP, FREQUENCY_SET, "applies to a release in a separate database: leave it out"),
    Row(RELEASE_IS_SOURCE, FREQUENCY_SET, "is the source: name another table of the warehouse"),
)
PUBLISH_ADVICE = "publish a release with anonymize instead"
LIVE_VIEWS = (
    Row(FILES, LIVE_VIEW, "a view needs a database: load the files into a table"),
    Row(QUERY, LIVE_VIEW, "create a view with this query, and name it: table = ..."),
    Row(POPULATION, LIVE_VIEW, "may change while the view is read: " + PUBLISH_ADVICE),
    Row(POPULATION_REQUIREMENT, LIVE_VIEW, "needs a population, which a view does not read: " + PUBLISH_ADVICE),
    Row(TABLE_REQUIREMENT, LIVE_VIEW,
        "is about the whole table and suppresses nothing, so a view cannot guarantee it: " + PUBLISH_ADVICE),
    Row(LOCAL, LIVE_VIEW, "recodes below the full domain: a view shows one level of each attribute; use optimal"),
    Row(MASK, LIVE_VIEW, 'a view omits suppressed rows: use "drop"'),
    Row(AFTER, LIVE_VIEW, "a view changes with its table, and cannot be compared with earlier releases"),
    Row(DECOYS, LIVE_VIEW, "are drawn once, and a view is computed on each read: " + DECOYS_ADVICE),
    Row(ATTRIBUTE_NOISE, LIVE_VIEW,
        "noise that a view draws on each read can be averaged away: give the attribute a hierarchy"),
)
EXTENSIONS = (
    Row(_missing("source.key"), EXTENSION, "is missing: name the columns that identify a row and never change"),
    Row(POPULATION, EXTENSION, "does not grow with the release: run anonymize again"),
    Row(_local("search.strategy"), EXTENSION, "recodes below the full domain, so new rows would have no level"),
    Row(SOURCE_MEASURE, EXTENSION, "compares with one source, and an extended release has rows of several"),
    Row(NO_CATALOG, EXTENSION, "is missing: its ledger records what was released"),
    Row(RELEASE_OUTSIDE_FILE, EXTENSION, "only a release in a file can be extended"),
    Row(NOISE, EXTENSION, "noise is drawn once for all rows of a class: run anonymize again"),
    Row(ESTIMATE, EXTENSION,
        "is estimated from one source, and an extended release has rows of several: run anonymize again"),
    Row(MASK, EXTENSION, 'masked rows cannot be taken back: use "drop"'),
    Row(KEEP, EXTENSION, "an extended release contains the previous one: leave it out"),
    Row(DECOYS, EXTENSION, "decoys cannot be distinguished from rows: run anonymize again"),
    Row(DRAFT, EXTENSION, "a draft cannot be extended: publish a release first"),
)
# fmt: on

TABLE: Mapping[str, Sequence[Row]] = {
    "Strategies, measures and weights": (*SEARCH, *WEIGHTS),
    "Requirements and strategies": (*STRATEGY_SUPPORT, *IDENTIFICATIONS),
    "Populations": POPULATIONS,
    "Noise": (*BUDGETS, *WITH_NOISE, *LATE_SUPPRESSION),
    "Earlier releases": (*EARLIER_RELEASES, *LEDGER_FEATURES),
    "Versions": VERSIONS,
    "Decoys": WITH_DECOYS,
    "Sources whose rows sqlanon does not see": REMOTE_SOURCES,
    "Live views": LIVE_VIEWS,
    "Releases that grow": EXTENSIONS,
}
"""All rows, by topic."""


# --- The page


def page() -> str:
    """The page docs/reference/compatibility.md."""
    parts = [
        """# Compatibility

Features that a policy cannot combine, or that an operation does not support. Each row is a mistake in a policy, which
is reported together with all others before any data is read; `…` stands for names that the message inserts. This page
is generated from the table in `sqlanon/policy/compatibility.py`.
"""
    ]
    for title, rows in TABLE.items():
        lines = ["| feature | cannot be combined with | message |", "| --- | --- | --- |"]
        for row in rows:
            message = row.message.format_map(defaultdict(lambda: "…"))
            lines.append(f"| {row.feature.label} | {row.conflicting.label} | {message} |")
        parts.append("\n".join([f"## {title}\n", *lines, ""]))
    return "\n".join(parts)
