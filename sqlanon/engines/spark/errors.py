"""What may be told of an error of Spark: its own words quote values, statements and addresses."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlanon.engines.dialects.spark_rewrites import ERROR_PREFIX

_NAMES = {
    "TABLE_OR_VIEW_NOT_FOUND": ("relationName", "there is no table or view {}"),
    "UNRESOLVED_COLUMN": ("objectName", "there is no column {}"),
    "SCHEMA_NOT_FOUND": ("schemaName", "there is no schema {}"),
    "REQUIRES_SINGLE_PART_NAMESPACE": ("identifier", "its catalog knows schema.name, and not {}"),
    "TABLE_OR_VIEW_ALREADY_EXISTS": ("relationName", "there is a table or view {} already"),
}
"""Errors that are about a name, which is told."""

_KINDS = {
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND": "an executor was lost, and with it rows that were kept there: run it again",
    "PATH_NOT_FOUND": "Spark finds no such file or folder",
    "PATH_ALREADY_EXISTS": "the folder is there already",
    "PARSE_SYNTAX_ERROR": "it cannot read the statement: see source.query",
    "UNABLE_TO_INFER_SCHEMA": "there are no Parquet files, or they have no columns",
    "INSUFFICIENT_PERMISSIONS": "the user has not the rights that this needs",
    "CAST_INVALID_INPUT": "a value does not fit its type",
    "CAST_OVERFLOW": "a value does not fit its type",
    "ARITHMETIC_OVERFLOW": "a number is too large for its type",
    "NUMERIC_VALUE_OUT_OF_RANGE": "a number is too large for its type",
    "DIVIDE_BY_ZERO": "something is divided by zero",
    "DATETIME_OVERFLOW": "a date or time is out of range",
    "DATETIME_FIELD_OUT_OF_BOUNDS": "a date or time is out of range",
    "FAILED_READ_FILE": "a file was removed or changed while it was read, or is broken: run it again",
    "OPERATION_CANCELED": "somebody cancelled the job",
    "SPARK_JOB_CANCELLED": "somebody cancelled the job",
    "PYTHON_EXCEPTION": "Python failed in a worker: it must have the same version as here, and pyarrow",
    "JAVA_GATEWAY_EXITED": "its driver ended at once",
    "INVALID_HANDLE": "the server has forgotten the session: it was restarted, or the session was idle for too long",
}

_WORDS = {
    "maxresultsize": "the result is too large for its driver: raise spark.driver.maxResultSize",
    "outofmemoryerror": "it ran out of memory: raise spark.driver.memory, or spark.executor.memory",
    "executorlostfailure": "an executor was lost, again and again: see its log",
    "handshake failed": "it does not speak TLS, which a token needs",
    "connection refused": "no server is listening there",
    "failed to connect": "no server is listening there, or it does not answer",
    "dns resolution failed": "the host is not known",
    "deadline exceeded": "it does not answer",
    "unauthenticated": "it does not know the token",
    "permissiondenied": "the user has not the rights that this needs",
    "accesscontrolexception": "the user has not the rights that this needs",
    "masters are unresponsive": "no master answers there",
    "could not parse master url": "it knows no such master",
    "sparkcontext was shut down": "its driver was stopped",
    "stopped sparkcontext": "the session was stopped",
    "session_closed": "the session was closed",
}

_OF_COLUMNS = {
    "INSUFFICIENT_PERMISSIONS",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "DATETIME_OVERFLOW",
    "DATETIME_FIELD_OUT_OF_BOUNDS",
}
_NO_RIGHTS = ("permissiondenied", "accesscontrolexception")

_OF_NO_DRIVER = {"Py4JError", "Py4JNetworkError"}
"""What py4j raises where Java says nothing; errors of Java have a class of their own."""

_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def is_spark_error(error: BaseException) -> bool:
    """Whether pyspark, or what it talks through, raised an error."""
    return isinstance(error, ConnectionError) or any(
        kind.__module__.partition(".")[0] in {"pyspark", "py4j", "grpc"} for kind in type(error).__mro__
    )


def error_condition(error: Any) -> str:
    """The name of an error in Spark's list of them, or nothing.

    >>> error_condition(ValueError("[DIVIDE_BY_ZERO] Division by zero"))
    'DIVIDE_BY_ZERO'
    """
    name = getattr(error, "getCondition", lambda: None)()
    if name is None:
        found = re.search(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ", str(error))
        name = found[1] if found else ""
    return str(name)


def is_about_columns(error: Any) -> bool:
    """Whether a statement failed because of columns: the user may not read one, or one has a value without a text.

    >>> is_about_columns(ValueError("[CAST_OVERFLOW] The value 9E9 cannot be cast"))
    True
    >>> is_about_columns(ValueError("[SPARK_JOB_CANCELLED] Job 7 cancelled"))
    False
    """
    condition = error_condition(error).partition(".")[0]
    said = str(error)
    if condition == "USER_RAISED_EXCEPTION":  # of a task, Java quotes it in an error of its own
        return f"[{condition}] {ERROR_PREFIX}" in said
    return condition in _OF_COLUMNS or any(word in said.lower() for word in _NO_RIGHTS)


def describe_error(error: Any) -> str:
    """What may be told of an error.

    >>> describe_error(ValueError("[CAST_INVALID_INPUT] The value 'Ann' of the type STRING cannot be cast"))
    'a value does not fit its type (CAST_INVALID_INPUT)'
    """
    condition = error_condition(error)
    main = condition.partition(".")[0]
    parameters = getattr(error, "getMessageParameters", lambda: None)() or {}
    if main in _NAMES and _NAMES[main][0] in parameters:
        name, words = _NAMES[main]
        return words.format(parameters[name])
    said = str(parameters.get("errorMessage", ""))
    if main == "USER_RAISED_EXCEPTION" and said.startswith(ERROR_PREFIX):  # what others raise may quote values
        return said.removeprefix(ERROR_PREFIX)
    if main in _KINDS:
        return f"{_KINDS[main]} ({condition})"
    if isinstance(error, ConnectionError) or type(error).__name__ in _OF_NO_DRIVER:
        return "its driver does not answer: it may be gone"
    said = str(error).lower()
    reason = next((reason for word, reason in _WORDS.items() if word in said), None)
    reason = reason or "it failed, see its log"
    return f"{reason} ({condition})" if condition else reason


@contextmanager
def silence_pyspark() -> Iterator[None]:
    """pyspark writes nothing to stderr meanwhile: neither the errors of statements, values and all, nor warnings."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (it is an extra)

    # py4j tells the root itself of a driver that is gone.
    loggers = [logging.getLogger(), *(PySparkLogger.getLogger(name) for name in _LOGGERS)]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
