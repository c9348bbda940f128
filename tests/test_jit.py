"""The decorator of the kernels: what fast arithmetic keeps, and when the cache is out of date."""

import math

import numpy as np
import pytest

from pymc_geodesic import jit
from pymc_geodesic.manifolds import sphere


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


def test_stamp_follows_the_text_of_modules_that_compile(tmp_path):
    def stamp():
        return jit.source_stamp(tmp_path)

    kernel = tmp_path / "deep" / "kernel.py"
    kernel.parent.mkdir()
    kernel.write_text("from pymc_geodesic.jit import compiled")
    first = stamp()
    (tmp_path / "other.py").write_text("x = 1")
    assert stamp() == first
    kernel.write_text("from pymc_geodesic.jit import compiled\nx = 1")
    assert stamp() != first


def test_cache_of_a_kernel_carries_the_stamp():
    """The attribute is Numba's own, so this fails when a new version calls it otherwise."""
    assert sphere.geodesic._cache._cache_file._source_stamp == jit.SOURCE_STAMP
