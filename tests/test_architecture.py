"""The page on the architecture agrees with the contract of import-linter and with the files."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text()
FILES = sorted(set(re.findall(r"\b((?:[a-z_]+/)*[a-z_]+\.py)\b", TEXT)))


def layers_of_the_contract() -> list[set[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    return [set(layer.split(" | ")) for layer in layers]


def layers_of_the_page() -> list[set[str]]:
    """Names in the first column of the first table, from the top."""
    (table,) = re.findall(r"^\| Layer \|.*?\n\|[-|]+\n(.*?)\n\n", TEXT, re.DOTALL | re.MULTILINE)
    return [set(re.findall(r"`(\w+)`", row.split("|")[1])) for row in table.splitlines()]


def test_layers_are_those_of_the_contract():
    assert layers_of_the_page() == layers_of_the_contract()


def test_files_are_found():
    assert len(FILES) > 40
    assert {"steps/sggmc.py", "integrators.py"} <= set(FILES)


@pytest.mark.parametrize("path", FILES)
def test_files_are_where_the_page_says(path):
    assert (ROOT / "pymc_geodesic" / path).is_file()
