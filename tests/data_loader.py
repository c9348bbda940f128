"""The data loader of pymc_extras, without the rest of that package."""

from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

NAME = "pymc_extras.variational.dataloader"


def load_data_loader() -> ModuleType:
    """Import one file: the package adds a step method to PyMC's list, which other tests read."""
    package = find_spec("pymc_extras")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs pymc_extras")
    path = Path(package.submodule_search_locations[0]) / "variational" / "dataloader.py"
    if not path.exists():
        pytest.skip("needs a pymc_extras with a data loader")
    spec = spec_from_file_location(NAME, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
