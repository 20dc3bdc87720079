"""The settings of a session of Spark that the meaning of statements depends on: ours as long as an engine works in it.

A user may set others at any time, in the same session. So they are looked at before each piece of work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from sqlanon.engines.spark.errors import error_condition, is_spark_error
from sqlanon.errors import SourceError

_ORDER = "spark.sql.functionResolution.sessionOrder"
_PATH = "spark.sql.path.enabled"

SETTINGS: Mapping[str, str] = {
    # What is read as text, and what text becomes, means the same in each session.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    # A name such as ${env:HOME} would become what the environment of the driver says.
    "spark.sql.variable.substitute": "false",
    # Spark's own functions come before those that a session has registered, and its views before tables.
    _ORDER: "second",
    _PATH: "false",
    "spark.sql.crossJoin.enabled": "true",
    # It may give values that no row has.
    "spark.sql.optimizer.metadataOnly": "false",
    # Spark's own way of old keeps no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Java compiles no method that is larger: the digest of ten columns would be interpreted, and take a third longer.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}
"""What is set, whatever the session has."""

_OF_MEANING = re.compile(
    r"spark\.sql\.(?:ansi|analyzer|collation|function|groupBy|legacy|optimizer\.decorrelate|orderBy|parser)"
    r"(?:[.A-Z].*)?"
)
_OF_SOURCES = re.compile(
    r"spark\.sql\.(?:analyzer\.maxIterations"
    r"|legacy\.(?:avro|csv|db2|jdbc|json|mssqlserver|mysql|oracle|parquet|postgres|useLegacyXMLParser)\b.*)"
)
"""Families of settings that change what SQL means. They are at Spark's defaults meanwhile, but for those that say how
files and databases are read: these belong to the source."""


@dataclass
class _Held:
    engines: int = 0  # how many work in it
    before: dict[str, str | None] = field(default_factory=dict)  # what the settings were; None: Spark's default
    seen: Any = None  # all settings as they were left: Java's map of them and a copy, or what a server told


_HELD: WeakKeyDictionary[Any, _Held] = WeakKeyDictionary()


def acquire_settings(session: Any, place: str, is_ours: bool) -> None:
    """Take the settings of a session over; `release_settings` gives them back when as many engines have ended as have
    begun."""
    if not is_ours:
        _refuse_replaced_functions(session, place)
    has_path = session.conf.get(_PATH, "false") == "true"
    held = _HELD.setdefault(session, _Held())
    held.engines += 1
    try:
        enforce_settings(session)
        if has_path:
            _refuse_own_path(session, place)
    except BaseException:
        release_settings(session)
        raise


def enforce_settings(session: Any) -> None:
    """Set what a user has set meanwhile as it has to be. (One call where nobody has.)"""
    held = _HELD[session]
    if _is_as_seen(session, held.seen):
        return
    conf = session.conf
    for name, value in SETTINGS.items():
        if (now := conf.get(name, None)) != value:
            held.before[name] = now
            conf.set(name, value)
    for name, now in dict(conf.getAll).items():
        if _is_of_meaning(name) and conf.isModifiable(name):
            held.before[name] = now
            conf.unset(name)
    held.seen = _seen(session)


def release_settings(session: Any) -> None:
    """Give the settings back, unless others work in the session."""
    held = _HELD[session]
    held.engines -= 1
    if held.engines:
        return
    del _HELD[session]
    for name, value in held.before.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)


def replaced_functions(session: Any) -> frozenset[str]:
    """The functions of Spark that functions of the user take the place of, in the user's own statements."""
    if _HELD[session].before.get(_ORDER) != "first":
        return frozenset()
    own, system = (
        {str(row[0]).lower().rpartition(".")[2] for row in session.sql(f"SHOW {kind} FUNCTIONS").collect()}
        for kind in ("USER", "SYSTEM")
    )
    return frozenset(own & system)


def _is_of_meaning(name: str) -> bool:
    return name not in SETTINGS and bool(_OF_MEANING.fullmatch(name)) and not _OF_SOURCES.fullmatch(name)


def _refuse_replaced_functions(session: Any, place: str) -> None:
    """Refuse a Spark that lets functions of a session take the place of its own, whatever is set."""
    try:
        session.conf.get(_ORDER)
    except Exception as error:
        if not is_spark_error(error) or "CONF_NOT_FOUND" not in error_condition(error):
            raise
        raise SourceError(
            f"{place}: this Spark ({session.version}) lets functions of a session take the place of its own: give "
            "sqlanon the address of the server, for a session of its own, or use Spark 4.3"
        ) from None


def _refuse_own_path(session: Any, place: str) -> None:
    """Refuse a session in which names of tables are looked for in other places than they are without a path."""
    found = set()
    for value in ("true", "false"):
        session.conf.set(_PATH, value)
        found.add(session.sql("SELECT current_path()").collect()[0][0])
    if len(found) > 1:
        raise SourceError(
            f"{place}: the session has a search path of its own, which could lead names elsewhere: "
            "SET PATH = DEFAULT_PATH, or use another session"
        )


def _settings(session: Any) -> Any:
    """All settings of a session: Java's map, of a driver beside us; else what the server tells."""
    java = getattr(session, "_jsparkSession", None)
    return dict(session.conf.getAll) if java is None else java.sessionState().conf().settings()


def _seen(session: Any) -> Any:
    settings = _settings(session)
    return settings if isinstance(settings, dict) else (settings, session._jvm.java.util.HashMap(settings))


def _is_as_seen(session: Any, seen: Any) -> bool:
    if isinstance(seen, tuple):
        settings, copy = seen
        return bool(settings.equals(copy))
    return seen is not None and _settings(session) == seen
