"""The settings of a Spark session that statements depend on: sqlanon sets them while an engine works in the session.

The user may change settings of the same session at any time, so they are checked before each piece of work.
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
    # Conversions from and to texts.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    # A name such as ${env:HOME} would be replaced by a variable of the driver's environment.
    "spark.sql.variable.substitute": "false",
    # Spark's functions take precedence over functions of the session, and temporary views over tables.
    _ORDER: "second",
    _PATH: "false",
    "spark.sql.crossJoin.enabled": "true",
    # It may return values that no row has.
    "spark.sql.optimizer.metadataOnly": "false",
    # Spark's legacy format has no time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Java does not compile larger methods: the digest of ten columns would be interpreted and take a third longer.
    "spark.sql.codegen.hugeMethodLimit": "8000",
}
"""Settings that are always set."""

_MEANING_PATTERN = re.compile(
    r"spark\.sql\.(?:ansi|analyzer|collation|function|groupBy|legacy|optimizer\.decorrelate|orderBy|parser)"
    r"(?:[.A-Z].*)?"
)
_SOURCE_PATTERN = re.compile(
    r"spark\.sql\.(?:analyzer\.maxIterations"
    r"|legacy\.(?:avro|csv|db2|jdbc|json|mssqlserver|mysql|oracle|parquet|postgres|useLegacyXMLParser)\b.*)"
)
"""Settings that change the meaning of SQL. They are reset to Spark's defaults, except those for reading files and
databases, which belong to the source."""


@dataclass
class _SessionState:
    engines: int = 0  # engines that work in the session
    replaced: dict[str, str | None] = field(default_factory=dict)  # the user's values; None: Spark's default
    last_settings: Any = None  # all settings after the last check: Java's map and a copy, or a server's values


_SESSIONS: WeakKeyDictionary[Any, _SessionState] = WeakKeyDictionary()


def acquire_settings(session: Any, place: str, is_own: bool) -> None:
    """Set the settings of a session; `release_settings` restores them when its last engine ends."""
    if not is_own:
        _refuse_replaced_functions(session, place)
    has_search_path = session.conf.get(_PATH, "false") == "true"
    state = _SESSIONS.setdefault(session, _SessionState())
    state.engines += 1
    try:
        enforce_settings(session)
        if has_search_path:
            _refuse_search_path(session, place)
    except BaseException:
        release_settings(session)
        raise


def enforce_settings(session: Any) -> None:
    """Set the settings again that the user has changed; a single call if there are none."""
    state = _SESSIONS[session]
    if _is_unchanged(session, state.last_settings):
        return
    conf = session.conf
    for name, value in SETTINGS.items():
        if (current := conf.get(name, None)) != value:
            state.replaced[name] = current
            conf.set(name, value)
    for name, current in dict(conf.getAll).items():
        if _changes_meaning(name) and conf.isModifiable(name):
            state.replaced[name] = current
            conf.unset(name)
    settings = _settings(session)
    is_dict = isinstance(settings, dict)
    state.last_settings = settings if is_dict else (settings, session._jvm.java.util.HashMap(settings))


def release_settings(session: Any) -> None:
    """Restore the user's settings, unless another engine works in the session."""
    state = _SESSIONS[session]
    state.engines -= 1
    if state.engines:
        return
    del _SESSIONS[session]
    for name, value in state.replaced.items():
        if value is None:
            session.conf.unset(name)
        else:
            session.conf.set(name, value)


def replaced_functions(session: Any) -> frozenset[str]:
    """The functions of Spark that functions of the user replace in the user's statements."""
    if _SESSIONS[session].replaced.get(_ORDER) != "first":
        return frozenset()
    user_functions, system_functions = (
        {str(row[0]).lower().rpartition(".")[2] for row in session.sql(statement).collect()}
        for statement in ("SHOW USER FUNCTIONS", "SHOW SYSTEM FUNCTIONS")
    )
    return frozenset(user_functions & system_functions)


def _changes_meaning(name: str) -> bool:
    return name not in SETTINGS and bool(_MEANING_PATTERN.fullmatch(name)) and not _SOURCE_PATTERN.fullmatch(name)


def _refuse_replaced_functions(session: Any, place: str) -> None:
    """Refuse a Spark version in which functions of a session replace its own regardless of settings."""
    try:
        session.conf.get(_ORDER)
    except Exception as error:
        if not is_spark_error(error) or "CONF_NOT_FOUND" not in error_condition(error):
            raise
        raise SourceError(
            f"{place}: in this Spark ({session.version}), functions of a session replace those of Spark: give "
            "sqlanon the address of the server, for a separate session, or use Spark 4.3"
        ) from None


def _refuse_search_path(session: Any, place: str) -> None:
    """Refuse a session whose search path changes where tables are looked up."""
    paths = set()
    for value in ("true", "false"):
        session.conf.set(_PATH, value)
        paths.add(session.sql("SELECT current_path()").collect()[0][0])
    if len(paths) > 1:
        raise SourceError(
            f"{place}: the session has a search path, which could change where tables are looked up: "
            "SET PATH = DEFAULT_PATH, or use another session"
        )


def _settings(session: Any) -> Any:
    """All settings of a session: Java's map for a driver on this machine, or the server's values."""
    java = getattr(session, "_jsparkSession", None)
    return dict(session.conf.getAll) if java is None else java.sessionState().conf().settings()


def _is_unchanged(session: Any, last: Any) -> bool:
    if isinstance(last, tuple):
        settings, copy = last
        return bool(settings.equals(copy))
    return last is not None and _settings(session) == last
