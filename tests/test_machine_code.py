"""Machine code of tests is kept for what it was compiled from, and for nothing else."""

import numpy as np
import pytest

from tests import machine_code
from tests.machine_code import digest_of, kept
from tests.mutants import BIASED


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty place for machine code."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine_code, "folder_of_tests", lambda: tmp_path)
    return tmp_path


def line(slope, offset):
    """A function that calls one that closes over a value, and closes over another."""

    def risen(x):
        return slope * x

    compiled = kept(risen)

    def through(x):
        return compiled(x) + offset

    return kept(through)


def test_it_is_compiled_once(folder):
    assert line(2.0, 1.0)(3.0) == 7.0
    files = sorted(folder.iterdir())
    again = line(2.0, 1.0)
    assert again(3.0) == 7.0
    assert sum(again.stats.cache_hits.values()) == 1
    assert sorted(folder.iterdir()) == files


def test_what_differs_within_is_compiled_anew():
    """Side by side in one process, where Numba tells functions apart by their names."""
    first, second, third = line(2.0, 1.0), line(5.0, 1.0), line(2.0, 4.0)
    assert [each(3.0) for each in (first, second, third)] == [7.0, 16.0, 10.0]
    again = [line(5.0, 1.0), line(2.0, 4.0), line(2.0, 1.0)]
    assert [each(3.0) for each in again] == [16.0, 10.0, 7.0]
    assert all(sum(each.stats.cache_hits.values()) == 1 for each in again)


def test_other_types_are_compiled_anew():
    assert line(2.0, 1.0)(3) == 7.0
    assert line(2.0, 1.0)(3.0) == 7.0
    np.testing.assert_array_equal(line(2.0, 1.0)(np.arange(3.0)), [1.0, 3.0, 5.0])


def from_text(text, **names):
    scope = dict(names)
    exec(text, scope)
    return scope["f"]


OTHERS = {
    "a constant": ("def f(x):\n    return x + 2.0", {}),
    "an operator": ("def f(x):\n    return x - 1.0", {}),
    "a function": ("def f(x):\n    return g(x)", {"g": from_text("def f(x):\n    return x")}),
    "what it calls": (
        "def f(x):\n    return g(x)",
        {"g": from_text("def f(x):\n    return x * x")},
    ),
    "an array": ("def f(x):\n    return x + a[0]", {"a": np.ones(2)}),
    "its numbers": ("def f(x):\n    return x + a[0]", {"a": np.array([1.0, 2.0])}),
    "its type": ("def f(x):\n    return x + a[0]", {"a": np.ones(2, dtype=np.int64)}),
    "an attribute": ("def f(x):\n    return np.sin(x)", {"np": np}),
    "its name": ("def f(x):\n    return np.cos(x)", {"np": np}),
}


def test_every_part_of_a_function_counts():
    digests = [digest_of(from_text("def f(x):\n    return x + 1.0"))]
    digests += [digest_of(from_text(text, **names)) for text, names in OTHERS.values()]
    assert len(set(digests)) == len(digests)
    assert digests[0] == digest_of(from_text("def f(x):\n    return x + 1.0"))


def test_options_count():
    function = from_text("def f(x):\n    return x + 1.0")
    digests = [
        digest_of(function, options)
        for options in ({}, {"fastmath": {"nsz"}}, {"fastmath": {"nsz", "contract"}})
    ]
    assert len(set(digests)) == 3
    assert digests[2] == digest_of(function, {"fastmath": {"contract", "nsz"}})


def test_mutants_differ_from_each_other():
    """Most of them only in what stands in for an ingredient of the same kernel."""
    digests = {digest_of(mutant.compile()) for mutant in BIASED}
    assert len(digests) == len(BIASED)


def test_what_may_change_unnoticed_is_refused():
    for value in (object(), machine_code):
        with pytest.raises(TypeError, match="cannot be kept"):
            digest_of(from_text("def f(x):\n    return g.h(x)", g=value))
