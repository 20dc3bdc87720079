"""Code blocks of documentation pages, and folders in which they run."""

from __future__ import annotations

import re

from support.files import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


FIRST_POLICY = (ROOT / "docs" / "tutorial" / "policy.md").read_text(encoding="utf-8")


SPARK = (ROOT / "docs" / "how-to" / "spark.md").read_text(encoding="utf-8")


FOLDER = "sqlanon-demo"


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
