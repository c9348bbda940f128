"""What the package takes from inside PyMC, PyTensor and Numba has a canary in this folder."""

import ast
from pathlib import Path

from tests.test_layers import EXTENSION, MODULES, PUBLIC

FOLDER = Path(__file__).parent
FOREIGN = ("pymc", "pytensor", "numba")
PUBLISHED = {"numba", "numba.extending", *PUBLIC}
OF_WRITERS = tuple(name for name in EXTENSION if not name.startswith("pytensor.link"))
"""Modules for whoever writes a distribution, a transform or an Op."""


def private_names(source: str) -> set[tuple[str, str]]:
    """Modules and names that a source imports from inside the three packages."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in FOREIGN:
            shown = node.module in PUBLISHED or node.module.startswith(OF_WRITERS)
            names = {alias.name for alias in node.names}
            found |= {(node.module, name) for name in names if name[0] == "_" or not shown}
    return found


def test_every_private_name_has_a_canary():
    """Whoever reaches further inside adds a test here that says what breaks."""
    here = set().union(*(private_names(path.read_text()) for path in FOLDER.glob("test_*.py")))
    missing = {
        module: names
        for module, path in MODULES.items()
        if (names := private_names(path.read_text()) - here)
    }
    assert not missing, "test what these take, in tests/private_interfaces/"
