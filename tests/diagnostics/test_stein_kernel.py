"""The Stein kernel: mean zero by quadrature, and agreement with its formula."""

import numpy as np
import pytest

from pymc_geodesic.diagnostics.stein_kernel import stein_kernel_rows, tangent_fields
from pymc_geodesic.manifolds import Euclidean, Product, Sphere, Stiefel

LENGTH, EXPONENT = 1.3, -0.4


def rows_of(product, scales, positions, fields, count=1):
    kernel = np.empty((count, len(positions)))
    stein_kernel_rows(product.blocks, scales, positions, fields, LENGTH, EXPONENT, 0, kernel)
    return kernel


def dense_formula(product, scales, positions, fields):
    """Projectors as matrices, and the derivatives of φ(|δ|²) in the embedding space."""
    unit = np.concatenate(
        [
            np.full(rows * manifold.size, scale)
            for (_, manifold, rows), scale in zip(product.components, scales, strict=True)
        ]
    )
    n, size = positions.shape
    basis = np.eye(size)
    projectors = [
        np.stack([product.project(x, vector) for vector in basis], axis=1) for x in positions
    ]
    kernel = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            apart = unit * (positions[i] - positions[j])
            base = 1.0 + apart @ apart / LENGTH**2
            value = base**EXPONENT
            slope = EXPONENT * base ** (EXPONENT - 1.0) / LENGTH**2
            bend = EXPONENT * (EXPONENT - 1.0) * base ** (EXPONENT - 2.0) / LENGTH**4
            bx, by = fields[i] / unit, fields[j] / unit
            mixed = -2.0 * slope * np.eye(size) - 4.0 * bend * np.outer(apart, apart)
            kernel[i, j] = (
                value * (bx @ by)
                + bx @ projectors[j] @ (-2.0 * slope * apart)
                + by @ projectors[i] @ (2.0 * slope * apart)
                + np.trace(projectors[i] @ mixed @ projectors[j])
            )
    return kernel


def test_kernel_agrees_with_projectors_as_matrices():
    product = Product(
        [("a", Euclidean(3), 1), ("b", Sphere(4), 2), ("c", Stiefel(4, 3), 2), ("d", Sphere(2), 1)]
    )
    rng = np.random.default_rng(1)
    positions, scales = product.random_point(rng, 6), np.array([1.0, 2.0, 0.7, 1.4])
    fields = rng.normal(size=positions.shape)
    np.testing.assert_allclose(
        rows_of(product, scales, positions, fields, 6),
        dense_formula(product, scales, positions, fields),
        rtol=1e-12,
        atol=1e-12,
    )


def grid(n, rule):
    """Nodes and weights on an interval: trapezoidal or Gauss–Legendre."""
    if rule == "period":
        return 2.0 * np.pi * np.arange(n) / n, np.full(n, 1.0 / n)
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return nodes, 0.5 * weights


def turn(angle, axis):
    """Matrices of rotations around a coordinate axis, shape (n, 3, 3)."""
    matrix = np.zeros((angle.size, 3, 3))
    first, second = [k for k in range(3) if k != axis]
    matrix[:, axis, axis] = 1.0
    matrix[:, first, first] = matrix[:, second, second] = np.cos(angle)
    matrix[:, first, second], matrix[:, second, first] = -np.sin(angle), np.sin(angle)
    return matrix


def sphere_nodes():
    """Unit vectors and weights that integrate over S²."""
    angle, of_angle = grid(48, "period")
    height, of_height = grid(40, "legendre")
    z, turned = np.meshgrid(height, angle, indexing="ij")
    ring = np.sqrt(1.0 - z**2)
    x = np.stack([ring * np.cos(turned), ring * np.sin(turned), z], axis=-1).reshape(-1, 3)
    return x, np.outer(of_height, of_angle).ravel()


def frame_nodes():
    """Two columns of rotations, and weights that integrate over them."""
    angle, of_angle = grid(26, "period")
    height, of_height = grid(24, "legendre")
    outer, inner = turn(angle, 2), turn(np.arccos(height), 1)
    rotation = np.einsum("aij,bjk,ckl->abcil", outer, inner, outer)
    weights = np.einsum("a,b,c->abc", of_angle, of_height, of_angle)
    return rotation[..., :2].reshape(-1, 6), weights.ravel()


F = np.array([0.9, -0.4, 0.3, 0.8, -0.5, 0.6])
"""Parameter of exp(F·x), von Mises–Fisher for a vector and for two columns."""

MANIFOLDS = {
    "sphere": (Product([("x", Sphere(3), 1)]), F[:3], sphere_nodes),
    "frames": (Product([("x", Stiefel(3, 2), 1)]), F, frame_nodes),
}


def mean_kernel(name, fields_of):
    """Mean of the kernel over y under exp(F·y), for a few x, over its mean square."""
    product, parameter, nodes_of = MANIFOLDS[name]
    nodes, weights = nodes_of()
    density = weights * np.exp(nodes @ parameter)
    density /= density.sum()
    positions = np.concatenate([product.random_point(np.random.default_rng(1), 3), nodes])
    fields = fields_of(product, positions, np.broadcast_to(parameter, positions.shape))
    kernel = rows_of(product, np.array([1.2]), positions, fields, 3)[:, 3:]
    return np.abs(kernel @ density).max() / np.sqrt((kernel**2 @ density).max())


@pytest.mark.parametrize("name", MANIFOLDS)
def test_kernel_has_mean_zero_under_the_distribution(name):
    assert mean_kernel(name, tangent_fields) < 1e-8


def without_curvature(product, positions, gradients):
    return product.project(positions, gradients)


def without_projection(product, positions, gradients):
    curvature = tangent_fields(product, positions, np.zeros_like(positions))
    return gradients + curvature


def of_another_dimension(product, positions, gradients):
    curvature = tangent_fields(product, positions, np.zeros_like(positions))
    return product.project(positions, gradients) + 1.1 * curvature


@pytest.mark.parametrize("name", MANIFOLDS)
@pytest.mark.parametrize("fields_of", [without_curvature, without_projection, of_another_dimension])
def test_mutants_of_the_field_are_detected(name, fields_of):
    assert mean_kernel(name, fields_of) > 1e-3
