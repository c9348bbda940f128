"""The drawing in docs/architecture.md is that of the contract that import-linter checks."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "architecture.md").read_text()


def layers_of_the_contract() -> list[set[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    return [set(layer.split(" | ")) for layer in layers]


def layers_of_the_drawing() -> list[set[str]]:
    """Layers from the top; an empty line separates them."""
    (drawing,) = re.findall(r"```text\n(.*?)```", TEXT, flags=re.DOTALL)[:1]
    return [
        {line.split()[0] for line in block.splitlines() if not line.startswith(" ")}
        for block in drawing.split("\n\n")
    ]


def test_the_drawing_is_that_of_the_contract():
    assert layers_of_the_drawing() == layers_of_the_contract()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_/]+\.py)`", TEXT))))
def test_files_are_where_the_page_says(path):
    assert (ROOT / "pymc_geodesic" / path).is_file()
