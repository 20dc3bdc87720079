"""Python that runs in Spark's workers: in other processes, and on other machines."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import pyarrow

Mapper: TypeAlias = "Callable[[Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]"
"""Makes of batches of rows others."""


@contextmanager
def sent(function: Mapper) -> Iterator[None]:
    """Meanwhile a function is sent with all of its module: the workers need not have it."""
    from pyspark import cloudpickle as untyped  # noqa: PLC0415  (it is an extra)

    cloudpickle: Any = untyped
    module = sys.modules[function.__module__]
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def own_python(context: Any) -> None:
    """Have the workers of a driver, which are all on this machine, use the Python that runs here, unless it is said."""
    if "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
