"""An argument of users travels downhill once, through the files that the page names.

A file is on the way if one of its functions is called with the number, calls a function with it, or
reads it from the options. The options that hold it count as the number, and so does a dictionary
of arguments, so that it does not help to hide it in them. The way ends where a source of rows
has the number. What asks the source later does not count.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.minibatches.from_arguments import minibatch_source
from pymc_geodesic.steps.base.options import RowOptions
from pymc_geodesic.steps.base.signature import Options
from tests.steps.runs import INTERPRETED

PACKAGE = Path(pg.__file__).parent
TEXT = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()

BATCH = 137
"""A number that nothing else has."""

EVENTS = sys.monitoring.events
TOOL = sys.monitoring.PROFILER_ID


def holds(value: Any) -> bool:
    """Whether a value is the number of rows of a minibatch, or what users passed it in."""
    if isinstance(value, Options):
        return value.__dict__.get("batch_size") == BATCH
    if isinstance(value, dict):
        return any(map(holds, value.values()))
    if isinstance(value, list | tuple):
        return any(isinstance(each, int | Options) and holds(each) for each in value)
    return isinstance(value, int | np.integer) and value == BATCH


def arguments_of(frame: FrameType) -> list[Any]:
    """What a function was called with, besides the object it belongs to."""
    names, rest, keywords, values = inspect.getargvalues(frame)
    passed = [values[name] for name in names if name not in ("self", "cls")]
    return passed + [values[name] for name in (rest, keywords) if name]


class Way(AbstractContextManager):
    """Files below a folder that a number passes, in order, until a function has returned.

    Attributes
    ----------
    files : list of str
        Those on the way.
    later : list of str
        Those with a function that was called with the number when the way had ended.
    """

    def __init__(self, root: Path, *, end: Callable | None = None) -> None:
        self._root, self._end = root, end
        self._found: list[str] = []
        self.later: list[str] = []
        self._is_over = False
        self._patch = pytest.MonkeyPatch()

    @property
    def files(self) -> list[str]:
        """Names of the files, each once for every time it is entered."""
        return [name for last, name in pairwise([None, *self._found]) if name != last]

    def _note(self, frame: FrameType | None, found: list[str]) -> None:
        path = Path(frame.f_code.co_filename) if frame else Path()
        if path.is_relative_to(self._root):
            found.append(path.relative_to(self._root).as_posix())

    def _read(self, options: Options, name: str) -> Any:
        if name == "batch_size" and not self._is_over:
            self._note(sys._getframe(2), self._found)
        return object.__getattribute__(options, name)

    def _watch_call(self, code: CodeType, _: int) -> None:
        if code.co_filename == __file__:
            return
        frame = sys._getframe(1)
        if not any(map(holds, arguments_of(frame))):
            return
        if self._is_over:
            self._note(frame, self.later)
            return
        self._note(frame.f_back, self._found)
        self._note(frame, self._found)

    def _watch_return(self, code: CodeType, *_: Any) -> None:
        self._is_over = True

    def __enter__(self) -> Self:
        self._patch.setattr(
            Options, "__getattribute__", lambda options, name: self._read(options, name)
        )
        sys.monitoring.use_tool_id(TOOL, "tests.test_travel")
        sys.monitoring.register_callback(TOOL, EVENTS.PY_START, self._watch_call)
        sys.monitoring.set_events(TOOL, EVENTS.PY_START)
        if self._end is not None:
            sys.monitoring.register_callback(TOOL, EVENTS.PY_RETURN, self._watch_return)
            sys.monitoring.set_local_events(TOOL, self._end.__code__, EVENTS.PY_RETURN)
        return self

    def __exit__(self, *_: object) -> None:
        sys.monitoring.set_events(TOOL, EVENTS.NO_EVENTS)
        if self._end is not None:
            sys.monitoring.set_local_events(TOOL, self._end.__code__, EVENTS.NO_EVENTS)
        sys.monitoring.free_tool_id(TOOL)
        self._patch.undo()


def returns(files: Iterable[str]) -> list[str]:
    """Files that are entered again after another one."""
    seen: set[str] = set()
    return [name for name in files if name in seen or seen.add(name)]


@pytest.fixture(
    scope="module",
    params=[
        (pg.SGGMC, {}),
        (pg.SGGMC, {"step_size": 0.01, "friction": 1.0}),
        (pg.SGLD, {"step_size": 0.01}),
    ],
    ids=["SGGMC", "told SGGMC", "SGLD"],
)
def way(request):
    step_class, given = request.param
    rows = np.random.default_rng(1).normal(size=(20 * BATCH, 2))
    with pm.Model(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_geodesic.steps.base.underdamped.prepare", lambda *kernels: None)
        X = pm.Data("X", rows)
        beta = pm.Normal("beta", shape=2)
        pm.Normal("y", X @ beta, 1.0, observed=X[:, 0])
        with Way(PACKAGE, end=minibatch_source) as way:
            step_class(batch_size=BATCH, minibatch=["X"], compile_kwargs=INTERPRETED, **given)
    return way


def test_batch_size_passes_the_files_that_the_page_names(way):
    told = re.search(r"`batch_size` of `SGGMC`(.*?)\n\n", TEXT, flags=re.DOTALL)
    assert told, "docs/architecture.md does not say which way batch_size goes"
    assert way.files == re.findall(r"`([a-z_/]+\.py)`", told[1])


def test_batch_size_comes_back_to_no_file(way):
    assert returns(way.files) == []


def test_what_the_source_has_is_handed_to_nobody(way):
    assert way.later == []


def test_a_return_is_found():
    assert returns(["door", "hall", "door", "cellar", "hall"]) == ["door", "hall"]


HOUSE = {
    "door": """
        import hall

        class Guest:
            def __init__(self, options):
                self.options = options

        def enter(options):
            return hall.greet(Guest(options))
        """,
    "hall": """
        import attic, cellar

        def greet(guest):
            attic.look(guest)
            cellar.fetch(guest)
            return guest.__class__(guest.options)
        """,
    "attic": """
        def look(guest):
            return guest.options.minibatch
        """,
    "cellar": """
        def fetch(guest):
            return guest.options.batch_size
        """,
}


@pytest.fixture
def house(tmp_path, monkeypatch):
    """Modules of which some see the options only as an attribute of what they are handed."""
    for name, text in HOUSE.items():
        (tmp_path / f"{name}.py").write_text(inspect.cleandoc(text))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("door")
    for name in HOUSE:
        sys.modules.pop(name, None)


def test_the_number_is_found_where_another_object_holds_it(house, tmp_path):
    options = RowOptions(batch_size=BATCH, minibatch="X")
    with Way(tmp_path) as way:
        house.enter(options)
    # read in the cellar, handed on in the hall to the door; the attic has another thing in mind
    assert way.files == ["door.py", "cellar.py", "hall.py", "door.py"]
    assert returns(way.files) == ["door.py"]


def test_a_call_with_the_number_is_found_after_the_end(house, tmp_path):
    with Way(tmp_path, end=house.enter) as way:
        house.enter(RowOptions(batch_size=BATCH, minibatch="X"))
        house.Guest(BATCH)
    assert way.files[-1:] == way.later == ["door.py"]
