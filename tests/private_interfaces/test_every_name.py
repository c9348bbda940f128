"""Each private name of PyMC, PyTensor and Numba that is imported has a test in this folder."""

import ast
from pathlib import Path

from tests.test_layers import EXTENSION, MODULES, PUBLIC

FOLDER = Path(__file__).parent
FOREIGN = ("pymc", "pytensor", "numba")
PUBLISHED = {"numba", "numba.extending", *PUBLIC}
OF_WRITERS = tuple(name for name in EXTENSION if not name.startswith("pytensor.link"))
"""Modules for authors of distributions, transforms and Ops."""


def private_names(source: str) -> set[tuple[str, str]]:
    """Modules and private names of the three packages that a source imports."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in FOREIGN:
            shown = node.module in PUBLISHED or node.module.startswith(OF_WRITERS)
            names = {alias.name for alias in node.names}
            found |= {(node.module, name) for name in names if name[0] == "_" or not shown}
    return found


def test_every_private_name_has_a_canary():
    """Each import of a private name has a test in this folder that states what depends on it."""
    here = set().union(*(private_names(path.read_text()) for path in FOLDER.glob("test_*.py")))
    missing = {
        module: names
        for module, path in MODULES.items()
        if (names := private_names(path.read_text()) - here)
    }
    assert not missing, "test what these take, in tests/private_interfaces/"
