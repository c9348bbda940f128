"""The drawing of which sampler to take."""

import importlib.util
import re
from pathlib import Path
from xml.etree import ElementTree

from pymc.step_methods.compound import BlockedStep

import pymc_geodesic as pg

SCRIPT = Path(__file__).parents[2] / "docs" / "figures" / "which_sampler.py"
specification = importlib.util.spec_from_file_location("which_sampler", SCRIPT)
which_sampler = importlib.util.module_from_spec(specification)
specification.loader.exec_module(which_sampler)
SVG = "{http://www.w3.org/2000/svg}"


def test_the_committed_drawing_is_that_of_the_script():
    assert SCRIPT.with_suffix(".svg").read_text() == which_sampler.drawing()


def test_the_drawing_can_be_read_by_machines():
    root = ElementTree.fromstring(which_sampler.drawing())
    names = {root.find(f"{SVG}{tag}").get("id") for tag in ("title", "desc")}
    assert set(root.get("aria-labelledby").split()) == names
    assert "http" not in which_sampler.drawing().replace("http://www.w3.org/2000/svg", "")


def test_words_stay_in_their_boxes():
    """A letter is some 7 wide: 380 hold a box and its words on the narrowest phones."""
    root = ElementTree.fromstring(which_sampler.drawing())
    texts = root.findall(f".//{SVG}text")
    assert len(texts) > 20
    for text in texts:
        assert float(text.get("x")) + 7.0 * len("".join(text.itertext())) <= which_sampler.WIDTH


def test_its_samplers_are_those_of_the_package():
    linked = set(re.findall(r"pymc_geodesic\.(\w+)\.html", which_sampler.drawing()))
    steps = {name for name in pg.__all__ if isinstance(getattr(pg, name), type)}
    steps = {name for name in steps if issubclass(getattr(pg, name), BlockedStep)}
    assert linked <= steps
    assert steps - linked == {"SGLD", "SSGLD", "SGRLD"}  # the plain relatives, for comparison
