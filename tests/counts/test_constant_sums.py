"""Sums that are constant on a simplex for all data and other variables."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_geodesic.counts.constant_sums import constant_sums

W = pt.tensor("w", shape=(3, 4))
V = pt.tensor("v", shape=(2, 3))
ROWS = pt.tensor("rows", shape=(5, 4))
WEIGHTS = pt.tensor("weights", shape=(5, 3))
NUMBERS = pt.tensor("numbers", shape=(5, 4), dtype="int64")
GROUP = pt.tensor("group", shape=(5,), dtype="int64")
FACTOR = pt.tensor("factor", shape=())
LAST_DIFFERS = np.ones((3, 4))
LAST_DIFFERS[2, 0] = 5.0
# As the placeholders of streamed rows and the first values of other variables are.
EXAMPLES = {
    W: np.full((3, 4), 0.25),
    V: np.full((2, 3), 1 / 3),
    **{each: np.zeros(each.type.shape, each.type.dtype) for each in (ROWS, WEIGHTS, NUMBERS)},
    GROUP: np.zeros(5, dtype=int),
    FACTOR: np.zeros(()),
}


def found(total):
    return constant_sums([pt.log(total).sum()], [W, V], W, EXAMPLES)


@pytest.mark.parametrize(
    "total",
    [
        W.sum(axis=-1),
        (2.0 * W[1]).sum(),
        (FACTOR * W + (1.0 - FACTOR) / 4.0).sum(axis=-1),
        pt.dot(WEIGHTS, W).sum(axis=-1),
        pt.dot(V, W).sum(axis=-1),
        W[GROUP].sum(axis=-1),
        (W * np.array([[2.0], [3.0], [4.0]]))[GROUP].sum(axis=-1),
        pt.exp(pt.log(W)).sum(axis=-1),
    ],
    ids=str,
)
def test_constant(total):
    assert found(total) == [total]


@pytest.mark.parametrize(
    "total",
    [
        (ROWS * W[0]).sum(axis=-1),
        (NUMBERS * W[0]).sum(axis=-1),
        (FACTOR * W[0] * ROWS).sum(axis=-1),
        (W[0] ** (1.0 + FACTOR)).sum(),
        (W - W).sum(axis=-1),
        (pt.as_tensor(LAST_DIFFERS)[GROUP] * W[0]).sum(axis=-1),
        (pt.as_tensor(LAST_DIFFERS) * W)[GROUP].sum(axis=-1),
        pt.switch(pt.eq(NUMBERS, 77), 2.0 * W[0], W[0]).sum(axis=-1),
        pt.switch(FACTOR > 9.0, W[0] * np.arange(1.0, 5.0), W[0]).sum(),
        (W * np.arange(4.0)).sum(axis=-1),
        W[:, :2].sum(axis=-1),
    ],
    ids=str,
)
def test_not_constant(total):
    assert found(total) == []


def test_constants_that_are_inputs_keep_their_values():
    """A long array of ones is constant in any form; data that can change are not."""
    total = pt.dot(W[0], ROWS.T).sum()
    examples = {**EXAMPLES, ROWS: np.ones((5, 4))}
    terms = [pt.log(total)]
    assert constant_sums(terms, [W], W, examples, fixed=[ROWS]) == [total]
    assert constant_sums(terms, [W], W, examples) == []
