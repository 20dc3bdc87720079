"""The version, in one place beside ``pyproject.toml``; a test holds them together."""

__version__ = "0.1.0"
