"""Products of matrices by BLAS, compiled once whatever the layouts of memory."""

import itertools

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import get_mode

from pymc_geodesic.ops.dense_products import MatrixMatrix, with_loops_for_products
from tests.grids import cross


@pytest.fixture(scope="module")
def product():
    """Takes arrays as they are; PyTensor's own wrapper would see to it that they are in C order."""
    left, right = pt.dmatrix(), pt.dmatrix()
    return pytensor.function([left, right], MatrixMatrix()(left, right), mode="NUMBA").vm.jit_fn


def layouts(rng, rows, columns):
    """The same shape as memory may hold it, copies needed or not."""
    yield rng.normal(size=(rows, columns))
    yield np.asfortranarray(rng.normal(size=(rows, columns)))
    yield rng.normal(size=(rows, 2 * columns))[:, :columns]
    yield rng.normal(size=(2 * rows, columns))[::2]
    yield rng.normal(size=(columns, 2 * rows)).T[:rows]
    yield rng.normal(size=(2 * rows, 3 * columns))[::2, ::3]
    yield rng.normal(size=(rows, columns))[::-1, ::-1]
    yield np.broadcast_to(rng.normal(size=(1, columns)), (rows, columns))
    yield np.broadcast_to(rng.normal(size=(rows, 1)), (rows, columns))


@pytest.mark.parametrize(("rows", "inner"), cross([5, 0, 1], [4, 0, 1]))
def test_any_layout_has_the_product_of_numpy(product, rows, inner):
    rng = np.random.default_rng(1)
    for columns in (0, 1, 7):
        pairs = itertools.product(layouts(rng, rows, inner), layouts(rng, inner, columns))
        for left, right in pairs:
            (result,) = product(left, right)
            assert result.flags.c_contiguous
            np.testing.assert_allclose(result, left @ right, rtol=1e-13, atol=1e-13)


def test_lengths_that_differ_are_refused(product):
    with pytest.raises(ValueError, match="inner lengths differ"):
        product(np.ones((2, 3)), np.ones((2, 3)))


def test_gradients_of_products_call_it_too():
    """PyTensor's own choice of strides was more than half of what a topic model compiled."""
    x, y = pt.dmatrix(), pt.dmatrix()
    graph = pytensor.grad(pt.sum(pt.exp(x @ y)), [x, y])
    function = pytensor.function([x, y], graph, mode=with_loops_for_products(get_mode("NUMBA")))
    operations = [node.op for node in function.maker.fgraph.apply_nodes]
    assert sum(isinstance(each, MatrixMatrix) for each in operations) == 3
    assert not [each for each in operations if "Dot" in str(each) or "Gem" in str(each)]
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    found = function(a, b)
    slope = np.exp(a @ b)
    np.testing.assert_allclose(found[0], slope @ b.T, rtol=1e-12)
    np.testing.assert_allclose(found[1], a.T @ slope, rtol=1e-12)
