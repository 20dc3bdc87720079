"""Releases in Spark: what readers find there, what a crash leaves, and what `verify` sees."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from conftest import make_policy

import sqlanon
from sqlanon.engines.spark import SparkEngine
from sqlanon.publishing import Publishing
from sqlanon.queries import spark as sp
from sqlanon.queries.macros import digest_of
from sqlanon.queries.names import select, star, table
from sqlanon.queries.spark_digest import digest_there, digestible
from sqlanon.queries.travel import travelling
from sqlanon.release.spark import publish_spark
from sqlanon.release.spark_reader import SparkRelease, SparkSpot, verify_spark
from sqlanon.release.staging import Content
from sqlanon.release.verify import Verification
from sqlanon.resources import PLAIN, macros

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pytestmark = pytest.mark.slow
