"""Decorators of compiled functions and kernels: arithmetic, cache, argument types, log message."""

import ctypes
import logging
import math
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba import float64, int64, types

from pymc_geodesic.manifolds import sphere
from pymc_geodesic.runtime import jit
from pymc_geodesic.runtime.jit import (
    Integers,
    Matrix,
    Vector,
    borrow,
    compiled,
    kernel,
    part,
    signature_of,
)


@jit.compiled(cache=False)
def count_not_finite(x):
    count = 0
    for i in range(x.size):
        count += not math.isfinite(x[i])
    return count


@jit.compiled(cache=False)
def differs_from_itself(x):
    return x != x


@jit.compiled(cache=False)
def total(x):
    result = 0.0
    for i in range(x.size):
        result += x[i]
    return result


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nonfinite_numbers_are_detected(bad):
    x = np.zeros(100)
    x[[3, 70]] = bad
    assert count_not_finite(x) == 2
    assert not math.isfinite(total(x))
    assert differs_from_itself(bad) == math.isnan(bad)


def test_division_by_zero_is_not_an_exception():
    @jit.compiled(cache=False)
    def inverse(x):
        return 1.0 / x

    assert inverse(0.0) == np.inf


def test_sums_are_vectorised():
    total(np.ones(10))
    (code,) = total.inspect_llvm().values()
    assert " x double>" in code


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose kernel names a helper, which names a third module."""
    monkeypatch.setattr(jit, "_PACKAGE", tmp_path)
    (tmp_path / "deep").mkdir()
    compiles = "from pymc_geodesic.runtime.jit import compiled\n"
    (tmp_path / "kernel.py").write_text(compiles + "from pymc_geodesic.deep import helper")
    (tmp_path / "deep" / "__init__.py").write_text("import pymc_geodesic.deep.helper")
    (tmp_path / "deep" / "helper.py").write_text(compiles + "import pymc_geodesic.third")
    (tmp_path / "third.py").write_text(compiles)
    (tmp_path / "other.py").write_text(compiles)
    (tmp_path / "plain.py").write_text("x = 1")
    return tmp_path


@pytest.mark.parametrize("changed", ["kernel.py", "deep/helper.py", "third.py"])
def test_stamp_depends_on_imported_modules(package, changed):
    before = jit.source_stamp(package / "kernel.py")
    with (package / changed).open("a") as file:
        file.write("\nx = 1")
    assert jit.source_stamp(package / "kernel.py") != before


def test_stamp_depends_on_modules_that_compile(package):
    kernel, graphs = package / "kernel.py", package / "graphs.py"
    kernel.write_text("import pymc_geodesic.graphs")
    graphs.write_text(
        "import pytensor.tensor as pt\nfrom pymc_geodesic.runtime.jit import compiled\n"
    )
    before = jit.source_stamp(kernel)
    with graphs.open("a") as file:
        file.write("x = 1")
    assert jit.source_stamp(kernel) != before


@pytest.mark.parametrize("changed", ["other.py", "plain.py"])
def test_stamp_ignores_other_modules(package, changed):
    before = jit.source_stamp(package / "kernel.py")
    with (package / changed).open("a") as file:
        file.write("\nx = 2")
    assert jit.source_stamp(package / "kernel.py") == before


def test_address_of_a_function_for_c():
    """The wrapper that Numba makes for C callers; it calls gradient functions and manifolds."""

    @jit.compiled_for_c(cache=False)
    def add(x, y):
        return x + y

    address = jit.machine_address(add, numba.float64(numba.float64, numba.int64))
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_int64)
    assert kind(address)(0.5, 2) == 2.5


def test_numbers_are_copied_to_the_beginning_of_a_vector():
    @jit.compiled(cache=False)
    def copy(source, target):
        jit.copy_numbers(source[1:], target[2:])

    target = np.zeros(6)
    copy(np.arange(1.0, 5.0), target)
    np.testing.assert_array_equal(target, [0.0, 0.0, 2.0, 3.0, 4.0, 0.0])


@pytest.mark.parametrize("target", [np.zeros(3, np.int64), np.zeros((3, 3)), np.zeros(6)[::2]])
def test_numbers_are_not_copied_to_other_arrays(target):
    @jit.compiled(cache=False)
    def copy(source, target):
        jit.copy_numbers(source, target)

    with pytest.raises(numba.TypingError, match="numbers"):
        copy(np.ones(3), target)


def test_cache_of_a_kernel_includes_the_stamp():
    """The attribute is private to Numba; this fails if a new version renames it."""
    stamp = jit.source_stamp(Path(sphere.__file__))
    assert sphere.geodesic._cache._cache_file._source_stamp == stamp


class Pair(NamedTuple):
    numbers: Vector
    factor: float


@part
def scale(pair: Pair) -> None:
    """Multiply in place."""
    for i in range(pair.numbers.size):
        pair.numbers[i] *= pair.factor


@kernel
def scale_and_sum(pair: Pair, times: int, table: Matrix, counts: Integers) -> float:
    """Add the numbers to the first row of the table."""
    pair, table = borrow(pair), borrow(table)
    for _ in range(times):
        scale(pair)
    for i in range(pair.numbers.size):
        table[0, i] += pair.numbers[i]
    return table[0].sum() + counts.size


def arguments():
    return Pair(np.arange(3.0), 2.0), 2, np.ones((2, 3)), np.zeros(4, dtype=np.int64)


def test_signature_comes_from_annotations():
    tuple_type = types.BaseTuple.from_types([float64[::1], float64], Pair)
    assert signature_of(scale_and_sum) == (tuple_type, int64, float64[:, ::1], int64[::1])


def test_call_equals_the_checked_call():
    pair, times, table, counts = arguments()
    assert scale_and_sum.call(pair, times, table, counts) == 3.0 + 12.0 + 4.0
    assert pair.numbers.tolist() == [0.0, 4.0, 8.0]
    assert scale_and_sum(*arguments()) == 19.0
    assert scale_and_sum.signatures == [signature_of(scale_and_sum)]


def test_references_are_released():
    pair, times, table, counts = arguments()
    before = [sys.getrefcount(each) for each in (pair.numbers, table, counts)]
    for _ in range(10):
        scale_and_sum.call(pair, times, table, counts)
    assert [sys.getrefcount(each) for each in (pair.numbers, table, counts)] == before


def test_a_borrowed_tuple_keeps_its_type():
    @compiled(cache=False)
    def same(pair):
        lent = borrow(pair)
        return lent.numbers[1] * lent.factor

    assert same(Pair(np.array([1.0, 5.0]), 3.0)) == 15.0


def test_other_annotations_raise():
    @kernel
    def vague(x: np.ndarray) -> float:
        return x[0]

    with pytest.raises(TypeError, match="ndarray"):
        signature_of(vague)


def messages_of(after, caplog, monkeypatch, times=1):
    monkeypatch.setattr(jit, "_NOTICE", jit._OneTimeNotice())
    caplog.set_level(logging.INFO, logger="pymc")
    caplog.clear()
    for _ in range(times):
        with jit.report_long_compilation("the gradient", after):
            time.sleep(0.2)
    return [record.message for record in caplog.records if record.name == "pymc"]


def test_long_compilation_is_reported_with_its_stage(caplog, monkeypatch):
    first, second = messages_of((0.01,), caplog, monkeypatch, times=2)
    assert first == f"Compiling the gradient, 0 s so far. {jit.FIRST_NOTICE}"
    assert second == "Compiling the gradient, 0 s so far"


def test_long_compilation_is_reported_repeatedly(caplog, monkeypatch):
    assert len(messages_of((0.01, 0.05, 0.1), caplog, monkeypatch)) == 3


def test_short_compilation_is_not_reported(caplog, monkeypatch):
    assert messages_of((60.0,), caplog, monkeypatch) == []
