"""The decorator of the kernels: what fast arithmetic keeps, and when the cache is out of date."""

import ctypes
import math
from pathlib import Path

import numba
import numpy as np
import pytest

from pymc_geodesic.manifolds import sphere
from pymc_geodesic.runtime import jit


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
def test_numbers_that_are_not_finite_are_seen(bad):
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
def test_stamp_follows_the_modules_that_are_used(package, changed):
    before = jit.source_stamp(package / "kernel.py")
    with (package / changed).open("a") as file:
        file.write("\nx = 1")
    assert jit.source_stamp(package / "kernel.py") != before


def test_stamp_follows_a_module_that_builds_graphs_and_compiles(package):
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
    """The wrapper that Numba makes for C callers; fields and manifolds are called through it."""

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
def test_numbers_are_not_copied_where_others_stand(target):
    @jit.compiled(cache=False)
    def copy(source, target):
        jit.copy_numbers(source, target)

    with pytest.raises(numba.TypingError, match="numbers"):
        copy(np.ones(3), target)


def test_cache_of_a_kernel_carries_the_stamp():
    """The attribute is Numba's own, so this fails when a new version calls it otherwise."""
    stamp = jit.source_stamp(Path(sphere.__file__))
    assert sphere.geodesic._cache._cache_file._source_stamp == stamp
