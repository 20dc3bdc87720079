"""The servers that a `Database` talks to: each is connected to once, when it is first needed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from sqlanon.engines.postgres import PostgresEngine
from sqlanon.engines.spark import SparkEngine
from sqlanon.policy.spark import SESSION


class Servers:
    """Connections, by address."""

    def __init__(self, stack: ExitStack, session: Any = None) -> None:
        self.session = session
        self._stack = stack
        self._postgres: dict[str, PostgresEngine] = {}
        self._sparks: dict[str, SparkEngine] = {}

    def postgres(self, address: str, place: str) -> PostgresEngine:
        """A connection to PostgreSQL."""
        if address not in self._postgres:
            self._postgres[address] = PostgresEngine.open(address, place)
            self._stack.callback(self._postgres[address].close)
        return self._postgres[address]

    def spark(self, address: str | None, place: str) -> SparkEngine:
        """A session of Spark."""
        name = address or SESSION
        if name not in self._sparks:
            opened = SparkEngine(self.session, place) if address is None else SparkEngine.open(address, place)
            self._sparks[name] = opened
            self._stack.callback(opened.close)
        return self._sparks[name]
