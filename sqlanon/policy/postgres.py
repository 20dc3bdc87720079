"""Where a PostgreSQL server is, as policies write it: an address without a password, or where the address stands.

Policies are read by many, are kept in catalogs and in version control: no password may stand in one. libpq finds it by
itself (``PGPASSWORD``, ``~/.pgpass``, ``PGSERVICE``), or the whole address stands in an environment variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, WithJsonSchema

from sqlanon.fields import Flaw
from sqlanon.policy.addresses import address_in, is_variable, written
from sqlanon.policy.names import table_parts

_SCHEMES = ("postgresql://", "postgres://")
_SECRETS = (
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
"""The number of a version has so many at most."""

_OF_VERSION = len("_v") + VERSION_DIGITS

LONGEST_NAME = 63
"""So many bytes PostgreSQL keeps of a name; the rest is cut off in silence."""


def is_postgres(place: str) -> bool:
    """Whether a text is the address of a PostgreSQL server, or says where it stands.

    >>> is_postgres("postgresql://analyst@db/hospital"), is_postgres("env:HOSPITAL"), is_postgres("release.duckdb")
    (True, True, False)
    """
    return _is_postgres_itself(place) or is_variable(place)


def address_of(place: str) -> str:
    """The address itself: of ``env:NAME``, what the environment says."""
    return address_in(place, _is_postgres_itself, "that begins with postgresql://")


def _is_postgres_itself(address: str) -> bool:
    return address.startswith(_SCHEMES)


def server_of(address: str) -> str:
    """Host and database of an address, and neither user nor options: the same for the same place.

    >>> server_of("postgresql://me:secret@db.example:5433/hospital?sslmode=require")
    'postgresql://db.example:5433/hospital'
    """
    _, host, options, name = _parts(address)
    by_options = ":".join(quote(options[key], safe="") for key in ("host", "port") if key in options)  # or a folder
    return f"postgresql://{host or by_options}/{name or options.get('dbname', '')}"


def in_postgres(path: Path) -> bool:
    """Whether a path is the place of a release in PostgreSQL, as the ledger has it: `server_of`, schema and name.

    >>> in_postgres(Path(server_of("postgresql://db/hospital"), "public.patients")), in_postgres(Path("r.duckdb"))
    (True, False)
    """
    return path.parts[:1] == ("postgresql:",)


def shown_postgres_place(path: Path) -> str:
    """The place of a release in PostgreSQL, or in a file, as people are told of it: a path shortens an address.

    >>> shown_postgres_place(Path(server_of("postgresql://db/hospital"), "public.patients"))
    'postgresql://db/hospital/public.patients'
    """
    if not in_postgres(path):
        return str(path)
    names_a_host = len(path.parts) > len(("postgresql:", "database", "schema.name"))
    return "/".join(("postgresql:", "", *(() if names_a_host else ("",)), *path.parts[1:]))


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


def _address(value: object) -> str:
    value = written(value, "postgresql://user@host/database")
    if is_variable(value):
        return value
    # What was written is not quoted: it may hold a password.
    if not value.startswith(_SCHEMES):
        raise ValueError("must begin with postgresql://, or be env:NAME for an address in an environment variable")
    user, _, options, _ = _parts(value)
    if ":" in unquote(user) or {one.lower() for one in options} & set(_SECRETS):
        raise ValueError(
            "holds a password, and policies are no place for one: leave it out, and set PGPASSWORD or keep it in "
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
    BeforeValidator(_address),
    WithJsonSchema({"type": "string", "pattern": "^(postgres(ql)?://|env:).+"}),
]


def release_name_flaws(table: str) -> Iterator[Flaw]:
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
