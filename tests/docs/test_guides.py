"""The guides of the applications run as they stand, without a warning."""

import re
from pathlib import Path

import pytest

from tests.grids import by_default

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = ("getting_started", "hierarchies", "svm", "topics", "mixtures", "directional")


def cells(page):
    """Return the programs of a page, without the options of their cells."""
    found = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", page, re.DOTALL | re.M)
    return [re.sub(r"\A---\n.*?^---\n", "", cell, flags=re.DOTALL | re.M) for cell in found]


@pytest.mark.parametrize("guide", by_default(["svm"], of=GUIDES))  # the build runs all pages
def test_guide(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = cells((DOCS / f"{guide}.md").read_text())
    assert len(programs) > 2
    names = {"__name__": "guide"}
    for program in programs:
        exec(program, names)
    assert names["idata"]["posterior"].sizes["draw"] > 1
