"""``sqlanon demo``: a hospital, a voter list, and what the one tells about the other, before and after."""

from sqlanon.demo.story import Demo, run_demo

__all__ = ["Demo", "run_demo"]
