"""The data loader of pymc_extras, for any installed version of PyMC."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from pymc.step_methods import STEP_METHODS

NAME = "pymc_extras.variational.dataloader"


def goes_with_this_pymc() -> bool:
    """Whether pymc_extras supports the installed PyMC; skip the test if it is not installed."""
    try:
        wanted = [Requirement(line) for line in requires("pymc-extras") or []]
    except PackageNotFoundError:
        pytest.skip("needs pymc_extras")
    return all(version("pymc") in each.specifier for each in wanted if each.name == "pymc")


def load_data_loader() -> ModuleType:
    """Import the public module, or only its file if the package requires another PyMC."""
    return import_publicly() if goes_with_this_pymc() else load_one_file()


def import_publicly() -> ModuleType:
    """Import as users do, and remove the step method that the package adds to PyMC's list."""
    steps = list(STEP_METHODS)
    import_module("pymc_extras.variational")
    STEP_METHODS[:] = steps
    return import_module(NAME)


def load_one_file() -> ModuleType:
    """Import one file without the rest of the package, which this PyMC may break."""
    package = find_spec("pymc_extras")
    path = Path(package.submodule_search_locations[0]) / "variational" / "dataloader.py"
    if not path.exists():
        pytest.skip("needs a pymc_extras with a data loader")
    spec = spec_from_file_location(NAME, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
