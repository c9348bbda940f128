"""Importing the package is free, and brings everything when it is asked for."""

import subprocess
import sys

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
        assert getattr(pymc_geodesic, name).__name__.split(".")[-1] == name


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'SGGMCC'"):
        _ = pymc_geodesic.SGGMCC


def test_names_can_be_imported_one_by_one():
    code = "from pymc_geodesic import SGGMC, VonMisesFisher, datasets; assert SGGMC.__name__"
    subprocess.run([sys.executable, "-c", code], check=True)
