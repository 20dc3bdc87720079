"""Databases and files that DuckDB reads through an extension, as policies name them.

The names are those of DuckDB: ``mysql:...`` and ``ducklake:...`` as in ATTACH, ``https://...`` and ``s3://...`` as in
FROM. A policy holds no password and no signed address: ``env:NAME`` is an environment variable with the whole address.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeAlias
from urllib.parse import unquote

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from sqlanon.places.addresses import is_variable, require_address_text, resolve_address
from sqlanon.support.fields import file_path, file_pattern, policy_folder

_SECRET = re.compile(r"passw|pwd|secret|token|credential|signature|^sig$|api_?key|access_?key(_id)?$", re.IGNORECASE)
"""Names of options that hold a secret, or a part of one."""

_SCHEME = re.compile(r"(?:[a-z][a-z0-9+]*)://", re.IGNORECASE)
_MYSQL_PREFIXES = ("mysql://", "mysql:")
_LAKE_PREFIX = "ducklake:"
_LAKE_CATALOGS = ("mysql:", "postgres:", "sqlite:", "duckdb:")
_TABLE_FORMATS = ("delta:", "iceberg:")
_POSTGRES_PREFIXES = ("postgres:", "postgresql:")
_PAIR = re.compile(r"([A-Za-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s]*)")
_SQLITE_HEADER = b"SQLite format 3\0"

_AZURE = ("az://", "azure://", "abfss://")

_ELSEWHERE = 'put the whole address in an environment variable and write "env:NAME"'


def is_remote(place: str) -> bool:
    """Whether files or a database are read over the network.

    >>> is_remote("s3://bucket/x.parquet"), is_remote("delta:https://host/x"), is_remote("x.parquet")
    (True, True, False)
    """
    return bool(_SCHEME.match(strip_table_format(place)))


def strip_table_format(pattern: str) -> str:
    """The place itself of ``delta:PLACE`` or ``iceberg:PLACE``."""
    return next((pattern[len(one) :] for one in _TABLE_FORMATS if pattern.startswith(one)), pattern)


def table_format(pattern: str) -> str | None:
    """The format of a table that is a folder, which stands before its name.

    >>> table_format("delta:lake/patients"), table_format("x.parquet")
    ('delta', None)
    """
    return next((one.rstrip(":") for one in _TABLE_FORMATS if pattern.startswith(one)), None)


def format_address(address: str) -> str:
    """An address for people, and for the ledger: without user, password and options.

    >>> format_address("https://me:secret@host/x.parquet?sig=secret"), format_address("data/x.parquet")
    ('https://host/x.parquet', 'data/x.parquet')
    """
    if not is_remote(address):
        return address
    place, _, rest = address.partition("://")
    host, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
    return f"{place}://{host.rpartition('@')[2]}{slash}{path}"


def file_name(path: str) -> str:
    """The name of a file, without the options of its address."""
    return Path(format_address(path)).name


def format_database(database: Path | str) -> str:
    """A database for people, and for the ledger: the same for the same one, without user and password.

    >>> format_database("mysql:host=db user=me passwd=secret database=hospital"), format_database("mysql://me@db/hospital")
    ('mysql://db/hospital', 'mysql://db/hospital')
    >>> format_database("ducklake:mysql:host=db user=me database=lake")
    'ducklake:mysql://db/lake'
    """
    if isinstance(database, Path):
        return os.path.realpath(database)
    if database.startswith(_LAKE_PREFIX):
        catalog = database.removeprefix(_LAKE_PREFIX)
        if (file := _lake_file(catalog)) is not None:
            return _LAKE_PREFIX + os.path.realpath(file)
        return _LAKE_PREFIX + format_database(catalog)
    if database.startswith((*_MYSQL_PREFIXES, *_POSTGRES_PREFIXES)):
        kind = "mysql" if database.startswith("mysql") else "postgres"
        options = _options(database)
        port = f":{options['port']}" if options.get("port", "") not in ("", "0", "3306", "5432") else ""
        place = options.get("host") or options.get("socket") or "localhost"
        return f"{kind}://{place}{port}/{options.get('database') or options.get('dbname') or options.get('db', '')}"
    return format_address(database)


def local_database(database: Path | str | None) -> Path | None:
    """The file of a database that is one: of a DuckLake, the file of its catalog."""
    if isinstance(database, Path) or database is None:
        return database
    return _lake_file(database.removeprefix(_LAKE_PREFIX)) if database.startswith(_LAKE_PREFIX) else None


def resolve_database(database: Path | str) -> Path | str:
    """The database itself: of ``env:NAME``, what the environment says."""
    if isinstance(database, Path) or not is_variable(database):
        return database
    found = resolve_address(database, bool, "of a database")
    return found if is_address(found) else Path(found)


def is_address(place: str) -> bool:
    """Whether a text is an address of a database that DuckDB attaches, and no path of a file.

    >>> [is_address(one) for one in ("mysql://db/hospital", "ducklake:lake.ducklake", "https://h/x.duckdb", "x.sqlite")]
    [True, True, True, False]
    """
    return place.startswith((*_MYSQL_PREFIXES, _LAKE_PREFIX)) or is_remote(place)


def is_attached(database: Path | str | None) -> bool:
    """Whether a database needs an extension of DuckDB: it is none of DuckDB's own files."""
    if database is None:
        return False
    return isinstance(database, str) or is_sqlite(database)


def is_sqlite(path: Path) -> bool:
    """Whether a file is a database of SQLite: by its content, as DuckDB does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER
    except OSError:  # it is missing, or may not be read: DuckDB says so
        return False


@dataclass(frozen=True)
class Attachment:
    """How DuckDB attaches a database."""

    kind: str
    address: str = field(repr=False)  # it may hold a password
    type: str | None
    extensions: tuple[str, ...]
    secrets: tuple[str, ...] = field(default=(), repr=False)


def choose_attachment(database: Path | str) -> Attachment:
    """How a database is attached that is no DuckDB file on this machine."""
    if isinstance(database, Path):
        return Attachment("SQLite databases", str(database), "sqlite", ("sqlite_scanner",))
    written = [value for name, value in _options(database).items() if _SECRET.search(name) and value]
    secrets = tuple(dict.fromkeys([*written, *map(unquote, written)]))
    if database.startswith(_LAKE_PREFIX):
        catalog = database.removeprefix(_LAKE_PREFIX)
        by_catalog = {"mysql:": "mysql_scanner", "postgres:": "postgres_scanner", "sqlite:": "sqlite_scanner"}
        more = tuple(extension for kind, extension in by_catalog.items() if catalog.startswith(kind))
        more += ("httpfs",) if is_remote(catalog) else ()
        return Attachment("DuckLake", database, None, ("ducklake", *more), secrets)
    if database.startswith(_MYSQL_PREFIXES):
        place = database if database.startswith("mysql://") else database.removeprefix("mysql:")
        return Attachment("MySQL", place, "mysql", ("mysql_scanner",), secrets)
    return Attachment("databases over the network", database, None, extensions_for(database), secrets)


def extensions_for(address: str) -> tuple[str, ...]:
    """The extensions that DuckDB reads an address with."""
    if not is_remote(address):
        return ()
    return ("azure",) if strip_table_format(address).lower().startswith(_AZURE) else ("httpfs",)


def read_database(value: object, folder: Path | None = None) -> Path | str:
    """A database as a policy or `sqlanon.connect` names it: the path of a file, or an address."""
    if not isinstance(value, str):
        return file_path(value, folder)
    if is_variable(value):
        return require_address_text(value, "mysql://user@host/database")
    if value.startswith(_POSTGRES_PREFIXES):
        raise ValueError('is a PostgreSQL server: write it as postgres = "postgresql://user@host/database"')
    if value.startswith("sqlite:"):
        return file_path(value.removeprefix("sqlite:"), folder)
    if not is_address(value):
        return file_path(value, folder)
    refuse_secrets(value)
    if value.startswith(_LAKE_PREFIX):
        return _LAKE_PREFIX + _lake_catalog(value.removeprefix(_LAKE_PREFIX), folder)
    return value


def read_data_files(value: object, folder: Path | None = None) -> str:
    """Files as a policy names them: a path, a pattern, an address, ``delta:FOLDER`` or ``iceberg:FOLDER``."""
    if isinstance(value, str) and is_variable(value):
        return require_address_text(value, "https://host/patients.parquet")
    if isinstance(value, str) and is_remote(value):
        refuse_secrets(value)
        return value
    if isinstance(value, str) and value.startswith(_TABLE_FORMATS):
        prefix, _, place = value.partition(":")
        return f"{prefix}:{file_path(place, folder)}"
    return file_pattern(value, folder)


def refuse_secrets(address: str) -> None:
    """What was written is not quoted: it may hold a password."""
    if any(_SECRET.search(name) for name in _options(strip_table_format(address))):
        way = "set MYSQL_PWD; or " if "mysql:" in address else ""
        raise ValueError(
            f"holds a password or a key, and policies are no place for one: leave it out and {way}{_ELSEWHERE}"
        )


def resolve_data_files(pattern: str) -> str:
    """The pattern itself: of ``env:NAME``, what the environment says."""
    return resolve_address(pattern, bool, "of files") if is_variable(pattern) else pattern


def _options(address: str) -> Mapping[str, str]:
    """What an address says, by name: of its user, its host and path, and of its options."""
    if not (found := _SCHEME.search(address)):
        return {name.lower(): value.strip("'") for name, value in _PAIR.findall(address)}
    rest, _, options = address[found.end() :].partition("?")
    place, _, path = rest.partition("/")
    user, at, server = place.rpartition("@")
    host, _, port = server.partition(":")
    pairs = (one.partition("=")[::2] for one in re.split("[&;]", options) if one)
    said = {unquote(name).strip().lower(): unquote(value) for name, value in pairs}
    said |= {"host": host, "port": port, "database": path}
    if at:
        name, colon, secret = user.partition(":")
        said |= {"user": name, **({"password": secret} if colon else {})}
    return said


def _lake_file(catalog: str) -> Path | None:
    """The file of a DuckLake's catalog; None where it is on a server."""
    kind = next((one for one in _LAKE_CATALOGS if catalog.startswith(one)), "")
    on_server = kind in ("mysql:", "postgres:") or is_remote(catalog)
    return None if on_server else Path(catalog.removeprefix(kind))


def _lake_catalog(catalog: str, folder: Path | None) -> str:
    if (file := _lake_file(catalog)) is None:
        return catalog
    kind = next((one for one in _LAKE_CATALOGS if catalog.startswith(one)), "")
    return f"{kind}{file_path(str(file), folder)}"


def _database(value: object, info: ValidationInfo) -> Path | str:
    return read_database(value, policy_folder(info))


def _data_files(value: object, info: ValidationInfo) -> str:
    return read_data_files(value, policy_folder(info))


DatabaseLocation: TypeAlias = Annotated[
    Path | str, BeforeValidator(_database), WithJsonSchema({"type": "string", "minLength": 1})
]
DataFiles: TypeAlias = Annotated[str, BeforeValidator(_data_files), WithJsonSchema({"type": "string"})]
