"""Shared by the tests of tables."""

from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
