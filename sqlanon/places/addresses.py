"""Addresses of servers and places of releases, as policies write them.

A password or a token stands in no policy: many read one, and it is kept in catalogs and in version control. libpq finds
a password by itself (``PGPASSWORD``, ``~/.pgpass``, ``PGSERVICE``); or the policy names an environment variable that
has the whole address.
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

_VARIABLE = "env:"


def is_variable(place: str) -> bool:
    """Whether a text names an environment variable.

    >>> is_variable("env:HOSPITAL"), is_variable("postgresql://db/hospital")
    (True, False)
    """
    return place.startswith(_VARIABLE)


def resolve_variable(place: str) -> str:
    """What the environment has for ``env:NAME``, if anything; any other text itself."""
    return os.environ.get(place[len(_VARIABLE) :], "") if is_variable(place) else place


def resolve_address(place: str, is_right: Callable[[str], bool], which: str) -> str:
    """The address itself: of ``env:NAME``, what the environment says. No error says what a variable holds."""
    address = resolve_variable(place)
    if is_variable(place) and not is_right(address):
        wrong = f"holds no address {which}" if address else "is not set"
        raise SourceError(f"the environment variable {place[len(_VARIABLE) :]} {wrong}")
    return address


def require_address_text(value: object, such_as: str) -> str:
    """What is written for an address, if it can be one: a text that has something in it."""
    if not isinstance(value, str) or not value:
        raise ValueError(f"must be an address in quotes, such as {such_as}, not {in_words(value)}")
    if is_variable(value) and not value[len(_VARIABLE) :].strip():
        raise ValueError('names no environment variable: write "env:NAME"')
    return value


_SCHEMES = ("postgresql://", "postgres://")
_POSTGRES_SECRETS = (
    *("password", "passwd", "sslpassword", "oauth_client_secret"),
    *("scram_client_key", "scram_server_key"),
)
"""Options of libpq that hold a secret themselves; a ``passfile`` only says where one stands."""

_ENCODED = r"(?:[^\s\x00-\x20\x7f%:/?#@&=,\[\]]|%[0-9a-fA-F]{2})"
_HOST = rf"(?:\[[0-9a-fA-F:.%]+\]|{_ENCODED}*)(?::[0-9]*)?"
_WELL_FORMED = re.compile(
    rf"postgres(?:ql)?://(?:{_ENCODED}*@)?{_HOST}(?:,{_HOST})*(?:/{_ENCODED}*)?"
    rf"(?:\?[A-Za-z_]+=(?:{_ENCODED}|[:/?@,])*(?:&[A-Za-z_]+=(?:{_ENCODED}|[:/?@,])*)*)?"
)
"""An address that can be read in one way only. libpq is laxer: it passes over blanks, and names may be encoded."""

MANIFEST = "sqlanon_manifest"
"""The table, in the schema of releases, that has one row for each of them: what it claims."""

VERSION_DIGITS = 6
"""The most digits of the number of a version."""

_OF_VERSION = len("_v") + VERSION_DIGITS

LONGEST_NAME = 63
"""The bytes that PostgreSQL keeps of a name; the rest is cut off in silence."""


def is_postgres(place: str) -> bool:
    """Whether a text is the address of a PostgreSQL server, or says where it stands.

    >>> is_postgres("postgresql://analyst@db/hospital"), is_postgres("env:HOSPITAL"), is_postgres("release.duckdb")
    (True, True, False)
    """
    return place.startswith(_SCHEMES) or is_variable(place)


def resolve_postgres_address(place: str) -> str:
    return resolve_address(place, lambda address: address.startswith(_SCHEMES), "that begins with postgresql://")


def server_address(address: str) -> str:
    """Host and database of an address, and neither user nor options: the same for the same place.

    >>> server_address("postgresql://me:secret@db.example:5433/hospital?sslmode=require")
    'postgresql://db.example:5433/hospital'
    """
    _, host, options, name = _parts(address)
    by_options = ":".join(quote(options[key], safe="") for key in ("host", "port") if key in options)  # or a folder
    return f"postgresql://{host or by_options}/{name or options.get('dbname', '')}"


def is_postgres_location(path: Path) -> bool:
    """Whether a path is the place of a release in PostgreSQL, as the ledger has it: `server_address`, schema and name.

    >>> is_postgres_location(Path("postgresql://db/hospital/public.patients")), is_postgres_location(Path("r.duckdb"))
    (True, False)
    """
    return path.parts[:1] == ("postgresql:",)


def _parts(address: str) -> tuple[str, str, dict[str, str], str]:
    """User (with a password, if there is one), hosts, options and database, taken apart as libpq does.

    >>> _parts("postgresql://me:a?b@db/hospital? password =x&sslm%6Fde=require")
    ('me:a?b', 'db', {'password': 'x', 'sslmode': 'require'}, 'hospital')
    """
    rest = address.partition("://")[2]
    user = ""
    if "@" in rest.partition("/")[0]:  # a question mark may stand before it
        user, _, rest = rest.partition("@")
    rest, _, options = rest.partition("?")
    host, _, name = rest.partition("/")
    pairs = (one.partition("=")[::2] for one in options.split("&") if one)
    return user, host, {unquote(key).strip(): unquote(value).strip() for key, value in pairs}, name


def _postgres_address(value: object) -> str:
    value = require_address_text(value, "postgresql://user@host/database")
    if is_variable(value):
        return value
    # What was written is not quoted: it may hold a password.
    if not value.startswith(_SCHEMES):
        raise ValueError("must begin with postgresql://, or be env:NAME for an address in an environment variable")
    user, _, options, _ = _parts(value)
    if ":" in unquote(user) or {one.lower() for one in options} & set(_POSTGRES_SECRETS):
        raise ValueError(
            "contains a password, which does not belong in a policy: leave it out, and set PGPASSWORD or keep it in "
            '~/.pgpass; or put the whole address in an environment variable and write "env:NAME"'
        )
    if not _WELL_FORMED.fullmatch(value):
        raise ValueError(
            "is not well formed: postgresql://user@host:port/database?option=value, with everything else than letters "
            'and digits as %20 in it (no blanks); or put it in an environment variable and write "env:NAME"'
        )
    return value


PostgresAddress: TypeAlias = Annotated[
    str,
    BeforeValidator(_postgres_address),
    WithJsonSchema({"type": "string", "pattern": "^(postgres(ql)?://|env:).+"}),
]


def postgres_name_flaws(table: str) -> Iterator[Flaw]:
    """What is wrong with the name of a release in PostgreSQL: it needs a schema, and room for its version."""
    parts = table_parts(table)
    if len(parts) != 2:
        yield (
            ("table",),
            'must be "schema.name": a release in PostgreSQL has a schema of its own, which readers may use',
        )
    elif parts[1] == MANIFEST:
        yield ("table",), "is the name of the table of manifests: choose another"
    elif len(parts[1].encode()) > LONGEST_NAME - _OF_VERSION:
        yield (
            ("table",),
            f"is too long: PostgreSQL keeps {LONGEST_NAME} bytes of a name, its version needs {_OF_VERSION} of them",
        )


CONNECT = "sc://"
SESSION = "session"
"""Stands for the address of a session that was given."""

_IN_SPARK = "spark:"
_SPARK_NAME = re.compile("[A-Za-z0-9_]+")
_SPARK_MASTER = re.compile(
    r"local(\[(\*|[0-9]+)(,\s*[0-9]+)?\])?"
    r"|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]"
    r"|spark://[^\s/?#]+"
    r"|yarn"
    r"|k8s://\S+"
)
_CONNECT_ADDRESS = re.compile(r"sc://[^\s/?#;@]+(/(;[A-Za-z_-]+=[^\s;]*)*)?")
_CONNECT_SECRETS = ("token", "x-databricks-session-token", "authorization")
"""Options of Spark Connect that hold a secret."""


def is_spark(place: str) -> bool:
    """Whether a text is the address of Spark: of a Connect server, or of a master.

    >>> [is_spark(one) for one in ("sc://host:15002", "local[2]", "spark://host:7077", "hospital.duckdb", "locals")]
    [True, True, True, False, False]
    """
    return place.startswith(CONNECT) or bool(_SPARK_MASTER.fullmatch(place))


def is_session(source: Any) -> bool:
    """Whether it is a Spark session, classic or Connect: nothing is imported to find that out."""
    return type(source).__name__ == "SparkSession" and type(source).__module__.startswith("pyspark.sql")


def resolve_spark_address(place: str) -> str:
    return resolve_address(place, is_spark, "of Spark, such as sc://host:port or local[2]")


def format_spark_address(address: str) -> str:
    """An address for people, and for the ledger: without options, which may hold a token.

    >>> format_spark_address("sc://host:15002/;token=secret;user_id=me"), format_spark_address("local[2]")
    ('sc://host:15002', 'local[2]')
    """
    return address.partition("/;")[0].rstrip("/") if address.startswith(CONNECT) else address


def _spark_address(value: object) -> str:
    value = require_address_text(value, '"sc://host:port" or "local[2]"')
    if is_variable(value):
        return value
    # What was written is not quoted: it may hold a token.
    if not is_spark(value):
        raise ValueError(
            "must be sc://host:port of a Spark Connect server, or a master: spark://host:port, local[N], "
            "local-cluster[workers,cores,megabytes], yarn; or env:NAME for an address in an environment variable"
        )
    if value.startswith(CONNECT):
        if not _CONNECT_ADDRESS.fullmatch(value):
            raise ValueError("is not well formed: sc://host:port, or sc://host:port/;option=value")
        options = [one.partition("=")[0].strip().lower() for one in value.split(";")[1:]]
        if set(options) & set(_CONNECT_SECRETS):
            raise ValueError(
                "contains a token, which does not belong in a policy: put the whole address in an environment variable "
                'and write "env:NAME"'
            )
    return value


SparkAddress: TypeAlias = Annotated[
    str,
    BeforeValidator(_spark_address),
    WithJsonSchema({"type": "string", "minLength": 1}),
]


def resolves_to_spark(place: str) -> bool:
    return is_spark(resolve_variable(place))


def spark_location(address: str, schema: str, name: str) -> Path:
    """The place of a release in Spark for the ledger, which knows paths: no token is in it."""
    return Path(_IN_SPARK, quote(format_spark_address(address), safe=":[]*,"), f"{schema}.{name}")


def is_spark_location(path: Path) -> bool:
    """Whether a path is the place of a release in Spark.

    >>> is_spark_location(spark_location("sc://host:15002", "shared", "r")), is_spark_location(Path("r.duckdb"))
    (True, False)
    """
    return path.parts[:1] == (_IN_SPARK,)


_OF_VIEWS = frozenset({"session", "global_temp"})
"""What stands before the names of temporary views, which a session finds first."""


def spark_name_flaw(table: str) -> str | None:
    """What is wrong with the name of a release in Spark, if anything is: its catalog takes letters, digits and ``_``.

    >>> spark_name_flaw("shared.patients"), spark_name_flaw('shared."my table"') is None
    (None, False)
    """
    parts = table_parts(table)
    if len(parts) != 2:
        return 'must be "schema.name": a release in Spark has a schema, which readers may use'
    if parts[0].lower() in _OF_VIEWS:
        return f"is in {parts[0]!r}, which is Spark's name for temporary views: name another schema"
    if not all(_SPARK_NAME.fullmatch(part) for part in parts):
        return "has more than letters, digits and _ in it, which is all that the catalog of Spark takes"
    return None


def is_server(place: str) -> bool:
    """Whether a text is where a server is, of PostgreSQL or of Spark; else it is a file.

    >>> is_server("postgresql://db/hospital"), is_server("sc://host:15002"), is_server("release.duckdb")
    (True, True, False)
    """
    return is_spark(place) or is_postgres(place)


def format_location(path: Path) -> str:
    """The place of a release for people: a file, or an address without secrets, which a path shortens.

    >>> format_location(Path("postgresql://db/hospital/public.patients")), format_location(Path("r.duckdb"))
    ('postgresql://db/hospital/public.patients', 'r.duckdb')
    >>> format_location(spark_location("sc://host:15002/;token=secret", "shared", "r"))
    'sc://host:15002/shared.r'
    """
    if is_spark_location(path):
        _, address, *rest = path.parts
        return "/".join((unquote(address), *rest))
    if not is_postgres_location(path):
        return str(path)
    names_a_host = len(path.parts) > len(("postgresql:", "database", "schema.name"))
    return "/".join(("postgresql:", "", *(() if names_a_host else ("",)), *path.parts[1:]))


def database_path_flaw(path: Path) -> str | None:
    """Why DuckDB cannot write a database at a path, or None.

    It reads a question mark as the end of the path, and a backslash as a slash: its log of changes goes elsewhere.

    >>> database_path_flaw(Path("/data/what now?/release.duckdb"))
    "has '?' in its path, which DuckDB cannot write a database at: use another folder or name"
    """
    wrong = next((one for one in ("?", *("\\" * (os.sep != "\\"))) if one in str(path)), None)
    return wrong and f"has {wrong!r} in its path, which DuckDB cannot write a database at: use another folder or name"


_OTHER_FILES = (
    *(".csv", ".tsv", ".txt", ".json", ".jsonl", ".xlsx", ".html", ".toml"),
    *(".sav", ".zsav", ".dta", ".sas7bdat", ".xpt"),
)


def release_file_flaw(path: Path) -> str | None:
    """Why a release cannot have a name, or None: people open a file by what its name says.

    >>> release_file_flaw(Path("people.csv"))
    'ends in .csv, and a release is a DuckDB or Parquet file: name it people.duckdb or people.parquet'
    """
    ending = path.suffix.lower()
    if ending not in _OTHER_FILES:
        return None
    names = f"{path.stem}.duckdb or {path.stem}.parquet"
    return f"ends in {ending}, and a release is a DuckDB or Parquet file: name it {names}"
