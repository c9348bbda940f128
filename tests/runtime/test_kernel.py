"""Kernels know the types of their arguments, and take named tuples."""

import sys
from typing import NamedTuple

import numpy as np
import pytest
from numba import float64, int64, types

from pymc_geodesic.runtime.jit import borrow, compiled
from pymc_geodesic.runtime.kernel import Integers, Matrix, Vector, kernel, part, signature_of


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


def test_call_is_the_checked_call():
    pair, times, table, counts = arguments()
    assert scale_and_sum.call(pair, times, table, counts) == 3.0 + 12.0 + 4.0
    assert pair.numbers.tolist() == [0.0, 4.0, 8.0]
    assert scale_and_sum(*arguments()) == 19.0
    assert scale_and_sum.signatures == [signature_of(scale_and_sum)]


def test_references_are_given_back():
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


def test_other_annotations_are_refused():
    @kernel
    def vague(x: np.ndarray) -> float:
        return x[0]

    with pytest.raises(TypeError, match="ndarray"):
        signature_of(vague)
