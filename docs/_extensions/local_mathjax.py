"""MathJax from the pages' own server, so that formulas are there without another network."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

PACKAGE = "sphinx-mathjax-offline"
SCRIPT = "tex-chtml.js"
PARTS = (SCRIPT, "output/chtml/fonts/woff-v2", "input/tex/extensions")
"""A twentieth of what the package holds: one way in (TeX), one way out, and rarer TeX commands."""


def _copy(app: Sphinx, error: Exception | None) -> None:
    found = importlib.util.find_spec(PACKAGE)
    if error is not None or app.builder.format != "html":
        return
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"pip install {PACKAGE}: the group of dependencies `docs` has it")
    source = Path(found.origin).parent / "static" / "mathjax"
    target = Path(app.outdir) / "_static" / "mathjax"
    for part in PARTS:
        (target / part).parent.mkdir(parents=True, exist_ok=True)
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part, dirs_exist_ok=True)
        else:
            shutil.copy(source / part, target / part)


def setup(app: Sphinx) -> dict[str, Any]:
    """Point Sphinx to the copy, and make it when the pages are written."""
    app.config.mathjax_path = f"mathjax/{SCRIPT}"
    app.connect("build-finished", _copy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
