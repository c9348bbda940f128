"""An argument of users travels downhill once, through the files that the page names."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.steps.base.signature import Options
from tests.steps.runs import INTERPRETED

PACKAGE = Path(pg.__file__).parent
TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()

BATCH = 137
"""A number that nothing else has."""


def holds(value: Any) -> bool:
    """Whether a value is the number of rows of a minibatch, or what users passed with it."""
    if isinstance(value, Options):
        return getattr(value, "batch_size", None) == BATCH
    return type(value) is int and value == BATCH


def arguments_of(frame: FrameType) -> list[Any]:
    """What a function was called with, besides the object it belongs to."""
    names, _, keywords, values = inspect.getargvalues(frame)
    passed = [values[name] for name in names if name not in ("self", "cls")]
    return passed + (list(values[keywords].values()) if keywords else [])


def files_on_the_way(begin: Callable[[], object]) -> list[str]:
    """Files with a function that the number was handed to, one after the other."""
    found: list[str] = []

    def watch(code: CodeType, _: int) -> object:
        path = Path(code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return sys.monitoring.DISABLE
        if any(map(holds, arguments_of(sys._getframe(1)))):
            found.append(path.relative_to(PACKAGE).as_posix())
        return None

    tool, start = sys.monitoring.PROFILER_ID, sys.monitoring.events.PY_START
    sys.monitoring.use_tool_id(tool, "tests.test_travel")
    try:
        sys.monitoring.register_callback(tool, start, watch)
        sys.monitoring.set_events(tool, start)
        begin()
    finally:
        sys.monitoring.set_events(tool, sys.monitoring.events.NO_EVENTS)
        sys.monitoring.free_tool_id(tool)
    return [name for last, name in pairwise([None, *found]) if name != last]


def returns(files: Iterable[str]) -> list[str]:
    """Files that are entered again after another one."""
    seen: set[str] = set()
    return [name for name in files if name in seen or seen.add(name)]


@pytest.fixture(scope="module")
def way():
    rows = np.random.default_rng(1).normal(size=(20 * BATCH, 2))
    given = {"step_size": 0.01, "friction": 1.0, "compile_kwargs": INTERPRETED}
    with pm.Model(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_geodesic.steps.base.underdamped.prepare", lambda *kernels: None)
        X = pm.Data("X", rows)
        beta = pm.Normal("beta", shape=2)
        pm.Normal("y", X @ beta, 1.0, observed=X[:, 0])
        return files_on_the_way(lambda: pg.SGGMC(batch_size=BATCH, minibatch=["X"], **given))


def test_batch_size_passes_the_files_that_the_page_names(way):
    told = re.search(r"`batch_size` of `SGGMC`(.*?)\n\n", TEXT, flags=re.DOTALL)
    assert told, "docs/architecture.md does not say which way batch_size goes"
    assert way == re.findall(r"`([a-z_/]+\.py)`", told[1])


def test_batch_size_comes_back_to_no_file(way):
    assert returns(way) == []


def test_a_return_is_found():
    assert returns(["door", "hall", "door", "cellar", "hall"]) == ["door", "hall"]
