"""Addresses of databases and files that DuckDB reads through an extension.

They are written as in DuckDB: ``mysql:...`` and ``ducklake:...`` as in ATTACH, ``https://...`` and ``s3://...`` as in
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
"""Names of options that hold a secret or a part of one."""

_SCHEME = re.compile(r"(?:[a-z][a-z0-9+]*)://", re.IGNORECASE)
_MYSQL_PREFIXES = ("mysql://", "mysql:")
_LAKE_PREFIX = "ducklake:"
_LAKE_CATALOGS = ("mysql:", "postgres:", "sqlite:", "duckdb:")
_TABLE_FORMATS = ("delta:", "iceberg:")
_POSTGRES_PREFIXES = ("postgres:", "postgresql:")
_PAIR = re.compile(r"([A-Za-z_]+)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s]*)")
_SQLITE_HEADER = b"SQLite format 3\0"

_AZURE_PREFIXES = ("az://", "azure://", "abfss://")

_VARIABLE_ADVICE = 'put the whole address in an environment variable and write "env:NAME"'


def is_remote(place: str) -> bool:
    """Whether files or a database are read over the network.

    >>> is_remote("s3://bucket/x.parquet"), is_remote("delta:https://host/x"), is_remote("x.parquet")
    (True, True, False)
    """
    return bool(_SCHEME.match(strip_table_format(place)))


def strip_table_format(pattern: str) -> str:
    """Strip ``delta:`` or ``iceberg:`` from a pattern."""
    return next((pattern[len(prefix) :] for prefix in _TABLE_FORMATS if pattern.startswith(prefix)), pattern)


def table_format(pattern: str) -> str | None:
    """The format of a table that is a folder, from the prefix of its address.

    >>> table_format("delta:lake/patients"), table_format("x.parquet")
    ('delta', None)
    """
    return next((prefix.rstrip(":") for prefix in _TABLE_FORMATS if pattern.startswith(prefix)), None)


ENDINGS: Mapping[str, tuple[str, ...]] = {
    "parquet": (".parquet", ".pq"),
    "csv": tuple(f".{name}{packed}" for name in ("csv", "tsv", "txt") for packed in ("", ".gz", ".zst")),
    "json": tuple(f".{name}{packed}" for name in ("json", "jsonl", "ndjson") for packed in ("", ".gz", ".zst")),
    "excel": (".xlsx",),
    "spss": (".sav", ".zsav"),
    "stata": (".dta",),
    "sas": (".sas7bdat",),
    "xport": (".xpt",),
}
"""The formats of data files, by the endings of their names."""

KNOWN_ENDINGS = ", ".join(ending for endings in ENDINGS.values() for ending in endings if ending.count(".") == 1)
OTHER_WORKBOOKS = (".xls", ".xlsb", ".ods")
"""The endings of workbooks in unsupported formats."""


def file_kind(path: str) -> str | None:
    """The format of a file by its ending, or of a folder by its prefix; None for others.

    >>> file_kind("a.CSV.gz"), file_kind("https://host/x.parquet?sig=1"), file_kind("delta:x"), file_kind("x.duckdb")
    ('csv', 'parquet', 'delta', None)
    """
    name = format_address(path).lower()
    by_ending = (kind for kind, endings in ENDINGS.items() if name.endswith(endings))
    return table_format(path) or next(by_ending, None)


def format_address(address: str) -> str:
    """Format an address for messages and the ledger: without user, password and options.

    >>> format_address("https://me:secret@host/x.parquet?sig=secret"), format_address("data/x.parquet")
    ('https://host/x.parquet', 'data/x.parquet')
    """
    if not is_remote(address):
        return address
    scheme, _, location = address.partition("://")
    host, slash, path = re.split(r"[?#]", location, maxsplit=1)[0].partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"


def file_name(path: str) -> str:
    """The name of a file, without the options of its address."""
    return Path(format_address(path)).name


def format_database(database: Path | str) -> str:
    """Format a database for messages and the ledger: a canonical name without user and password.

    >>> format_database("mysql:host=db user=me passwd=secret database=hospital"), format_database("mysql://me@db/hospital")
    ('mysql://db/hospital', 'mysql://db/hospital')
    >>> format_database("ducklake:mysql:host=db user=me database=lake")
    'ducklake:mysql://db/lake'
    """
    if isinstance(database, Path):
        return os.path.realpath(database)
    if database.startswith(_LAKE_PREFIX):
        catalog = database.removeprefix(_LAKE_PREFIX)
        _, file = _split_lake_catalog(catalog)
        return _LAKE_PREFIX + (format_database(catalog) if file is None else os.path.realpath(file))
    if database.startswith((*_MYSQL_PREFIXES, *_POSTGRES_PREFIXES)):
        kind = "mysql" if database.startswith("mysql") else "postgres"
        options = _options(database)
        port = f":{options['port']}" if options.get("port", "") not in ("", "0", "3306", "5432") else ""
        host = options.get("host") or options.get("socket") or "localhost"
        return f"{kind}://{host}{port}/{options.get('database') or options.get('dbname') or options.get('db', '')}"
    return format_address(database)


def local_database(database: Path | str | None) -> Path | None:
    """The local file of a database, if it has one; for a DuckLake, the file of its catalog."""
    if isinstance(database, Path) or database is None:
        return database
    is_lake = database.startswith(_LAKE_PREFIX)
    return _split_lake_catalog(database.removeprefix(_LAKE_PREFIX))[1] if is_lake else None


def resolve_database(database: Path | str) -> Path | str:
    """Replace ``env:NAME`` by the database that the variable names."""
    if isinstance(database, Path) or not is_variable(database):
        return database
    address = resolve_address(database, bool, "of a database")
    return address if is_address(address) else Path(address)


def is_address(place: str) -> bool:
    """Whether a text is the address of a database that DuckDB attaches, and not the path of a file.

    >>> [is_address(text) for text in ("mysql://db/hospital", "ducklake:l.ducklake", "https://h/x.duckdb", "x.sqlite")]
    [True, True, True, False]
    """
    return place.startswith((*_MYSQL_PREFIXES, _LAKE_PREFIX)) or is_remote(place)


def is_attached(database: Path | str | None) -> bool:
    """Whether DuckDB needs an extension for a database: also for files with the content of a SQLite database."""
    if not isinstance(database, Path):
        return database is not None
    try:
        with database.open("rb") as file:
            return file.read(len(_SQLITE_HEADER)) == _SQLITE_HEADER
    except OSError:  # DuckDB reports missing and unreadable files
        return False


@dataclass(frozen=True)
class Attachment:
    """The parameters with which DuckDB attaches a database."""

    kind: str
    address: str = field(repr=False)  # may hold a password
    type: str | None
    extensions: tuple[str, ...]
    secrets: tuple[str, ...] = field(default=(), repr=False)


def choose_attachment(database: Path | str) -> Attachment:
    """Choose how to attach a database other than a local DuckDB file."""
    if isinstance(database, Path):
        return Attachment("SQLite databases", str(database), "sqlite", ("sqlite_scanner",))
    quoted = [value for name, value in _options(database).items() if _SECRET.search(name) and value]
    secrets = tuple(dict.fromkeys([*quoted, *map(unquote, quoted)]))
    if database.startswith(_LAKE_PREFIX):
        catalog = database.removeprefix(_LAKE_PREFIX)
        scanners = {"mysql:": "mysql_scanner", "postgres:": "postgres_scanner", "sqlite:": "sqlite_scanner"}
        extensions = ["ducklake", *(scanner for kind, scanner in scanners.items() if catalog.startswith(kind))]
        if is_remote(catalog):
            extensions.append("httpfs")
        return Attachment("DuckLake", database, None, tuple(extensions), secrets)
    if database.startswith(_MYSQL_PREFIXES):
        address = database if database.startswith("mysql://") else database.removeprefix("mysql:")
        return Attachment("MySQL", address, "mysql", ("mysql_scanner",), secrets)
    return Attachment("databases over the network", database, None, extensions_for(database), secrets)


def extensions_for(address: str) -> tuple[str, ...]:
    """The extensions that DuckDB needs for an address."""
    if not is_remote(address):
        return ()
    return ("azure",) if strip_table_format(address).lower().startswith(_AZURE_PREFIXES) else ("httpfs",)


def read_database(value: object, folder: Path | None = None) -> Path | str:
    """Read a database in a policy or in `sqlanon.connect`: the path of a file, or an address."""
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
        catalog = value.removeprefix(_LAKE_PREFIX)
        kind, file = _split_lake_catalog(catalog)
        return _LAKE_PREFIX + (catalog if file is None else f"{kind}{file_path(str(file), folder)}")
    return value


def read_data_files(value: object, folder: Path | None = None) -> str:
    """Read files in a policy: a path, a pattern, an address, ``delta:FOLDER`` or ``iceberg:FOLDER``."""
    if isinstance(value, str) and is_variable(value):
        return require_address_text(value, "https://host/patients.parquet")
    if isinstance(value, str) and is_remote(value):
        refuse_secrets(value)
        return value
    if isinstance(value, str) and value.startswith(_TABLE_FORMATS):
        prefix, _, table_folder = value.partition(":")
        return f"{prefix}:{file_path(table_folder, folder)}"
    return file_pattern(value, folder)


def refuse_secrets(address: str) -> None:
    """Refuse an address that holds a secret. The message does not quote it."""
    if any(_SECRET.search(name) for name in _options(strip_table_format(address))):
        advice = "set MYSQL_PWD; or " if "mysql:" in address else ""
        raise ValueError(
            f"holds a password or a key, which does not belong in a policy: leave it out and {advice}{_VARIABLE_ADVICE}"
        )


def resolve_data_files(pattern: str) -> str:
    """Replace ``env:NAME`` by the pattern that the variable holds."""
    return resolve_address(pattern, bool, "of files") if is_variable(pattern) else pattern


def _options(address: str) -> Mapping[str, str]:
    """The parts of an address by name: user, host, path and options."""
    if not (scheme := _SCHEME.search(address)):
        return {name.lower(): value.strip("'") for name, value in _PAIR.findall(address)}
    location, _, query = address[scheme.end() :].partition("?")
    authority, _, path = location.partition("/")
    user, at, server = authority.rpartition("@")
    host, _, port = server.partition(":")
    pairs = (option.partition("=")[::2] for option in re.split("[&;]", query) if option)
    options = {unquote(name).strip().lower(): unquote(value) for name, value in pairs}
    options |= {"host": host, "port": port, "database": path}
    if at:
        name, colon, secret = user.partition(":")
        options |= {"user": name, **({"password": secret} if colon else {})}
    return options


def _split_lake_catalog(catalog: str) -> tuple[str, Path | None]:
    """Split the catalog of a DuckLake into its kind, if it is given, and its file; None if it is on a server."""
    kind = next((prefix for prefix in _LAKE_CATALOGS if catalog.startswith(prefix)), "")
    is_on_server = kind in ("mysql:", "postgres:") or is_remote(catalog)
    return kind, None if is_on_server else Path(catalog.removeprefix(kind))


def _database(value: object, info: ValidationInfo) -> Path | str:
    return read_database(value, policy_folder(info))


def _data_files(value: object, info: ValidationInfo) -> str:
    return read_data_files(value, policy_folder(info))


DatabaseLocation: TypeAlias = Annotated[
    Path | str, BeforeValidator(_database), WithJsonSchema({"type": "string", "minLength": 1})
]
DataFiles: TypeAlias = Annotated[str, BeforeValidator(_data_files), WithJsonSchema({"type": "string"})]
