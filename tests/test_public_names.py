"""Every public name is importable, explained by an example, and in the reference."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import pymc_geodesic

ROOT = Path(__file__).parents[1]
PUBLIC_MODULES = (
    "datasets",
    "diagnostics",
    "directional",
    "distributed",
    "manifolds",
    "mixtures",
    "svm",
    "topics",
    "transforms",
)


def public_objects():
    for module in (pymc_geodesic, *(getattr(pymc_geodesic, name, None) for name in PUBLIC_MODULES)):
        if module is not None:
            for name in module.__all__:
                yield module.__name__, name, getattr(module, name)


OBJECTS = {f"{module}.{name}": value for module, name, value in public_objects()}


def documented_names():
    """Return the qualified names on the reference pages."""
    for page in (ROOT / "docs" / "api").glob("*.md"):
        module = ""
        for line in page.read_text().splitlines():
            if found := re.match(r"\.\. (?:currentmodule|automodule):: (\S+)", line):
                module = found[1]
                yield module
            elif found := re.match(r"(?:   |\.\. auto\w+:: )(\w+)$", line):
                yield f"{module}.{found[1]}"


REFERENCE = set(documented_names())


@pytest.mark.parametrize("module", PUBLIC_MODULES)
def test_modules_are_attributes_of_the_package(module):
    assert isinstance(getattr(pymc_geodesic, module), ModuleType)


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_name_is_explained(name):
    docstring = inspect.getdoc(OBJECTS[name]) or ""
    assert len(docstring) > 20, f"{name} has no docstring of its own"
    if not isinstance(OBJECTS[name], ModuleType) and callable(OBJECTS[name]):
        assert "Examples\n--------" in docstring, f"{name} has no example"
        assert ">>>" in docstring, f"the example of {name} does not run"


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_name_is_in_the_reference(name):
    # A class may be offered by the package and by its module; one page is enough.
    same = {other for other, value in OBJECTS.items() if value is OBJECTS[name]}
    if isinstance(OBJECTS[name], ModuleType):
        same.add(OBJECTS[name].__name__)
    assert same & REFERENCE, f"add {name} to a page in docs/api"


def test_the_reference_names_nothing_that_does_not_exist():
    modules = {f"pymc_geodesic.{name}" for name in PUBLIC_MODULES}
    assert REFERENCE - set(OBJECTS) - modules - {"pymc_geodesic"} == set()


def test_importing_the_package_changes_nothing_in_pymc():
    code = """
import pymc
import pytensor
from pymc.step_methods import STEP_METHODS

def state():
    return {
        "step methods": [(each.__name__, each.competence) for each in STEP_METHODS],
        "names of pymc": sorted(vars(pymc)),
        "settings": [getattr(pytensor.config, name) for name in ("mode", "linker", "floatX")],
    }

before = state()
import pymc_geodesic
for name in pymc_geodesic.__all__:
    getattr(pymc_geodesic, name)
after = state()
changed = [key for key in before if before[key] != after[key]]
assert not changed, changed
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
