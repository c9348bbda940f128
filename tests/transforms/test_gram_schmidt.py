import pickle

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from scipy.stats import chi, norm

from pymc_geodesic.transforms import stiefel, unit_vector
from pymc_geodesic.transforms.gram_schmidt import log_gram_density
from pymc_geodesic.transforms.unit_vector import log_radial_density

SHAPES = [(2, 1), (3, 2), (4, 4), (2, 3, 5, 2)]


def matrices(*shape):
    return np.random.default_rng(1).standard_normal(shape)


def evaluate(expression):
    return expression.eval(mode="FAST_COMPILE")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frame_is_its_own_value(shape):
    y = matrices(*shape)
    x = evaluate(stiefel.backward(pt.as_tensor(y)))
    identity = np.broadcast_to(np.eye(shape[-1]), (*shape[:-2], shape[-1], shape[-1]))
    np.testing.assert_allclose(x.mT @ x, identity, atol=1e-13)
    np.testing.assert_allclose(x, evaluate(stiefel.backward(pt.as_tensor(x))), atol=1e-13)
    np.testing.assert_array_equal(x, evaluate(stiefel.forward(pt.as_tensor(x))))
    triangular = x.mT @ y
    np.testing.assert_allclose(triangular, np.triu(triangular), atol=1e-13)
    assert np.all(np.diagonal(triangular, axis1=-2, axis2=-1) > 0)


def test_one_column_is_a_unit_vector():
    y = matrices(4, 6)
    column = pt.as_tensor(y[..., None])
    direction = evaluate(unit_vector.backward(pt.as_tensor(y)))
    np.testing.assert_allclose(evaluate(stiefel.backward(column))[..., 0], direction, atol=1e-15)
    np.testing.assert_allclose(
        evaluate(log_gram_density(column)), evaluate(log_radial_density(pt.as_tensor(y)))
    )


def tangent_basis(frame):
    """Orthonormal basis of the tangent space in R^{n×p}."""
    p = frame.shape[1]
    complement = np.linalg.qr(frame, mode="complete").Q[:, p:]
    basis = []
    for j in range(p):
        for i in range(j):
            rotation = np.zeros((p, p))
            rotation[i, j], rotation[j, i] = 1, -1
            basis.append(frame @ rotation / np.sqrt(2))
        basis.extend(np.outer(normal, np.eye(p)[j]) for normal in complement.T)
    return np.array(basis)


@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (3, 2), (5, 3), (70, 2)])
def test_the_density_is_that_of_the_triangular_factor_over_the_volume_element(shape):
    """Y = X L': the distribution of L by Bartlett's decomposition, dY / (dX dL) by derivatives."""
    n, p = shape
    y = matrices(n, p) / np.sqrt(n)
    x = evaluate(stiefel.backward(pt.as_tensor(y)))
    lower = (x.T @ y).T
    degrees_of_freedom = max(n, 16 * (p + 1))
    scale = 1 / np.sqrt(degrees_of_freedom)
    of_factor = norm.logpdf(lower[np.tril_indices(p, -1)], scale=scale).sum()
    of_factor += chi.logpdf(np.diag(lower), degrees_of_freedom - np.arange(p), scale=scale).sum()

    tangents = tangent_basis(x) @ lower.T
    rows, columns = np.tril_indices(p)
    along_factor = np.array(
        [np.outer(x[:, j], np.eye(p)[i]) for i, j in zip(rows, columns, strict=True)]
    )
    jacobian = np.concatenate([tangents, along_factor]).reshape(n * p, n * p)
    log_volume = np.linalg.slogdet(jacobian).logabsdet
    value = evaluate(stiefel.log_jac_det(pt.as_tensor(y)))
    assert value == pytest.approx(of_factor - log_volume, abs=1e-9)


def scalar_functions(y):
    """Return asymmetric functions of the frame and of the Gram matrix."""
    weights = np.random.default_rng(5).standard_normal((3, 2))
    return pt.sum(weights * stiefel.backward(y) ** 3), pt.sum(stiefel.log_jac_det(y))


@pytest.mark.parametrize(
    ("shape", "mode"),
    [
        ((2, 3, 2), "FAST_COMPILE"),
        # also compiled for NUTS in the tests of the matrix von Mises–Fisher distribution
        pytest.param((2, 3, 2), "NUMBA", marks=pytest.mark.slow),
    ],
)
def test_gradients_agree_with_differences(shape, mode):
    y = pt.tensor("y", shape=shape)
    value = sum(scalar_functions(y))
    function = pytensor.function([y], [value, pytensor.grad(value, y)], mode=mode)
    point = matrices(*shape)
    gradient = function(point)[1]
    step = 1e-6
    for index in np.ndindex(*shape):
        h = np.zeros(shape)
        h[index] = step
        difference = (function(point + h)[0] - function(point - h)[0]) / (2 * step)
        assert gradient[index] == pytest.approx(difference, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("which", [0, 1])
def test_second_derivatives_agree_with_differences(which):
    y = pt.tensor("y", shape=(3, 2))
    direction = np.random.default_rng(6).standard_normal((3, 2))
    gradient = pytensor.grad(scalar_functions(y)[which], y)
    second = pytensor.grad(pt.sum(direction * gradient), y)
    function = pytensor.function([y], [gradient, second], mode="FAST_COMPILE")
    point, step = matrices(3, 2), 1e-6
    above, below = (function(point + sign * step * direction)[0] for sign in (1, -1))
    np.testing.assert_allclose(function(point)[1], (above - below) / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("degenerate", [np.zeros((3, 2)), np.eye(3)[:, [0, 0]]])
def test_dependent_columns_have_density_zero_and_nothing_is_nan(degenerate):
    y = pt.tensor("y", shape=(3, 2))
    value = sum(scalar_functions(y))
    outputs = [value, pytensor.grad(value, y), stiefel.backward(y)]
    value, gradient, x = pytensor.function([y], outputs, mode="FAST_COMPILE")(degenerate)
    assert value == -np.inf
    assert np.all(np.isfinite(gradient))
    np.testing.assert_array_equal(x, degenerate)


def test_pickle_returns_the_same_object():
    assert pickle.loads(pickle.dumps(stiefel)) is stiefel
