"""Configuration of the documentation build."""

import os
from importlib.metadata import version as version_of

project = "pymc_geodesic"
author = "The pymc_geodesic developers"
copyright = "2025, The pymc_geodesic developers"
release = version_of("pymc_geodesic")

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

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# Notebooks run when their text or the package version changes, and are kept otherwise.
nb_execution_mode = "cache"
nb_execution_cache_path = os.path.join(os.path.dirname(__file__), "_build", ".jupyter_cache")
nb_execution_timeout = 900
nb_execution_raise_on_error = True
nb_merge_streams = True

autosummary_generate = True
autodoc_default_options = {"members": False}
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
