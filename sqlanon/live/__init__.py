"""Live views generalize and suppress whenever they are read, in the source database: docs/how-to/live.md."""

from sqlanon.live.view import LiveView, drop_live, live, live_statements

__all__ = ["LiveView", "drop_live", "live", "live_statements"]
