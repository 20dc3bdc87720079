"""Live views: a view in the private database that generalizes, and suppresses whenever it is read. docs/live.md."""

from sqlanon.live.view import LiveView, drop_live, live, live_statements

__all__ = ["LiveView", "drop_live", "live", "live_statements"]
