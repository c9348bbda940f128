"""Set up the test process before anything compiles."""

import gc
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import digest_of_package

UNUSED_SECONDS = 14 * 24 * 3600


def numba_cache_of_these_sources() -> Path:
    """Return the folder for machine code compiled from exactly the sources under test.

    Numba decides whether cached machine code is fresh by the file of the cached function
    alone: when a function it inlines from another module changes, the old code is loaded
    again and the tests would pass or fail for a version that no longer exists. A folder
    named by the hash of all sources of the package cannot hold such code.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return base / "pymc_geodesic" / "numba-tests" / digest_of_package()


def forget_old_caches(current: Path) -> None:
    """Delete the folders of sources that nobody has tested for two weeks."""
    current.mkdir(parents=True, exist_ok=True)
    current.touch()
    for folder in current.parent.iterdir():
        if folder != current and time.time() - folder.stat().st_mtime > UNUSED_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


if "NUMBA_CACHE_DIR" not in os.environ:  # one that is set serves whoever edits and tests in turn
    cache = numba_cache_of_these_sources()
    forget_old_caches(cache)
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
os.environ.setdefault("MPLBACKEND", "Agg")
# PyTensor notes for every variable where it was made, which takes a tenth of the time of a model.
os.environ["PYTENSOR_FLAGS"] = ",".join(
    ["traceback__limit=0", *filter(None, [os.environ.get("PYTENSOR_FLAGS")])]
)
# PyTensor and Numba make millions of objects, most of which live on for a while. To look for
# circles among them after every 2,000 takes a tenth of the time of a compilation, and after every
# 50,000 twice as long as after ten times as many, which wait in some 50 MB.
gc.set_threshold(500_000)
# A shell lets processes in the background ignore Ctrl-C; tests of it send it to themselves.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    """Close what a test or doctest has drawn; matplotlib warns about many open figures."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


COMPILED_EXAMPLES = (
    "pymc_geodesic.distributions.rotationally_symmetric.VonMisesFisher",
    "pymc_geodesic.steps.scir.SCIR",
    "pymc_geodesic.steps.sggmc.SGGMC",
)
"""Docstrings that run as users run them, compiled by Numba: those that the first pages show."""


@pytest.fixture(autouse=True)
def interpret_examples(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile nothing for most examples of docstrings, whose draws are few."""
    node = request.node
    if not isinstance(node, pytest.DoctestItem) or node.name in COMPILED_EXAMPLES:
        yield
        return
    import pytensor

    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
