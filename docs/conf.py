"""Configuration of the documentation build."""

import hashlib
import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "_extensions"))

from inventories import write_inventories

SOURCES = sorted((ROOT / "pymc_geodesic").rglob("*.py"))

project = "pymc_geodesic"
author = "The pymc_geodesic developers"
copyright = "The pymc_geodesic developers"
release = metadata.version("pymc_geodesic")

extensions = [
    "local_mathjax",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "_extensions", "**.ipynb_checkpoints"]
html_theme = "furo"
html_title = "pymc_geodesic"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_favicon = "_static/sphere.svg"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", "")

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Notebooks run when their text or the package changes, and are kept otherwise.
digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "jupyter_cache" / digest)
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True

default_role = "py:obj"
autosummary_generate = True
autodoc_default_options = {"members": False}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# Links to other projects, from a list and not from their servers.
intersphinx_mapping = write_inventories(DOCS / "inventories.txt", DOCS / "_build" / "inventories")
intersphinx_disabled_reftypes = ["std:doc"]
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"  # but these, and what numpydoc itself knows: list, float, ndarray
numpydoc_xref_aliases = {
    "DataArray": "xarray.DataArray",
    "DataTree": "xarray.DataTree",
    "Model": "pymc.Model",
    "TensorVariable": "pytensor.tensor.TensorVariable",
    "numpy.random.Generator": "numpy.random.Generator",
    "pymc.Model": "pymc.Model",
    "scipy.sparse": ":mod:`scipy.sparse`",
    "xarray.DataTree": "xarray.DataTree",
    "array": ":class:`array <numpy.ndarray>`",
    "number": ":class:`number <float>`",
}


def sections_as_rubrics(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Turn the sections of a module docstring into rubrics, which have no labels of a page."""
    if what != "module":
        return
    for i, underline in enumerate(lines[1:]):
        if underline and set(underline) == {"-"} and len(underline) == len(lines[i]):
            lines[i], lines[i + 1] = f".. rubric:: {lines[i]}", ""


def setup(app: Any) -> None:
    """Connect to the events of Sphinx."""
    app.connect("autodoc-process-docstring", sections_as_rubrics)
