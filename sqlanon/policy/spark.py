"""Where Spark is, as policies write it: a Spark Connect server, or the master of a cluster.

An address of Spark Connect may hold a token, and policies are no place for one: such an address stands in an
environment variable, and the policy says in which.
"""

from __future__ import annotations

import os
import re
from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema

from sqlanon.errors import SourceError
from sqlanon.policy.values import shown

CONNECT = "sc://"
_VARIABLE = "env:"
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


def spark_address_of(place: str) -> str:
    """The address itself: of ``env:NAME``, what the environment says.

    Raises
    ------
    SourceError
        The variable is not set, or holds no address. What it holds is not told.
    """
    if not place.startswith(_VARIABLE):
        return place
    name = place[len(_VARIABLE) :]
    address = os.environ.get(name, "")
    if not is_spark(address):
        wrong = "is not set" if not address else "holds no address of Spark, such as sc://host:port or local[2]"
        raise SourceError(f"the environment variable {name} {wrong}")
    return address


def shown_spark(address: str) -> str:
    """An address as people are told of it, and as the ledger knows it: without options, which may hold a token.

    >>> shown_spark("sc://host:15002/;token=secret;user_id=me"), shown_spark("local[2]")
    ('sc://host:15002', 'local[2]')
    """
    return address.partition("/;")[0].rstrip("/") if address.startswith(CONNECT) else address


def _address(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f'must be an address in quotes, such as "sc://host:port" or "local[2]", not {shown(value)}')
    if value.startswith(_VARIABLE):
        if not value[len(_VARIABLE) :].strip():
            raise ValueError('names no environment variable: write "env:NAME"')
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
