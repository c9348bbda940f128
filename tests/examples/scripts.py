"""Loading of scripts outside the package."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def script_paths(folder: str) -> list[Path]:
    """All scripts of a folder next to the package."""
    return sorted((ROOT / folder).glob("*.py"))


def load(path: Path) -> ModuleType:
    """Import a script, which may import other scripts of its folder."""
    sys.path.insert(0, str(path.parent))
    try:
        return import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))
