"""Where Spark is, as policies write it: a Spark Connect server, or the master of a cluster.

An address of Spark Connect may hold a token, and policies are no place for one: such an address stands in an
environment variable, and the policy says in which.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, unquote

from pydantic import BeforeValidator, WithJsonSchema

from sqlanon.policy.addresses import address_in, is_variable, value_of, written
from sqlanon.policy.names import table_parts

CONNECT = "sc://"
SESSION = "session"
"""Stands for the address of a session that was given."""

_IN_SPARK = "spark:"
_NAME = re.compile("[A-Za-z0-9_]+")
_MASTER = re.compile(
    r"local(\[(\*|[0-9]+)(,\s*[0-9]+)?\])?"
    r"|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]"
    r"|spark://[^\s/?#]+"
    r"|yarn"
    r"|k8s://\S+"
)
_HOST = re.compile(r"sc://[^\s/?#;@]+(/(;[A-Za-z_-]+=[^\s;]*)*)?")
_SECRETS = ("token", "x-databricks-session-token", "authorization")
"""Options of Spark Connect that hold a secret."""


def is_spark(place: str) -> bool:
    """Whether a text is the address of Spark: of a Connect server, or of a master.

    >>> [is_spark(one) for one in ("sc://host:15002", "local[2]", "spark://host:7077", "hospital.duckdb", "locals")]
    [True, True, True, False, False]
    """
    return place.startswith(CONNECT) or bool(_MASTER.fullmatch(place))


def is_session(source: Any) -> bool:
    """Whether it is a Spark session, classic or Connect: nothing is imported to find that out."""
    return type(source).__name__ == "SparkSession" and type(source).__module__.startswith("pyspark.sql")


def spark_address_of(place: str) -> str:
    """The address itself: of ``env:NAME``, what the environment says."""
    return address_in(place, is_spark, "of Spark, such as sc://host:port or local[2]")


def shown_spark(address: str) -> str:
    """An address as people are told of it, and as the ledger knows it: without options, which may hold a token.

    >>> shown_spark("sc://host:15002/;token=secret;user_id=me"), shown_spark("local[2]")
    ('sc://host:15002', 'local[2]')
    """
    return address.partition("/;")[0].rstrip("/") if address.startswith(CONNECT) else address


def _address(value: object) -> str:
    value = written(value, '"sc://host:port" or "local[2]"')
    if is_variable(value):
        return value
    # What was written is not quoted: it may hold a token.
    if not is_spark(value):
        raise ValueError(
            "must be sc://host:port of a Spark Connect server, or a master: spark://host:port, local[N], "
            "local-cluster[workers,cores,megabytes], yarn; or env:NAME for an address in an environment variable"
        )
    if value.startswith(CONNECT):
        if not _HOST.fullmatch(value):
            raise ValueError("is not well formed: sc://host:port, or sc://host:port/;option=value")
        options = [one.partition("=")[0].strip().lower() for one in value.split(";")[1:]]
        if set(options) & set(_SECRETS):
            raise ValueError(
                "holds a token, and policies are no place for one: put the whole address in an environment variable "
                'and write "env:NAME"'
            )
    return value


SparkAddress: TypeAlias = Annotated[
    str,
    BeforeValidator(_address),
    WithJsonSchema({"type": "string", "minLength": 1}),
]


def names_spark(place: str) -> bool:
    """Whether a text is the address of Spark, or names an environment variable that holds one."""
    return is_spark(value_of(place))


def spark_path(address: str, schema: str, name: str) -> Path:
    """The place of a release in Spark for the ledger, which knows paths: no token is in it."""
    return Path(_IN_SPARK, quote(shown_spark(address), safe=":[]*,"), f"{schema}.{name}")


def in_spark(path: Path) -> bool:
    """Whether a path is the place of a release in Spark.

    >>> in_spark(spark_path("sc://host:15002", "shared", "r")), in_spark(Path("r.duckdb"))
    (True, False)
    """
    return path.parts[:1] == (_IN_SPARK,)


def shown_spark_place(path: Path) -> str:
    """The place of a release in Spark as people are told of it.

    >>> shown_spark_place(spark_path("sc://host:15002/;token=secret", "shared", "r"))
    'sc://host:15002/shared.r'
    """
    _, address, *rest = path.parts
    return "/".join((unquote(address), *rest))


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
    if not all(_NAME.fullmatch(part) for part in parts):
        return "has more than letters, digits and _ in it, which is all that the catalog of Spark takes"
    return None
