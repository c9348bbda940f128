"""Importing the package takes no time, and names are imported when they are first used."""

import ast
import re
import subprocess
import sys
import tomllib
import traceback
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import pymc_geodesic


def test_importing_the_package_loads_nothing_heavy():
    code = """
import sys
import pymc_geodesic
heavy = {"pymc", "pytensor", "numba", "arviz", "matplotlib", "scipy", "sklearn"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_listed_and_found():
    assert set(pymc_geodesic.__all__) <= set(dir(pymc_geodesic))
    for name in pymc_geodesic.__all__:
        own_name = getattr(pymc_geodesic, name).__name__.split(".")[-1]
        assert own_name == {"SSGLD": "SGLD"}.get(name, name)


def test_only_public_names_are_offered():
    """In a new process, where nothing has been loaded."""
    code = "import pymc_geodesic as pg; print(*sorted({*dir(pg)} ^ {*pg.__all__}))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["__version__"]


def test_version():
    assert pymc_geodesic.__version__ == version("pymc_geodesic")


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'SGGMCC'") as caught:
        _ = pymc_geodesic.SGGMCC
    assert "Did you mean: 'SGGMC'?" in "".join(traceback.format_exception(caught.value))


def test_editors_and_type_checkers_find_every_name():
    """The stub lists all public names with their modules."""
    stub = Path(pymc_geodesic.__file__).with_suffix(".pyi")
    for node in ast.parse(stub.read_text()).body:
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            assert alias.name == alias.asname, f"{alias.name} would not be exported"
            home = import_module("." * node.level + (node.module or alias.name), "pymc_geodesic")
            if node.module:
                assert getattr(home, alias.name) is getattr(pymc_geodesic, alias.name)


def test_draws_can_be_written_to_a_file():
    """`idata.to_netcdf` needs a library that neither PyMC nor ArviZ installs."""
    assert "h5netcdf" in declared_dependencies()


def declared_dependencies():
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    return [re.match(r"[\w-]+", each).group() for each in needed]


def test_the_progress_bar_of_pymc_finds_its_dependencies():
    """PyMC imports matplotlib for its progress bar and does not declare it."""
    from pymc.progress_bar import rich_progress

    names = set()
    for node in ast.walk(ast.parse(Path(rich_progress.__file__).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.split(".")[0])
    assert "matplotlib" in names, "no longer needed: remove it from the dependencies"
    assert names - set(sys.stdlib_module_names) <= set(declared_dependencies())


def test_names_can_be_imported_one_by_one():
    code = "from pymc_geodesic import SGGMC, VonMisesFisher, datasets; assert SGGMC.__name__"
    subprocess.run([sys.executable, "-c", code], check=True)
