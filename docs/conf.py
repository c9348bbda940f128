"""Configuration of the documentation build."""

import hashlib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "pymc_geodesic").rglob("*.py"))

project = "pymc_geodesic"
author = "The pymc_geodesic developers"
copyright = "The pymc_geodesic developers"
release = metadata.version("pymc_geodesic")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "**.ipynb_checkpoints"]
html_theme = "furo"
html_title = "pymc_geodesic"
html_static_path = ["_static"]
html_css_files = ["pages.css"]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Notebooks run when their text or the package changes, and are kept otherwise.
digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
nb_execution_mode = "cache"
nb_execution_cache_path = str(ROOT / "docs" / "_build" / "jupyter_cache" / digest)
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True

default_role = "py:obj"
autosummary_generate = True
autodoc_default_options = {"members": False}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
