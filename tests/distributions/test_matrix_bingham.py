"""Matrix Bingham and matrix angular central Gaussian: densities, exact draws, model integration."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.utils import ParameterValueError
from scipy import stats

from pymc_geodesic import (
    AngularCentralGaussian,
    Bingham,
    MatrixAngularCentralGaussian,
    MatrixBingham,
    UniformStiefel,
)
from pymc_geodesic.distributions import matrix_bingham
from pymc_geodesic.distributions.matrix_bingham import draw_matrix_bingham
from tests.distributions.directional_checks import evaluate, log_density
from tests.distributions.test_matrix_von_mises_fisher import (
    frames_by_quadrature,
    orthogonal_by_quadrature,
)
from tests.grids import by_default, slow

A3 = np.array([[2.0, 0.5, 0.0], [0.5, -1.0, 0.3], [0.0, 0.3, 0.4]])
COV = np.array([[4.0, 1.5, 0.0], [1.5, 1.0, 0.2], [0.0, 0.2, 0.3]])


def statistics(frames):
    """Products of all entries: columns are axes, so that the entries have mean zero."""
    flat = frames.reshape(len(frames), -1)
    i, j = np.triu_indices(flat.shape[1])
    return flat[:, i] * flat[:, j]


def largest_z(sample, frames, log_weights):
    mass = np.exp(log_weights - np.max(log_weights))
    expected = mass @ statistics(frames) / mass.sum()
    found = statistics(sample)
    error = np.maximum(found.std(axis=0), 1e-12) / np.sqrt(len(found))
    return np.max(np.abs(found.mean(axis=0) - expected) / error)


CASES = {
    "3 × 2": (A3, [2.0, 1.0], frames_by_quadrature),
    "3 × 2, order and sign of b": (A3, [-1.0, 1.5], frames_by_quadrature),
    "3 × 2, both negative": (A3, [-2.0, -0.5], frames_by_quadrature),
    "3 × 2, equal b": (2.0 * A3, [1.0, 1.0], frames_by_quadrature),
    "2 × 2": (A3[:2, :2], [1.0, 0.2], orthogonal_by_quadrature),
    "uniform": (np.zeros((3, 3)), [1.0, 2.0], frames_by_quadrature),
    "no weights": (A3, [0.0, 0.0], frames_by_quadrature),
}


SOME_CASES = by_default(["3 × 2, order and sign of b", "2 × 2", "no weights"], of=CASES)
"""Parameters for each set of frames, with weights of both signs, and zero weights."""


@pytest.mark.parametrize("case", SOME_CASES)
def test_draws_have_the_moments_of_the_density(case):
    A, b, grid = CASES[case]
    frames, weights = grid()
    sample = draw_matrix_bingham(np.random.default_rng(1), A, b, (20_000,))
    gram = sample.mT @ sample
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), gram.shape), atol=1e-12)
    exponent = log_density(MatrixBingham.dist(A, b), frames) + np.log(weights)
    assert largest_z(sample, frames, exponent) < 5


def test_moments_detect_a_missing_rejection_step(monkeypatch):
    def generous(a, b):
        return matrix_bingham.Envelope(1.0, -1e9, 0.0)

    monkeypatch.setattr(matrix_bingham, "envelope", generous)
    frames, weights = frames_by_quadrature()
    sample = draw_matrix_bingham(np.random.default_rng(1), A3, [2.0, 1.0], (20_000,))
    exponent = log_density(MatrixBingham.dist(A3, [2.0, 1.0]), frames) + np.log(weights)
    assert largest_z(sample, frames, exponent) > 10


@pytest.mark.parametrize("n", [3, 5])
def test_the_envelope_is_above_the_density(n):
    """At random frames, and at frames of eigenvectors, where the bound is nearly attained."""
    rng = np.random.default_rng(1)
    a = np.sort(rng.normal(size=n))[::-1] * 4.0
    frames = np.linalg.qr(rng.normal(size=(5000, n, 2)))[0]
    near = np.linalg.qr(np.eye(n)[:, :2] + 0.05 * rng.normal(size=(5000, n, 2)))[0]
    for b in (np.array([2.0, 0.5]), np.array([1.0, -1.0]), np.array([-0.3, -2.0])):
        found = matrix_bingham.envelope(a, b)
        slack = []
        for x in np.concatenate([frames, near, near[:, ::-1]]):
            form = x.T @ ((found.distance + a[0] - a)[:, None] * x)
            ratio = np.sum(b * np.sum(x * a[:, None] * x, axis=0))
            slack.append(found.bound - ratio - 0.5 * n * np.linalg.slogdet(form)[1])
        assert -1e-9 < min(slack) < 1.0


def test_one_column_is_bingham():
    x = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 3, 3)))[0][..., :1]
    matrix = log_density(MatrixBingham.dist(A3, [1.7]), x)
    vector = log_density(Bingham.dist(1.7 * A3), x[..., 0])
    np.testing.assert_allclose(matrix, vector, rtol=1e-13)
    sample = draw_matrix_bingham(np.random.default_rng(2), A3, [1.7], (4000,))[..., 0]
    bingham = pm.draw(Bingham.dist(1.7 * A3, size=4000), random_seed=3, mode="FAST_COMPILE")
    for direction in np.eye(3):
        assert stats.ks_2samp((sample @ direction) ** 2, (bingham @ direction) ** 2).pvalue > 1e-4


def test_two_columns_in_three_dimensions_are_a_bingham_axis():
    """Equal b: tr XᵀAX = tr A − yᵀAy for the axis y orthogonal to both columns."""
    sample = draw_matrix_bingham(np.random.default_rng(1), A3, [2.0, 2.0], (4000,))
    across = np.cross(sample[..., 0], sample[..., 1])
    axes = pm.draw(Bingham.dist(-2.0 * A3, size=4000), random_seed=3, mode="FAST_COMPILE")
    for direction in np.eye(3):
        assert stats.ks_2samp((across @ direction) ** 2, (axes @ direction) ** 2).pvalue > 1e-4


@pytest.mark.parametrize("case", SOME_CASES)
def test_the_density_has_mass_one(case):
    """The surface measure of a rotation within a frame is √2 times that of its angle."""
    A, b, grid = CASES[case]
    frames, weights = grid()
    log = log_density(MatrixBingham.dist(A, b), frames)
    width = 2 * np.pi / 400 if len(A) == 2 else (2 * np.pi / 40) ** 2
    assert np.exp(log) @ weights * width * np.sqrt(2.0) == pytest.approx(1.0, abs=1e-11)
    off = log_density(MatrixBingham.dist(A, b), 1.01 * frames[:7])
    assert np.all(off == -np.inf)


def test_the_density_of_more_rows_is_the_trace_over_the_volume():
    A, frames = (
        np.diag([2.0, 1.0, 0.0, -3.0]),
        np.linalg.qr(np.random.default_rng(1).normal(size=(7, 4, 2)))[0],
    )
    found = log_density(MatrixBingham.dist(A, [2.0, 1.0]), frames)
    trace = np.einsum("kij,il,klj,j->k", frames, A, frames, [2.0, 1.0])
    np.testing.assert_allclose(found - trace, (found - trace)[0], rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("ties", [slow(False), True])
def test_gradients_are_away_from_the_mean(ties):
    """The gradient is a statistic minus its mean, also for equal eigenvalues and weights."""
    A, weights = (np.diag([2.0, 2.0, 0.5]), np.ones(2)) if ties else (A3, np.array([2.0, -1.0]))
    matrix, b = pt.tensor("matrix", shape=(3, 3)), pt.tensor("b", shape=(2,))
    frames, measure = frames_by_quadrature()
    total = pm.logp(MatrixBingham.dist(matrix, b), frames[:2]).sum()
    outputs = pytensor.function([matrix, b], pt.grad(total, [matrix, b]), mode="FAST_COMPILE")
    in_matrix, in_b = outputs(A, weights)

    in_b_of_each = np.einsum("kij,il,klj->kj", frames, A, frames)
    in_matrix_of_each = np.einsum("kij,klj,j->kil", frames, frames, weights)
    mass = measure * np.exp(in_b_of_each @ weights)
    mass /= mass.sum()
    for found, each in ((in_matrix, in_matrix_of_each), (in_b, in_b_of_each)):
        expected = each[:2].sum(axis=0) - 2.0 * np.tensordot(mass, each, 1)
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.slow
def test_batches():
    frames = frames_by_quadrature()[0][:2]
    batch = MatrixBingham.dist(np.stack([A3, -A3]), [2.0, 1.0])
    both = log_density(batch, frames)
    for i, sign in enumerate((1.0, -1.0)):
        own = log_density(MatrixBingham.dist(sign * A3, [2.0, 1.0]), frames[i])
        assert both[i] == pytest.approx(float(own))
    assert evaluate(batch).shape == (2, 3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("b", [[-1.0, 2.0], *map(slow, ([2.0, 1.0], [1.0, 2.0], [-1.0, -2.0]))])
def test_a_model_starts_at_the_mode(b):
    with pm.Model() as model:
        MatrixBingham("X", A3, b, shape=(2, 3, 2))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        point = model.initial_point()
    log = model.compile_logp(mode="FAST_COMPILE")
    best = log(point)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = np.linalg.qr(rng.normal(size=(2, 3, 2)))[0]
        assert log({"X_stiefel__": other}) <= best + 1e-9


@pytest.mark.slow
def test_pm_draw_is_the_same_sampler():
    frames, weights = frames_by_quadrature()
    exponent = log_density(MatrixBingham.dist(A3, [2.0, 1.0]), frames) + np.log(weights)
    sample = pm.draw(MatrixBingham.dist(A3, [2.0, 1.0], size=(200,)), random_seed=1)
    assert largest_z(sample, frames, exponent) < 5


def test_infeasible_draws_raise(monkeypatch):
    monkeypatch.setattr(matrix_bingham, "MAX_PROPOSALS", 5000)
    A = np.diag(1e5 * np.arange(8.0))
    with pytest.raises(RuntimeError, match=r"rejection is not feasible .* with 4 columns"):
        draw_matrix_bingham(np.random.default_rng(1), A, [4.0, 3.0, 2.0, 1.0])


def test_invalid_parameters_raise():
    with pytest.raises(ValueError, match="one weight for each column"):
        MatrixBingham.dist(A3, 1.0)
    with pytest.raises(ValueError, match="b of MatrixBingham has 4 weights"):
        MatrixBingham.dist(A3, np.ones(4))
    with pytest.raises(ValueError, match="A of MatrixBingham must be a square matrix"):
        MatrixBingham.dist(np.ones((3, 2)), [1.0])
    skew = A3 + np.triu(np.ones((3, 3)), 1)
    with pytest.raises(ParameterValueError, match="A of MatrixBingham is symmetric"):
        log_density(MatrixBingham.dist(skew, [1.0, 2.0]), np.eye(3, 2))
    rng = np.random.default_rng(1)
    for A, b, message in (
        (skew, [1.0], "A must be symmetric"),
        (np.full((3, 3), np.nan), [1.0], "must be finite"),
        (A3, np.ones(4), "b has 4 weights"),
    ):
        with pytest.raises(ValueError, match=message):
            draw_matrix_bingham(rng, A, b)


# Matrix angular central Gaussian ---------------------------------------------------------------


def test_central_gaussian_has_mass_one_and_its_moments():
    frames, weights = frames_by_quadrature()
    log = log_density(MatrixAngularCentralGaussian.dist(COV, shape=(3, 2)), frames)
    # Heights have weights that sum to 2, two angles 40 nodes each; frames turn by √2 a.
    measure = weights * (2 * np.pi / 40) ** 2 * np.sqrt(2.0)
    assert np.exp(log) @ measure == pytest.approx(1.0, rel=1e-4)
    variable = MatrixAngularCentralGaussian.dist(COV, shape=(20_000, 3, 2))
    sample = pm.draw(variable, random_seed=1, mode="FAST_COMPILE")
    assert largest_z(sample, frames, log + np.log(weights)) < 5
    other = log_density(MatrixAngularCentralGaussian.dist(np.eye(3) + COV, shape=(3, 2)), frames)
    assert largest_z(sample, frames, other + np.log(weights)) > 10


@pytest.mark.parametrize("columns", [1, 2])
def test_constant_of_a_dynamic_number_of_weights(columns):
    """Data containers have no static shape; with four rows there is no constant."""
    A = np.diag([2.0, 1.0, 0.0, -3.0])
    b = np.array([2.0, -1.0])[:columns]
    x = np.linalg.qr(np.random.default_rng(1).normal(size=(5, 4, 4)))[0][..., :columns]
    later = log_density(MatrixBingham.dist(A, pytensor.shared(b)), x)
    np.testing.assert_allclose(later, log_density(MatrixBingham.dist(A, b), x), rtol=1e-13)


def test_free_weights_and_eigenvalues_of_many_rows_warn():
    frame, A = np.eye(4, 2), np.diag([4.0, 1.0, -2.0, -3.0])
    with pm.Model():
        axes = UniformStiefel("axes", shape=(4, 4))
        MatrixBingham("turned", axes @ A @ axes.mT, [2.0, 1.0], observed=frame)
        size = pm.HalfNormal("size")
        with pytest.warns(UserWarning, match=r"density of 'X' omits .* depends on 'size'"):
            MatrixBingham("X", size * A, [2.0, 1.0], observed=frame)
        with pytest.warns(UserWarning, match=r"density of 'Y' omits .* depends on 'size'"):
            MatrixBingham("Y", A, size * np.array([2.0, 1.0]), observed=frame)
        MatrixBingham("known", size * A3, [2.0, 1.0], observed=frame[:3])


def test_one_column_is_angular_central_gaussian():
    x = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 3, 3)))[0][..., :1]
    matrix = log_density(MatrixAngularCentralGaussian.dist(COV, shape=(3, 1)), x)
    vector = log_density(AngularCentralGaussian.dist(COV), x[..., 0])
    np.testing.assert_allclose(matrix, vector, rtol=1e-12)


def test_model_of_subspaces_starts_at_the_mode():
    with pm.Model() as model:
        MatrixAngularCentralGaussian("X", np.diag([1.0, 9.0, 4.0]), shape=(2, 3, 2))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        start = model.initial_point()["X_stiefel__"]
    np.testing.assert_allclose(np.abs(start), [[[0, 0], [1, 0], [0, 1]]] * 2, atol=1e-14)
    assert np.isfinite(model.compile_logp(mode="FAST_COMPILE")({"X_stiefel__": start}))


def test_shapes_of_subspaces_are_checked():
    with pytest.raises(TypeError, match="needs the shape"):
        MatrixAngularCentralGaussian.dist(COV)
    with pytest.raises(ValueError, match="frames have 4 rows, but cov has 3"):
        MatrixAngularCentralGaussian.dist(COV, shape=(4, 2))
    with pytest.raises(ValueError, match="4 columns in 3 dimensions"):
        MatrixAngularCentralGaussian.dist(COV, shape=(3, 4))
    indefinite = MatrixAngularCentralGaussian.dist(np.diag([1.0, 1.0, -1.0]), shape=(3, 2))
    with pytest.raises(ParameterValueError, match="cov is symmetric and positive definite"):
        log_density(indefinite, np.eye(3, 2))
