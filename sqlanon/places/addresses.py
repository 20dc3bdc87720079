"""Addresses of servers and locations of releases in a policy.

A policy holds no password and no token, because many people read it, and catalogs and version control keep it. libpq
finds passwords itself (``PGPASSWORD``, ``~/.pgpass``, ``PGSERVICE``); otherwise ``env:NAME`` names an environment
variable with the whole address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, WithJsonSchema

from sqlanon.errors import SourceError
from sqlanon.support.fields import Flaw, in_words
from sqlanon.support.names import table_parts

SERVER_NAMES = {"postgres": "PostgreSQL", "spark": "Spark"}
"""The names of servers, by their keys in ``[source]`` and ``[release]``."""

_VARIABLE = "env:"


def is_variable(place: str) -> bool:
    """Whether a text names an environment variable."""
    return place.startswith(_VARIABLE)


def resolve_variable(place: str) -> str:
    """Replace ``env:NAME`` by the value of the variable (empty if it is unset); any other text stays."""
    return os.environ.get(place[len(_VARIABLE) :], "") if is_variable(place) else place


def resolve_address(place: str, is_valid: Callable[[str], bool], expected: str) -> str:
    """Resolve and validate an address. Errors do not quote the variable, which may hold a password."""
    address = resolve_variable(place)
    if is_variable(place) and not is_valid(address):
        flaw = f"holds no address {expected}" if address else "is not set"
        raise SourceError(f"the environment variable {place[len(_VARIABLE) :]} {flaw}")
    return address


def require_address_text(value: object, example: str) -> str:
    """Refuse an address that is not a text or is empty."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be an address in quotes, such as {example}, not {in_words(value)}")
    if is_variable(value) and not value[len(_VARIABLE) :].strip():
        raise ValueError('names no environment variable: write "env:NAME"')
    return value


# PostgreSQL

_SCHEMES = ("postgresql://", "postgres://")
_POSTGRES_SECRETS = {
    "password", "passwd", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key",
}  # fmt: skip
"""Options of libpq that hold a secret. A ``passfile`` only names a file."""

_ENCODED = r"(?:[^\s\x00-\x20\x7f%:/?#@&=,\[\]]|%[0-9a-fA-F]{2})"
_HOST = rf"(?:\[[0-9a-fA-F:.%]+\]|{_ENCODED}*)(?::[0-9]*)?"
_WELL_FORMED = re.compile(
    rf"postgres(?:ql)?://(?:{_ENCODED}*@)?{_HOST}(?:,{_HOST})*(?:/{_ENCODED}*)?"
    rf"(?:\?[A-Za-z_]+=(?:{_ENCODED}|[:/?@,])*(?:&[A-Za-z_]+=(?:{_ENCODED}|[:/?@,])*)*)?"
)
"""An unambiguous address. libpq accepts more: it ignores blanks, and option names may be encoded."""

MANIFEST = "sqlanon_manifest"
"""The table in the schema of releases with the manifest of each release."""

VERSION_DIGITS = 6
"""The greatest number of digits of a version."""

_VERSION_BYTES = len("_v") + VERSION_DIGITS

MAX_NAME_BYTES = 63
"""The number of bytes to which PostgreSQL truncates names."""


def is_postgres(place: str) -> bool:
    """Whether a text is the address of a PostgreSQL server, or an environment variable."""
    return place.startswith(_SCHEMES) or is_variable(place)


def resolve_postgres_address(place: str) -> str:
    return resolve_address(place, lambda address: address.startswith(_SCHEMES), "that begins with postgresql://")


def server_address(address: str) -> str:
    """Reduce an address to host and database, without user and options.

    >>> server_address("postgresql://me:secret@db.example:5433/hospital?sslmode=require")
    'postgresql://db.example:5433/hospital'
    """
    _, host, options, name = _parts(address)
    # The host option may be the folder of a socket.
    option_host = ":".join(quote(options[key], safe="") for key in ("host", "port") if key in options)
    return f"postgresql://{host or option_host}/{name or options.get('dbname', '')}"


def is_postgres_location(path: Path) -> bool:
    """Whether a path in the ledger is a release in PostgreSQL: `server_address`, schema and name."""
    return path.parts[:1] == ("postgresql:",)


def _parts(address: str) -> tuple[str, str, dict[str, str], str]:
    """Split an address into user (with password), hosts, options and database, as libpq does.

    >>> _parts("postgresql://me:a?b@db/hospital? password =x&sslm%6Fde=require")
    ('me:a?b', 'db', {'password': 'x', 'sslmode': 'require'}, 'hospital')
    """
    location = address.partition("://")[2]
    user = ""
    if "@" in location.partition("/")[0]:  # the user may contain a question mark
        user, _, location = location.partition("@")
    location, _, options = location.partition("?")
    host, _, name = location.partition("/")
    pairs = (option.partition("=")[::2] for option in options.split("&") if option)
    return user, host, {unquote(key).strip(): unquote(value).strip() for key, value in pairs}, name


def _postgres_address(value: object) -> str:
    value = require_address_text(value, "postgresql://user@host/database")
    if is_variable(value):
        return value
    # Messages do not quote the address, which may hold a password.
    if not value.startswith(_SCHEMES):
        raise ValueError("must begin with postgresql://, or be env:NAME for an address in an environment variable")
    user, _, options, _ = _parts(value)
    if ":" in unquote(user) or {option.lower() for option in options} & _POSTGRES_SECRETS:
        raise ValueError(
            "contains a password, which does not belong in a policy: leave it out, and set PGPASSWORD or keep it in "
            '~/.pgpass; or put the whole address in an environment variable and write "env:NAME"'
        )
    if not _WELL_FORMED.fullmatch(value):
        raise ValueError(
            "is not well formed: write postgresql://user@host:port/database?option=value, with characters other than "
            'letters and digits as %20 (no blanks); or put it in an environment variable and write "env:NAME"'
        )
    return value


PostgresAddress: TypeAlias = Annotated[
    str, BeforeValidator(_postgres_address), WithJsonSchema({"type": "string", "pattern": "^(postgres(ql)?://|env:).+"})
]


def postgres_name_flaws(table: str) -> Iterator[Flaw]:
    """Find flaws in the name of a release in PostgreSQL: it needs a schema, and room for a version."""
    parts, flaw = table_parts(table), None
    if len(parts) != 2:
        flaw = 'must be "schema.name": a release in PostgreSQL is in a separate schema, which readers may use'
    elif parts[1] == MANIFEST:
        flaw = "is the name of the table of manifests: choose another"
    elif len(parts[1].encode()) > MAX_NAME_BYTES - _VERSION_BYTES:
        flaw = f"is too long: PostgreSQL keeps {MAX_NAME_BYTES} bytes of a name, and a version needs {_VERSION_BYTES}"
    if flaw is not None:
        yield ("table",), flaw


# Spark

CONNECT = "sc://"
SESSION = "session"
"""The address of a connected session."""

_IN_SPARK = "spark:"
_SPARK_NAME = re.compile("[A-Za-z0-9_]+")
_SPARK_MASTER = re.compile(
    r"local(\[(\*|[0-9]+)(,\s*[0-9]+)?\])?|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]|"
    r"spark://[^\s/?#]+|yarn|k8s://\S+"
)
_CONNECT_ADDRESS = re.compile(r"sc://[^\s/?#;@]+(/(;[A-Za-z_-]+=[^\s;]*)*)?")
_CONNECT_SECRETS = {"token", "x-databricks-session-token", "authorization"}
"""Options of Spark Connect that hold a secret."""


def is_spark(place: str) -> bool:
    """Whether a text is the address of Spark: a Connect server or a master.

    >>> [is_spark(text) for text in ("sc://host:15002", "local[2]", "spark://host:7077", "hospital.duckdb", "locals")]
    [True, True, True, False, False]
    """
    return place.startswith(CONNECT) or bool(_SPARK_MASTER.fullmatch(place))


def is_session(source: Any) -> bool:
    """Whether an object is a Spark session, classic or Connect. Nothing is imported for the check."""
    return type(source).__name__ == "SparkSession" and type(source).__module__.startswith("pyspark.sql")


def resolve_spark_address(place: str) -> str:
    return resolve_address(place, is_spark, "of Spark, such as sc://host:port or local[2]")


def format_spark_address(address: str) -> str:
    """Format an address for messages and the ledger: without options, which may hold a token.

    >>> format_spark_address("sc://host:15002/;token=secret;user_id=me"), format_spark_address("local[2]")
    ('sc://host:15002', 'local[2]')
    """
    return address.partition("/;")[0].rstrip("/") if address.startswith(CONNECT) else address


def _spark_address(value: object) -> str:
    value = require_address_text(value, '"sc://host:port" or "local[2]"')
    if is_variable(value):
        return value
    # Messages do not quote the address, which may hold a token.
    if not is_spark(value):
        raise ValueError(
            "must be sc://host:port of a Spark Connect server, or a master: spark://host:port, local[N], "
            "local-cluster[workers,cores,megabytes], yarn; or env:NAME for an address in an environment variable"
        )
    if value.startswith(CONNECT):
        if not _CONNECT_ADDRESS.fullmatch(value):
            raise ValueError("is not well formed: write sc://host:port, or sc://host:port/;option=value")
        options = [option.partition("=")[0].strip().lower() for option in value.split(";")[1:]]
        if _CONNECT_SECRETS.intersection(options):
            raise ValueError(
                "contains a token, which does not belong in a policy: put the whole address in an environment variable "
                'and write "env:NAME"'
            )
    return value


SparkAddress: TypeAlias = Annotated[
    str, BeforeValidator(_spark_address), WithJsonSchema({"type": "string", "minLength": 1})
]


def resolves_to_spark(place: str) -> bool:
    return is_spark(resolve_variable(place))


def spark_location(address: str, schema: str, name: str) -> Path:
    """The location of a release in Spark, as a path for the ledger, without a token."""
    return Path(_IN_SPARK, quote(format_spark_address(address), safe=":[]*,"), f"{schema}.{name}")


def is_spark_location(path: Path) -> bool:
    """Whether a path in the ledger is a release in Spark."""
    return path.parts[:1] == (_IN_SPARK,)


def spark_name_flaw(table: str) -> str | None:
    """Find a flaw in the name of a release in Spark, whose catalog allows letters, digits and ``_``."""
    parts = table_parts(table)
    if len(parts) != 2:
        return 'must be "schema.name": a release in Spark has a schema, which readers may use'
    if parts[0].lower() in ("session", "global_temp"):  # which a session finds first
        return f"is in {parts[0]!r}, which is Spark's name for temporary views: name another schema"
    if not all(_SPARK_NAME.fullmatch(part) for part in parts):
        return "has other characters than letters, digits and _, which the catalog of Spark does not allow"
    return None


# Locations of releases


def is_server(place: str) -> bool:
    """Whether a text is the address of a PostgreSQL server or of Spark, and not a file."""
    return is_spark(place) or is_postgres(place)


def format_location(path: Path) -> str:
    """Format the location of a release for messages: a file, or an address without secrets.

    >>> format_location(Path("postgresql://db/hospital/public.patients")), format_location(Path("r.duckdb"))
    ('postgresql://db/hospital/public.patients', 'r.duckdb')
    >>> format_location(spark_location("sc://host:15002/;token=secret", "shared", "r"))
    'sc://host:15002/shared.r'
    """
    if is_spark_location(path):
        _, address, *table = path.parts
        return "/".join((unquote(address), *table))
    if not is_postgres_location(path):
        return str(path)
    has_host = len(path.parts) > len(("postgresql:", "database", "schema.name"))
    return "/".join(("postgresql:", "", *(() if has_host else ("",)), *path.parts[1:]))  # a Path drops empty parts


def database_path_flaw(path: Path) -> str | None:
    """Find a reason why DuckDB cannot write a database at a path, or None.

    DuckDB takes a question mark as the end of the path, and a backslash as a slash, so its write-ahead log would be
    elsewhere.

    >>> database_path_flaw(Path("/data/what now?/release.duckdb"))
    "has '?' in its path, which DuckDB cannot write a database at: use another folder or name"
    """
    characters = ("?",) if os.sep == "\\" else ("?", "\\")
    character = next((character for character in characters if character in str(path)), None)
    if character is None:
        return None
    return f"has {character!r} in its path, which DuckDB cannot write a database at: use another folder or name"


_OTHER_SUFFIXES = (
    *(".csv", ".tsv", ".txt", ".json", ".jsonl", ".xlsx", ".html", ".toml"),
    *(".sav", ".zsav", ".dta", ".sas7bdat", ".xpt"),
)


def release_file_flaw(path: Path) -> str | None:
    """Find a reason why a release cannot have a file name, or None: programs open files by their suffix.

    >>> release_file_flaw(Path("people.csv"))
    'ends in .csv, and a release is a DuckDB or Parquet file: name it people.duckdb or people.parquet'
    """
    suffix = path.suffix.lower()
    if suffix not in _OTHER_SUFFIXES:
        return None
    names = f"{path.stem}.duckdb or {path.stem}.parquet"
    return f"ends in {suffix}, and a release is a DuckDB or Parquet file: name it {names}"
