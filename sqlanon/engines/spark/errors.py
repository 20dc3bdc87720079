"""Messages for errors of Spark, whose own texts quote values, statements and addresses."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlanon.engines.dialects.spark_rewrites import ERROR_PREFIX

_NAMES = {
    "TABLE_OR_VIEW_NOT_FOUND": ("relationName", "table or view {} does not exist"),
    "UNRESOLVED_COLUMN": ("objectName", "column {} does not exist"),
    "SCHEMA_NOT_FOUND": ("schemaName", "schema {} does not exist"),
    "REQUIRES_SINGLE_PART_NAMESPACE": ("identifier", "its catalog has names like schema.name, not {}"),
    "TABLE_OR_VIEW_ALREADY_EXISTS": ("relationName", "table or view {} exists already"),
}
"""Errors about a name: the message parameter with the name, and a message."""

_KINDS = {
    "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND": "an executor was lost with rows that it stored: run the job again",
    "PATH_NOT_FOUND": "the file or folder does not exist",
    "PATH_ALREADY_EXISTS": "the folder exists already",
    "PARSE_SYNTAX_ERROR": "it cannot read the statement: see source.query",
    "UNABLE_TO_INFER_SCHEMA": "there are no Parquet files, or they have no columns",
    "INSUFFICIENT_PERMISSIONS": "the user lacks the privileges",
    "CAST_INVALID_INPUT": "a value does not fit its type",
    "CAST_OVERFLOW": "a value does not fit its type",
    "ARITHMETIC_OVERFLOW": "a number is too large for its type",
    "NUMERIC_VALUE_OUT_OF_RANGE": "a number is too large for its type",
    "DIVIDE_BY_ZERO": "division by zero",
    "DATETIME_OVERFLOW": "a date or time is out of range",
    "DATETIME_FIELD_OUT_OF_BOUNDS": "a date or time is out of range",
    "FAILED_READ_FILE": "a file was removed or changed while it was read, or is broken: run the job again",
    "OPERATION_CANCELED": "the job was cancelled",
    "SPARK_JOB_CANCELLED": "the job was cancelled",
    "PYTHON_EXCEPTION": "Python failed in a worker: workers need the same Python version as this machine, and pyarrow",
    "JAVA_GATEWAY_EXITED": "the driver ended at once",
    "INVALID_HANDLE": "the session has expired: the server was restarted, or the session was idle for too long",
}

_PHRASES = {
    "maxresultsize": "the result is too large for its driver: raise spark.driver.maxResultSize",
    "outofmemoryerror": "it ran out of memory: raise spark.driver.memory, or spark.executor.memory",
    "executorlostfailure": "an executor was lost repeatedly: see its log",
    "handshake failed": "it does not speak TLS, which a token needs",
    "connection refused": "no server is listening there",
    "failed to connect": "no server is listening there, or it does not answer",
    "dns resolution failed": "the host is unknown",
    "deadline exceeded": "it does not answer",
    "unauthenticated": "the token is invalid",
    "permissiondenied": "the user lacks the privileges",
    "accesscontrolexception": "the user lacks the privileges",
    "masters are unresponsive": "no master answers at that address",
    "could not parse master url": "the address of the master is invalid",
    "sparkcontext was shut down": "its driver was stopped",
    "stopped sparkcontext": "the session was stopped",
    "session_closed": "the session was closed",
}

_COLUMN_ERRORS = {
    "INSUFFICIENT_PERMISSIONS", "CAST_INVALID_INPUT", "CAST_OVERFLOW", "ARITHMETIC_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE", "DATETIME_OVERFLOW", "DATETIME_FIELD_OUT_OF_BOUNDS",
}  # fmt: skip


def is_spark_error(error: BaseException) -> bool:
    """Whether pyspark or a library that it communicates with raised an error."""
    return isinstance(error, ConnectionError) or any(
        kind.__module__.partition(".")[0] in {"pyspark", "py4j", "grpc"} for kind in type(error).__mro__
    )


def error_condition(error: Any) -> str:
    """The name of an error in Spark's list of error conditions, or the empty text.

    >>> error_condition(ValueError("[DIVIDE_BY_ZERO] Division by zero"))
    'DIVIDE_BY_ZERO'
    """
    name = getattr(error, "getCondition", lambda: None)()
    if name is None:
        match = re.search(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ", str(error))
        name = match[1] if match else ""
    return str(name)


def is_about_columns(error: Any) -> bool:
    """Whether a statement failed because a column cannot be read: missing privileges, or a value that cannot be cast.

    >>> is_about_columns(ValueError("[CAST_OVERFLOW] The value 9E9 cannot be cast"))
    True
    >>> is_about_columns(ValueError("[SPARK_JOB_CANCELLED] Job 7 cancelled"))
    False
    """
    condition = error_condition(error).partition(".")[0]
    message = str(error)
    if condition == "USER_RAISED_EXCEPTION":  # raised in a task, and quoted by an error of Java
        return f"[{condition}] {ERROR_PREFIX}" in message
    return condition in _COLUMN_ERRORS or any(
        phrase in message.lower() for phrase in ("permissiondenied", "accesscontrolexception")
    )


def describe_error(error: Any) -> str:
    """The message for an error, without values, statements or addresses.

    >>> describe_error(ValueError("[CAST_INVALID_INPUT] The value 'Ann' of the type STRING cannot be cast"))
    'a value does not fit its type (CAST_INVALID_INPUT)'
    """
    condition = error_condition(error)
    main = condition.partition(".")[0]
    parameters = getattr(error, "getMessageParameters", lambda: None)() or {}
    if main in _NAMES and _NAMES[main][0] in parameters:
        name, message = _NAMES[main]
        return message.format(parameters[name])
    raised = str(parameters.get("errorMessage", ""))
    if main == "USER_RAISED_EXCEPTION" and raised.startswith(ERROR_PREFIX):  # other raised messages may quote values
        return raised.removeprefix(ERROR_PREFIX)
    if main in _KINDS:
        return f"{_KINDS[main]} ({condition})"
    # Errors that Java raises have another class than those of py4j.
    if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JError", "Py4JNetworkError"):
        return "the driver does not respond: it may have ended"
    text = str(error).lower()
    reason = next((message for phrase, message in _PHRASES.items() if phrase in text), "it failed, see its log")
    return f"{reason} ({condition})" if condition else reason


@contextmanager
def silence_pyspark() -> Iterator[None]:
    """Keep pyspark from writing to stderr: it logs errors of statements with their values, and warnings."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415  (it is an extra)

    # py4j logs a lost driver to the root logger.
    names = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
    loggers = [logging.getLogger(), *map(PySparkLogger.getLogger, names)]
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
