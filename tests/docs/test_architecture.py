"""The page on the architecture names files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
FILES = sorted(set(re.findall(r"\b((?:[a-z_]+/)*[a-z_]+\.py)\b", TEXT)))


def test_files_are_found():
    assert len(FILES) > 40
    assert {"steps/sggmc.py", "integrators.py"} <= set(FILES)


@pytest.mark.parametrize("path", FILES)
def test_files_are_where_the_page_says(path):
    assert (ROOT / "pymc_geodesic" / path).is_file()
