"""Which features of a policy go together: one table, `TABLE`.

A row says that a feature does not go with another, where the problem is reported, and what to do. From the rows come
the checks, their messages, and the page docs/reference/compatibility.md (`page`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, Protocol

from sqlanon.errors import Problem
from sqlanon.measures import MEASURES
from sqlanon.policy.problems import join
from sqlanon.policy.rules import TableRule
from sqlanon.policy.strategies import STRATEGIES, Traits
from sqlanon.requirements import estimated_requirements
from sqlanon.requirements.registry import requirement_types
from sqlanon.support.names import table_parts

if TYPE_CHECKING:
    from sqlanon.policy.privacy import PrivacySection


class AskedSearch(Protocol):
    """A ``[search]``, as far as what goes together is about it."""

    @property
    def strategy(self) -> str: ...
    @property
    def measure(self) -> str: ...
    @property
    def aggregate(self) -> str: ...
    @property
    def suppression(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def sets(self) -> str: ...
    @property
    def traits(self) -> Traits: ...
    @property
    def is_local(self) -> bool: ...
    @property
    def model_fields_set(self) -> set[str]: ...


class AskedAttribute(Protocol):
    """An attribute, likewise."""

    @property
    def hierarchy(self) -> Sequence[object] | None: ...
    @property
    def weight(self) -> float: ...
    @property
    def identification(self) -> str: ...
    @property
    def on_unknown(self) -> str: ...
    @property
    def noise(self) -> object: ...


@dataclass(frozen=True)
class PolicySections:
    """A policy as far as it is sound; ``None``: the section is missing, or unsound."""

    source: Any = None
    population: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    privacy: PrivacySection | None = None
    risk: Any = None
    search: AskedSearch | None = None
    release: Any = None
    catalog: Any = None
    written: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The sections as they are written, sound or not."""
    complete: bool = True
    """All attributes are sound."""
    known: bool = True
    """All keys of ``[privacy]`` are known."""
    exported: bool = False
    """Statements for a warehouse are written, whatever the source is."""
    given: Mapping[str, Any] = field(default_factory=dict)
    """What is used in place of the policy's source."""

    def get(self, path: str) -> Any:
        """The value at ``section.key``; None where it is missing."""
        section, _, key = path.partition(".")
        part = getattr(self, section)
        return getattr(part, key) if part is not None and key else part

    @property
    def requirements(self) -> set[str]:
        return set() if self.privacy is None else set(self.privacy.requirements)


@dataclass(frozen=True)
class Use:
    """Where a policy uses a feature, and what a message may say of it."""

    place: str
    words: Mapping[str, str] = field(default_factory=dict)
    order: int = 0
    """The number of the attribute, where it is one of an attribute."""


@dataclass(frozen=True)
class PolicyFeature:
    """Something that a policy may ask for, or that is done with it."""

    words: str
    uses: Callable[[PolicySections], Iterable[Use]]
    of_attributes: bool = False


@dataclass(frozen=True)
class Row:
    """A feature that does not go with another. The message may name the words of both uses."""

    feature: PolicyFeature
    beside: PolicyFeature
    message: str
    at: str = ""
    """The place of the problem; by default, that of the feature."""

    def problems(self, asked: PolicySections) -> Iterator[tuple[int, Problem]]:
        """One for each pair of uses, with the number of its attribute."""
        others = list(self.beside.uses(asked))
        for use in self.feature.uses(asked) if others else ():
            for other in others:
                message = self.message.format(**{**other.words, **use.words})
                yield use.order, Problem(self.at or use.place, message)


def find_conflicts(rows: Sequence[Row], asked: PolicySections) -> Iterator[Problem]:
    """What does not go together in a policy, row by row; of rows on attributes, attribute by attribute."""
    for _, some in groupby(rows, key=lambda row: row.feature.of_attributes):
        found = [one for row in some for one in row.problems(asked)]
        yield from (problem for _, problem in sorted(found, key=lambda one: one[0]))


def collect_sections(parts: Mapping[str, Any], **more: Any) -> PolicySections:
    asked = {name: part for name, part in parts.items() if part is not None and name != "about"}
    return PolicySections(**asked, **more)


# --- Features


def _scoped(scope: str) -> list[str]:
    return [kind.entry.key for kind in requirement_types() if kind.entry.scope == scope]


def _of_whole_source() -> list[str]:
    return [kind.entry.key for kind in requirement_types() if kind.entry.whole_source]


def _covering() -> list[str]:
    return [key for key in _scoped("population") if key in _of_whole_source()]


def _named(words: str, names: Iterable[str]) -> str:
    """Words for a page, with the names that they are about."""
    return f"{words} ({', '.join(f'`{name}`' for name in names)})"


def _setting(*paths: str) -> PolicyFeature:
    """Keys of which one is set, to something else than nothing."""
    return PolicyFeature(_any_of(paths), lambda asked: [Use(path) for path in paths if asked.get(path)])


def _given(*paths: str) -> PolicyFeature:
    """Keys, or sections, of which one is there."""
    return PolicyFeature(_any_of(paths), lambda asked: [Use(path) for path in paths if asked.get(path) is not None])


def _any_of(paths: Sequence[str]) -> str:
    *names, last = (f"`{path}`" if "." in path else f"`[{path}]`" for path in paths)
    return f"{', '.join(names)} or {last}" if names else last


def _missing(path: str) -> PolicyFeature:
    return PolicyFeature(f"no `{path}`", lambda asked: [] if asked.get(path) else [Use(path)])


def _always(words: str) -> PolicyFeature:
    return PolicyFeature(words, lambda asked: [Use("")])


def _of_attributes(key: str, is_used: Callable[[AskedAttribute], object]) -> PolicyFeature:
    def uses(asked: PolicySections) -> Iterator[Use]:
        for order, (name, attribute) in enumerate(asked.attributes.items()):
            if is_used(attribute):
                yield Use(join(join("attributes", name), key), order=order)

    return PolicyFeature(f"`attributes.*.{key}`", uses, of_attributes=True)


def _of_search(
    words: str, place: str, is_used: Callable[[AskedSearch], object], **more: Callable[[AskedSearch], str]
) -> PolicyFeature:
    def uses(asked: PolicySections) -> Iterator[Use]:
        if asked.search is not None and is_used(asked.search):
            search = asked.search
            own = {"strategy": search.strategy, "measure": search.measure, "aggregate": search.aggregate}
            yield Use(place, {**own, **{name: word(search) for name, word in more.items()}})

    return PolicyFeature(words, uses)


def _strategy(
    words: str, trait: str, has: bool = True, between: str = " and ", **more: Callable[[AskedSearch], str]
) -> PolicyFeature:
    """A strategy that has a trait, or has it not; ``able`` in messages are those that have it."""

    def able() -> list[str]:
        return [name for name, one in STRATEGIES.items() if getattr(one.traits, trait)]

    return _of_search(
        _named(words, able()),
        "search.strategy",
        lambda search: bool(getattr(search.traits, trait)) is has,
        **{"able": lambda search: between.join(able()), **more},
    )


def _measure(words: str, trait: str, has: bool = True) -> PolicyFeature:
    """The same of a measure."""

    def those(has: bool) -> list[str]:
        return [name for name, one in MEASURES.items() if getattr(one, trait) is has]

    return _of_search(
        _named(words, those(has)),
        "search.measure",
        lambda search: search.measure in those(has),
        able=lambda search: " or ".join(those(True)),
    )


def _requirements(words: str, names: Callable[[PolicySections], Iterable[str]]) -> PolicyFeature:
    def uses(asked: PolicySections) -> Iterator[Use]:
        for name in names(asked):
            place = join("privacy", name)
            yield Use(place, {"requirement": place, "name": name})

    return PolicyFeature(words, uses)


def _unknown_to_strategy(asked: PolicySections) -> list[str]:
    known = None if asked.search is None else asked.search.traits.supported_requirements
    return [] if known is None else sorted(asked.requirements - known - {*_scoped("population"), *_scoped("table")})


def _local(search: AskedSearch) -> str:
    return f"strategy {search.strategy}" if search.traits.is_local else 'suppression = "cells"'


def _local_uses(asked: PolicySections) -> Iterator[Use]:
    search = asked.search
    if search is not None and search.is_local:
        key = "suppression" if search.suppression == "cells" else "strategy"
        yield Use(f"search.{key}", {"local": _local(search), "strategy": search.strategy})


LOCAL = PolicyFeature('a strategy below the full domain, or `search.suppression = "cells"`', _local_uses)
LOCAL_STRATEGY = _strategy("a strategy below the full domain", "is_local")
DIVIDES = _strategy("a strategy that divides equal rows", "may_split_equal_rows")
NO_SUMMARY = _strategy("another strategy than those that summarise", "summarizes", has=False)
NO_CUTS = _strategy("another strategy than those that cut", "splits_classes", has=False)
OF_COMBINATIONS = _strategy("a strategy that guarantees combinations", "protects_combinations_only")
NO_COMBINATIONS = _strategy(
    "another strategy than those of combinations", "protects_combinations_only", has=False, between=" or "
)
KNOWS_SOME = _strategy(
    "a strategy that knows some requirements only",
    "supported_requirements",
    local=_local,
    known=lambda one: " and ".join(sorted(one.traits.supported_requirements or ())),
)
CELLS = _of_search('`search.suppression = "cells"`', "search.suppression", lambda one: one.suppression == "cells")
AGGREGATE = _of_search("`search.aggregate`", "search.aggregate", lambda one: "aggregate" in one.model_fields_set)
SUMMARY = _of_search("`search.summary`", "search.summary", lambda one: "summary" in one.model_fields_set)
ENDS = _of_search("`search.ends`", "search.ends", lambda one: "ends" in one.model_fields_set)
LISTS = _of_search('`search.sets = "list"`', "search.sets", lambda one: one.sets == "list")
NO_SETS = _of_search("no sets", "search.summary", lambda one: one.summary != "set" or not one.traits.summarizes)
CUTS = _of_search("`search.cuts`", "search.cuts", lambda one: "cuts" in one.model_fields_set)
ONE_LEVEL = _measure("a measure of one level for all rows", "needs_levels")
NO_FIGURES = _measure("a measure without a figure for each attribute", "aggregates", has=False)
OF_CLASSES = _measure("a measure of classes", "counts_classes")
OF_ONE_SOURCE = _measure("a measure of one source", "compares_with_source")
NO_SUM = _of_search(
    "an aggregate other than mean and sum",
    "search.aggregate",
    lambda one: MEASURES[one.measure].aggregates and one.aggregate not in ("mean", "sum"),
    able=lambda one: " or ".join(name for name, its in MEASURES.items() if its.aggregates),
)

WEIGHT = _of_attributes("weight", lambda one: one.weight != 1)
IDENTIFICATION = _of_attributes("identification", lambda one: one.identification != "identifying")
NOISE_OF_EACH = _of_attributes("noise", lambda one: one.noise is not None)
TABLE_HIERARCHY = _of_attributes("hierarchy", lambda one: any(isinstance(o, TableRule) for o in one.hierarchy or ()))
UNKNOWN_WITH_NOISE = _of_attributes("on_unknown", lambda one: one.noise and one.on_unknown == "suppress")

OF_POPULATION = _requirements(
    _named("a requirement on a population", _scoped("population")),
    lambda asked: sorted(asked.requirements & {*_scoped("population")}),
)
OF_TABLE = _requirements(
    _named("a requirement on the whole table", _scoped("table")),
    lambda asked: sorted(asked.requirements & {*_scoped("table")}),
)
UNKNOWN_REQUIREMENT = _requirements("a requirement that the strategy does not know", _unknown_to_strategy)
MORE_THAN_K = _requirements("a requirement beside `k`", lambda asked: sorted(asked.requirements - {"k"}))
ESTIMATE = _requirements(
    "an estimate of the population",
    lambda asked: estimated_requirements(asked.privacy) if asked.privacy else (),
)
SMALL_K = PolicyFeature(
    "no `privacy.k`, or `k = 1`",
    lambda asked: [Use("privacy.k")] if asked.privacy is not None and (asked.privacy.k or 1) < 2 else [],
)

PERSON = PolicyFeature(
    "`source.person`", lambda asked: [Use("source.person")] if isinstance(asked.get("source.person"), str) else []
)
KEY = _setting("source.key")
QUERY = _setting("source.query")
RISK = _given("risk")
POPULATION = _given("population")
MASK = PolicyFeature(
    '`release.suppressed = "mask"`',
    lambda asked: [Use("release.suppressed")] if asked.get("release.suppressed") == "mask" else [],
)
AFTER = _setting("release.after")
DECOYS = _setting("release.decoys")
EPSILON_TOTAL = _setting("privacy.epsilon_total")
DRAFT = _setting("release.draft")
KEEP = PolicyFeature(
    "`release.keep` of several versions",
    lambda asked: [Use("release.keep")] if asked.release is not None and asked.release.keep > 1 else [],
)
STORAGE_VERSION = PolicyFeature(
    "`release.storage_version`",
    lambda asked: (
        [Use("release.storage_version")]
        if asked.release is not None and "storage_version" in asked.release.model_fields_set
        else []
    ),
)
NOISE = PolicyFeature(
    "noise", lambda asked: [Use("attributes")] if any(one.noise for one in asked.attributes.values()) else []
)
# An unsound attribute may be meant to have noise.
NO_NOISE = PolicyFeature("no noise", lambda asked: [Use("attributes")] if asked.complete and not _noisy(asked) else [])
NO_LEDGER = PolicyFeature(
    "`release.ledger = false`",
    lambda asked: [Use("release.ledger")] if asked.release is not None and not asked.release.ledger else [],
)
CONFIDENCE = _given("privacy.confidence")


def _noisy(asked: PolicySections) -> list[str]:
    return [name for name, attribute in asked.attributes.items() if attribute.noise is not None]


def _shields(asked: PolicySections) -> dict[str, Sequence[Any]]:
    """By key, the requirements on some of the quasi-identifiers."""
    keys = [kind.entry.key for kind in requirement_types() if kind.entry.subsets]
    return {} if asked.privacy is None else {key: found for key in keys if (found := getattr(asked.privacy, key))}


def _noisy_shields(asked: PolicySections) -> Iterator[Use]:
    noisy = _noisy(asked)
    for key, shields in _shields(asked).items():
        for i, shield in enumerate(shields):
            for j, name in enumerate(shield.quasi):
                if name in noisy:
                    yield Use(f"{join('privacy', key)}[{i}].quasi[{j}]", {"name": repr(name)})


NOISY_SHIELD = PolicyFeature("a shield over an attribute with noise", _noisy_shields)


def _decided_before(asked: PolicySections) -> Iterator[Use]:
    """What is decided of classes before noise is drawn, and is not decided again."""
    for name in _of_whole_source():
        if name in asked.requirements:
            yield Use(join("privacy", name), {"decided": f"{name} was"})


def _decided_of_persons(asked: PolicySections) -> Iterator[Use]:
    yield from _decided_before(asked)
    if isinstance(asked.get("source.person"), str):
        yield from (Use(join("privacy", key), {"decided": "shields over persons were"}) for key in _shields(asked))


DECIDED = PolicyFeature(_named("a requirement on the whole source", _of_whole_source()), _decided_before)
DECIDED_OF_PERSONS = PolicyFeature(
    _named("a requirement on the whole source, or shields over persons", _of_whole_source()), _decided_of_persons
)

# Sections as they are written: a wrong number hides no missing population.
NEEDS_POPULATION = _requirements(
    _named("a requirement on a population", _scoped("population")),
    lambda asked: [name for name in _scoped("population") if asked.written.get("privacy", {}).get(name) is not None],
)
NO_POPULATION = PolicyFeature(
    "no `[population]`", lambda asked: [] if asked.written.get("population") is not None else [Use("population")]
)
WRITTEN_POPULATION = PolicyFeature(
    "`[population]`", lambda asked: [Use("population")] if asked.written.get("population") is not None else []
)
WRITTEN_MASK = PolicyFeature(
    MASK.words,
    lambda asked: [Use("release.suppressed")] if asked.written.get("release", {}).get("suppressed") == "mask" else [],
)
PRESENCE = _requirements(
    _named("a requirement on a population as a whole", _covering()),
    lambda asked: [name for name in _covering() if asked.written.get("privacy", {}).get(name) is not None],
)


def _comparing_persons() -> list[str]:
    return [kind.entry.key for kind in requirement_types() if kind.entry.compares_persons]


COMPARES_PERSONS = _requirements(
    _named("a requirement that compares persons with the population's", _comparing_persons()),
    lambda asked: [name for name in _comparing_persons() if asked.written.get("privacy", {}).get(name) is not None],
)


def _without_persons(asked: PolicySections) -> Iterator[Use]:
    """A source that could have persons, and names none."""
    if not asked.written.get("source", {}).get("person") and not [*_elsewhere(asked)]:
        yield Use("source")


def _population_without_persons(asked: PolicySections) -> Iterator[Use]:
    population = asked.written.get("population")
    if population is not None and population.get("person") is None:
        yield Use("population")


NO_PERSON = PolicyFeature("no `source.person`", _without_persons)
NO_PERSON_OF_POPULATION = PolicyFeature("`[population]` without `person`", _population_without_persons)


def _no_use(asked: PolicySections) -> Iterator[Use]:
    privacy = asked.written.get("privacy", {})
    used = asked.written.get("risk") is not None or any(privacy.get(name) is not None for name in _scoped("population"))
    if privacy and asked.known and not used:
        yield Use("population", {"kinds": " and ".join(_scoped("population"))})


NO_USE = PolicyFeature("no requirement on a population, and no `[risk]`", _no_use)


def _elsewhere(asked: PolicySections) -> Iterator[Use]:
    """Where the rows of the source are, if sqlanon does not see them."""
    source = asked.source
    if asked.exported or (source is not None and source.frequency_set):
        yield Use(
            "source", {"where": "in a warehouse", "rows": "and sqlanon does not see the rows of a table in a warehouse"}
        )
    elif source is not None and source.postgres is not None:
        yield Use("source", {"where": "in PostgreSQL", "rows": "and the rows of a source in PostgreSQL never leave it"})
    elif source is not None and source.spark is not None:
        yield Use("source", {"where": "in Spark", "rows": "and the rows of a source in Spark never leave it"})


ELSEWHERE = PolicyFeature("a source in PostgreSQL, in Spark or in a warehouse", _elsewhere)
COUNTED = PolicyFeature(
    "a source in PostgreSQL or in a warehouse",
    lambda asked: [use for use in _elsewhere(asked) if use.words["where"] != "in Spark"],
)
WAREHOUSE = PolicyFeature(
    "a table in a warehouse", lambda asked: [use for use in _elsewhere(asked) if use.words["where"] == "in a warehouse"]
)
FROM_SPARK = PolicyFeature(
    "a source in Spark", lambda asked: [use for use in _elsewhere(asked) if use.words["where"] == "in Spark"]
)
FREQUENCY_SET = _setting("source.frequency_set")
NO_KEY = PolicyFeature(
    "no `source.key`, where there could be one",
    lambda asked: [] if asked.get("source.key") or [*_elsewhere(asked)] else [Use("source.key")],
)


def _population_of_source(asked: PolicySections) -> Iterator[Use]:
    population = asked.population
    if population is not None and population.database is None and not population.files:
        yield Use("population")


POPULATION_OF_SOURCE = PolicyFeature("`[population]` without a database or files", _population_of_source)


def _beside_source(asked: PolicySections) -> Iterator[Use]:
    """A release that would stand in the schema of its source."""
    source, release = asked.source, asked.release
    if source is None or release is None:
        return
    schema = table_parts(source.table)[:-1][-1:] if source.table else ()
    own = table_parts(release.table)[:1]
    in_postgres = source.postgres is not None and release.postgres == source.postgres and schema == own
    in_spark = source.spark is not None and release.spark and [*map(str.lower, schema)] == [*map(str.lower, own)]
    if schema and (in_postgres or in_spark):
        yield Use("release.table", {"schema": repr(schema[0])})


IN_SCHEMA_OF_SOURCE = (
    "is in the source's schema {schema}: readers of the release would be let into that one; use another"
)
BESIDE_SOURCE = PolicyFeature("`release.table` in the schema of the source", _beside_source)
IN_SPARK = _setting("release.spark")


def _not_in_spark(asked: PolicySections) -> Iterator[Use]:
    """A source that says where it is. Else it is what the policy is applied to: that may be a Spark session."""
    source = asked.source
    if source is not None and source.spark is None and (source.database or source.postgres or source.files):
        yield Use("source")


NOT_IN_SPARK = PolicyFeature("a source that is not in Spark", _not_in_spark)
UNNAMED = PolicyFeature(
    "`release.table` that names no table",
    lambda asked: [Use("release.table")] if asked.release and not table_parts(asked.release.table) else [],
)


def _is_source(asked: PolicySections) -> Iterator[Use]:
    source, release = asked.source, asked.release
    name = None if source is None else source.table
    if name is not None and release is not None and table_parts(name) == table_parts(release.table):
        yield Use("release.table")


IS_SOURCE = PolicyFeature("`release.table` that is the source", _is_source)

LIVE = _always("a live view")


def _files(asked: PolicySections) -> Iterator[Use]:
    own = asked.source is not None and asked.source.files and "database" not in asked.given
    if asked.given.get("files") or own:
        yield Use("source.files")


FILES = PolicyFeature("`source.files`", _files)

EXTENDED = _always("a release that grows")
NO_FILE = PolicyFeature(
    "a release outside a file",
    lambda asked: [] if asked.release and (asked.release.database or asked.release.file) else [Use("release")],
)

# --- The table

WIDE = "use a full-domain strategy, such as optimal"
WITHOUT_AFTER = "leave `after` out: the ledger then refuses a release that is not safe beside the earlier ones"
WITHOUT_DECOYS = "leave decoys out: the rows of the classes that they would fill are suppressed then"

OF_SEARCH = (
    Row(AGGREGATE, NO_FIGURES, "measure {measure} has no aggregate: leave it out, or use {able}"),
    Row(SUMMARY, NO_SUMMARY, "applies to strategy {able}, not to {strategy}: leave it out"),
    Row(ENDS, NO_SUMMARY, "applies to strategy {able}, not to {strategy}: leave it out"),
    Row(
        LISTS,
        NO_SETS,
        'there are no sets to release as lists: use strategy = "mondrian" with summary = "set", or leave it out',
    ),
    Row(CUTS, NO_CUTS, "applies to strategy {able}, not to {strategy}: leave it out"),
    Row(CELLS, LOCAL_STRATEGY, "strategy {strategy} already recodes below the full domain: leave it out"),
    Row(
        ONE_LEVEL,
        LOCAL_STRATEGY,
        "measure {measure} needs one level per attribute, and strategy {strategy} mixes levels: use loss, or a "
        "full-domain strategy",
    ),
    Row(
        ONE_LEVEL,
        CELLS,
        "measure {measure} needs one level per attribute, and blank cells have another: use loss, for example",
    ),
)
OF_RELEASE = (
    Row(KEEP, _given("release.file"), "a Parquet file holds one version: use database = ... instead of file = ..."),
    Row(KEEP, _given("release.postgres"), "PostgreSQL keeps one version: leave it out"),
    Row(KEEP, _setting("release.spark"), "Spark keeps one version: leave it out"),
    Row(STORAGE_VERSION, _given("release.file"), "a Parquet file has none: leave it out"),
    Row(STORAGE_VERSION, _given("release.postgres"), "applies to a release in a DuckDB file: leave it out"),
    Row(STORAGE_VERSION, _setting("release.spark"), "applies to a release in a DuckDB file: leave it out"),
    Row(KEEP, NO_LEDGER, "kept versions are compared through the ledger: leave ledger = false out"),
)
WEIGHTS = (
    Row(WEIGHT, NO_FIGURES, "measure {measure} has no weights: leave it out, or use {able} with mean or sum"),
    Row(WEIGHT, NO_SUM, "aggregate {aggregate} has no weights: leave it out, or use {able} with mean or sum"),
)
OF_STRATEGIES = (
    Row(LISTS, _given("release.postgres"), "a release in PostgreSQL has no lists: leave it out, or publish to a file"),
    Row(LISTS, _setting("release.spark"), "a release in Spark has no lists: leave it out, or publish to a file"),
    Row(OF_POPULATION, LOCAL, "{local} does not use a population: " + WIDE),
    Row(OF_TABLE, LOCAL, "{local} decides class by class, and this requirement is about the whole table: " + WIDE),
    Row(UNKNOWN_REQUIREMENT, KNOWS_SOME, "{local} supports only {known}: " + WIDE),
    Row(
        NO_KEY,
        DIVIDES,
        "is missing: strategy {strategy} divides equal rows by it; add the columns that identify a row, such as "
        'key = "id"',
    ),
    Row(
        PERSON,
        DIVIDES,
        "strategy {strategy} counts rows, so a class of k rows may be of one person: use another strategy, such as "
        "optimal, local or mondrian",
    ),
)
IDENTIFICATIONS = (Row(IDENTIFICATION, NO_COMBINATIONS, "applies to strategy {able}, not to {strategy}: leave it out"),)
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
        NO_USE,
        "is not used: only {kinds} use it, and `risk` with a [risk] section; add one of them under [privacy], or leave "
        "the section out",
    ),
    Row(
        WRITTEN_MASK,
        PRESENCE,
        'a masked class cannot be compared with a class of the population: with {requirement}, use "drop"',
    ),
)
BUDGETS = (
    Row(
        _given("privacy.epsilon", "privacy.epsilon_total", "privacy.linkable_noise", "privacy.confidence"),
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
        OF_COMBINATIONS,
        NOISE,
        "noise needs classes of k rows, which {strategy} does not guarantee: use optimal, for example",
    ),
)
AFTER_NOISE = (
    Row(
        CONFIDENCE,
        PERSON,
        "counts rows, and source.person counts persons: give the attribute a hierarchy in place of noise; without "
        "confidence, the release does not promise that k records are near a noisy one",
    ),
    Row(
        UNKNOWN_WITH_NOISE,
        DECIDED_OF_PERSONS,
        "suppresses rows after {decided} decided: exclude these rows with query = ... under [source]",
    ),
    Row(
        CONFIDENCE,
        DECIDED,
        "suppresses rows after {decided} decided: give the attribute a hierarchy in place of noise; without "
        "confidence, the release does not promise that k records are near a noisy one",
    ),
)
WITH_EARLIER = (
    Row(AFTER, LOCAL, "{local} has no levels to compare with an earlier release: use a full-domain strategy"),
    Row(
        AFTER,
        OF_CLASSES,
        "measure {measure} counts classes, and `after` splits them: use loss, for example",
    ),
    Row(AFTER, MASK, 'masked rows would reveal rows that no release has shown: use suppressed = "drop"'),
    Row(AFTER, POPULATION, "requirements with a population cannot be checked across releases: " + WITHOUT_AFTER),
    Row(AFTER, ESTIMATE, "population uniqueness is estimated from whole classes: " + WITHOUT_AFTER),
    Row(AFTER, NOISE, "noise is drawn anew in each release: " + WITHOUT_AFTER),
)
IN_LEDGER = (
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
        "two versions can single out whoever has come or gone in between",
    ),
)
WITH_DECOYS = (
    Row(SMALL_K, DECOYS, "decoys fill classes up to k rows: add k = 5, for example"),
    Row(
        DECOYS,
        MORE_THAN_K,
        "work with k alone: decoys, which belong to nobody, would decide whether {requirement} holds; "
        + WITHOUT_DECOYS,
    ),
    Row(
        DECOYS,
        LOCAL,
        "{local} has no levels above a class to take values from: use a full-domain strategy",
    ),
    Row(
        DECOYS,
        NOISE,
        "noise hides a record among real records, and decoys are not real: " + WITHOUT_DECOYS,
    ),
    Row(DECOYS, PERSON, "belong to nobody, and source.person counts persons: " + WITHOUT_DECOYS),
    Row(DECOYS, POPULATION, "are not in the population that classes are compared with: " + WITHOUT_DECOYS),
    Row(DECOYS, MASK, 'fill the classes whose rows would be masked: use suppressed = "drop"'),
    Row(DECOYS, AFTER, "are missing from earlier releases, which would reveal them: " + WITHOUT_DECOYS),
)
ROWS_ELSEWHERE = (
    Row(
        PERSON,
        WAREHOUSE,
        "a warehouse counts rows, so a class of k rows may be of one person: anonymize the table where persons are "
        "counted (DuckDB, PostgreSQL or Spark), or make it one row a person",
    ),
    Row(
        COMPARES_PERSONS,
        ELSEWHERE,
        "compares persons row by row, {rows}: anonymize a copy of the table in DuckDB; without it, released rows may "
        "be attributed to other people",
    ),
    Row(
        KEY,
        ELSEWHERE,
        "keys are recorded row by row, {rows}: leave it out; `extend` and `after`, which need it, read rows, too",
    ),
    Row(NOISE_OF_EACH, COUNTED, "is drawn row by row, {rows}: give it a hierarchy"),
    Row(
        TABLE_HIERARCHY,
        ELSEWHERE,
        "names a table of a DuckDB source, and this one is {where}: export it, and use file = ...",
    ),
    Row(RISK, ELSEWHERE, "needs single rows, {rows}: leave it out, and measure the risk of a release"),
    Row(LISTS, ELSEWHERE, "lists are made where sqlanon runs, {rows}: leave it out"),
    Row(LOCAL, COUNTED, "{local} places rows one by one, {rows}: " + WIDE, at="search"),
    Row(DIVIDES, FROM_SPARK, "strategy {strategy} divides equal rows by their key, {rows}: " + WIDE),
    Row(
        POPULATION_OF_SOURCE,
        ELSEWHERE,
        "a table of a source {where} cannot be the population: give database = ... or files = ...",
    ),
    Row(DECOYS, ELSEWHERE, "are drawn among the rows, {rows}: " + WITHOUT_DECOYS),
    Row(AFTER, ELSEWHERE, "needs the rows of an earlier release, {rows}: " + WITHOUT_AFTER),
    Row(BESIDE_SOURCE, ELSEWHERE, IN_SCHEMA_OF_SOURCE),
    Row(
        IN_SPARK,
        NOT_IN_SPARK,
        "applies to a source in Spark, and this source is elsewhere: give database = ... or file = ...",
    ),
    Row(UNNAMED, WAREHOUSE, "must be table, schema.table or database.schema.table, as the warehouse has it"),
    Row(
        _setting("release.database", "release.file", "release.postgres", "release.spark"),
        FREQUENCY_SET,
        "a frequency set has no rows to release: leave it out, export the statement that creates the release there, "
        'and name that with table = "schema.name"',
    ),
    Row(KEEP, FREQUENCY_SET, "applies to a release in a database of its own: leave it out"),
    Row(IS_SOURCE, FREQUENCY_SET, "is the source: name another table of the warehouse"),
)
IN_A_RELEASE = "publish a release with anonymize, which keeps it"
LIVE_VIEWS = (
    Row(FILES, LIVE, "a view needs a database: load the files into a table"),
    Row(QUERY, LIVE, "create a view with this query, and name it: table = ..."),
    Row(POPULATION, LIVE, "may change while the view is read: " + IN_A_RELEASE),
    Row(OF_POPULATION, LIVE, "needs a population, which a view does not read: " + IN_A_RELEASE),
    Row(OF_TABLE, LIVE, "is about the whole table and suppresses nothing, so a view cannot keep it: " + IN_A_RELEASE),
    Row(LOCAL, LIVE, "recodes below the full domain: a view shows one level of each attribute; use optimal"),
    Row(MASK, LIVE, 'a view omits suppressed rows: use "drop"'),
    Row(AFTER, LIVE, "a view changes with its table, and cannot be compared with earlier releases"),
    Row(DECOYS, LIVE, "are drawn once, and a view is computed on each read: " + WITHOUT_DECOYS),
    Row(
        NOISE_OF_EACH,
        LIVE,
        "noise that a view draws on each read can be averaged away: give the attribute a hierarchy",
    ),
)
EXTENSIONS = (
    Row(_missing("source.key"), EXTENDED, "is missing: name the columns that identify a row and never change"),
    Row(POPULATION, EXTENDED, "does not grow with the release: run anonymize again"),
    Row(LOCAL, EXTENDED, "recodes below the full domain: new rows have no level to be at", at="search.strategy"),
    Row(OF_ONE_SOURCE, EXTENDED, "compares with one source, and an extended release has rows of several"),
    Row(_missing("catalog"), EXTENDED, "is missing: its ledger records what was released"),
    Row(NO_FILE, EXTENDED, "only a release in a file can be extended"),
    Row(NOISE, EXTENDED, "noise is drawn once for all rows of a class: run anonymize again"),
    Row(
        ESTIMATE,
        EXTENDED,
        "is estimated from one source, and an extended release has rows of several: run anonymize again",
    ),
    Row(MASK, EXTENDED, 'masked rows cannot be taken back: use "drop"'),
    Row(KEEP, EXTENDED, "an extended release contains the one before: leave it out"),
    Row(DECOYS, EXTENDED, "decoys cannot be distinguished from rows: run anonymize again"),
    Row(DRAFT, EXTENDED, "is for trying out, and a draft is not extended: publish a release first"),
)

TABLE: Mapping[str, Sequence[Row]] = {
    "Strategies, measures and weights": (*OF_SEARCH, *WEIGHTS),
    "Requirements and strategies": (*OF_STRATEGIES, *IDENTIFICATIONS),
    "Populations": POPULATIONS,
    "Noise": (*BUDGETS, *WITH_NOISE, *AFTER_NOISE),
    "Earlier releases": (*WITH_EARLIER, *IN_LEDGER),
    "Versions": OF_RELEASE,
    "Decoys": WITH_DECOYS,
    "Sources whose rows stay where they are": ROWS_ELSEWHERE,
    "Live views": LIVE_VIEWS,
    "Releases that grow": EXTENSIONS,
}
"""All rows, by the part of a policy that they are about."""


# --- The page

_INTRODUCTION = """# What goes together

What a policy cannot ask for at once, or what cannot be done with it. Each row is a mistake of the policy, reported with
all others before anything is read; `…` stands for names that the message gives. The page is the table in
`sqlanon/policy/compatibility.py`, in Markdown.
"""


class _Names(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "…"


def page() -> str:
    parts = [_INTRODUCTION]
    for title, rows in TABLE.items():
        lines = [f"| {row.feature.words} | {row.beside.words} | {row.message.format_map(_Names())} |" for row in rows]
        parts.append(
            "\n".join([f"## {title}\n", "| feature | does not go with | message |", "| --- | --- | --- |", *lines, ""])
        )
    return "\n".join(parts)
