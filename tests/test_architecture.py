"""The drawing in docs/architecture.md is that of the sources."""

import re
from pathlib import Path

import pytest

from tests.test_layers import MAY_IMPORT, MODULES, PACKAGE, ROOT, imports, layer

TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()


def floors_of(text: str) -> dict[str, int]:
    """Floor of every layer of the drawing; a line without a number is on the floor above it."""
    drawing = re.search(r"```text\nfloor\n(.*?)```", text, flags=re.DOTALL)
    assert drawing, "docs/architecture.md has no drawing that begins with the word floor"
    floors: dict[str, int] = {}
    floor = -1
    for number, name in re.findall(r"^ ([ \d]\d|  ) {3}(\w+) ", drawing[1], flags=re.MULTILINE):
        floor = floor if number == "  " else int(number)
        assert name not in floors, f"{name} is drawn twice"
        floors[name] = floor
    return floors


FLOORS = floors_of(TEXT)
LAYERS = {name: below for name, below in MAY_IMPORT.items() if name != "__main__"}
"""All but the command line, which stands outside of the house and calls at its door."""


def upward(floors: dict[str, int], uses: dict[str, set[str]]) -> set[tuple[str, str]]:
    """Pairs of layers of which the first uses the second, but does not stand above it."""
    return {(a, b) for a in uses for b in uses[a] if floors[a] <= floors[b]}


def used() -> dict[str, set[str]]:
    """What every layer imports from the package, read from the sources."""
    found: dict[str, set[str]] = {name: set() for name in LAYERS}
    for module, path in MODULES.items():
        own = layer(module)
        for name, member in imports(path.read_text()):
            if own in LAYERS and name.split(".")[0] == PACKAGE:
                found[own].add(layer(member if name == PACKAGE else name))
    return {own: names - {own, ""} for own, names in found.items()}


def test_every_layer_is_drawn_once_and_nothing_else():
    assert set(FLOORS) == set(LAYERS)
    on_disk = {path.stem for path in ROOT.iterdir() if path.suffix in ("", ".py")}
    assert set(FLOORS) == {name for name in on_disk if not name.startswith("_")}


def test_floors_are_those_of_the_rules():
    assert upward(FLOORS, LAYERS) == set()


def test_floors_are_those_of_the_imports():
    assert upward(FLOORS, used()) == set()


def test_no_floor_is_higher_than_it_need_be():
    """So that the drawing says what stands on what, and not only what may."""
    for name, below in LAYERS.items():
        assert FLOORS[name] == max((FLOORS[other] + 1 for other in below), default=0), name


def test_a_wrong_drawing_is_found():
    wrong = FLOORS | {"steps": FLOORS["samplers"]}
    assert upward(wrong, LAYERS) == {("steps", "samplers")}


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`([a-z_/]+\.py)`", TEXT))))
def test_files_are_where_the_page_says(path):
    assert (ROOT / path).is_file()
