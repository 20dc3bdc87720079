"""The hospital whose linked tables are released."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import cli
from support.linked_hospital import make_hospital


@pytest.fixture(scope="module")
def hospital(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, its policy and a release."""
    folder = tmp_path_factory.mktemp("hospital")
    make_hospital(folder)
    assert cli("anonymize", folder / "policy.toml").status == 0
    return folder
