import arviz as az
import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_geodesic.distributions import (
    MatrixVonMisesFisher,
    UniformStiefel,
    VonMisesFisher,
    matrix_von_mises_fisher,
)
from pymc_geodesic.distributions.matrix_von_mises_fisher import (
    compiled_frame,
    draw_matrix_von_mises_fisher,
)
from pymc_geodesic.transforms import stiefel

STRONG = np.array([[2.0, 1.0], [-1.0, 0.5], [0.0, 3.0]])


def orthogonal_by_quadrature():
    """All orthogonal 2 × 2 matrices on a grid of angles."""
    angle = np.linspace(0, 2 * np.pi, 400, endpoint=False)
    first = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    second = np.stack([-np.sin(angle), np.cos(angle)], axis=-1)
    frames = [np.stack([first, sign * second], axis=-1) for sign in (1, -1)]
    return np.concatenate(frames), np.ones(800)


def frames_by_quadrature():
    """Frames of 3 × 2: Gauss–Legendre in the height, trapezoidal in both angles."""
    height, weights = np.polynomial.legendre.leggauss(40)
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    z, azimuth, turn = (grid.ravel() for grid in np.meshgrid(height, angle, angle, indexing="ij"))
    s, c, cos, sin = np.sqrt(1 - z**2), z, np.cos(azimuth), np.sin(azimuth)
    first = np.stack([s * cos, s * sin, c], axis=-1)
    south = np.stack([c * cos, c * sin, -s], axis=-1)
    east = np.stack([-sin, cos, np.zeros_like(sin)], axis=-1)
    second = np.cos(turn)[:, None] * south + np.sin(turn)[:, None] * east
    return np.stack([first, second], axis=-1), np.repeat(weights, 1600)


def exact_moments(F, frames, weights):
    """First and second moments of the entries."""
    density = weights * np.exp(np.einsum("ij,bij->b", F, frames))
    density /= density.sum()
    return [np.einsum("b,bij->ij", density, frames**power) for power in (1, 2)]


CASES = {
    "3 × 2, strong": (STRONG, frames_by_quadrature),
    "3 × 2, parallel columns": (np.ones((3, 2)), frames_by_quadrature),
    "2 × 2": (np.array([[1.0, 0.3], [0.2, 0.5]]), orthogonal_by_quadrature),
    "uniform": (np.zeros((3, 2)), frames_by_quadrature),
}


def z_scores(sample, moments):
    sizes = [
        (values.mean(axis=0) - expected) / (values.std(axis=0) / np.sqrt(len(values)))
        for values, expected in zip((sample, sample**2), moments, strict=True)
    ]
    return np.abs(sizes)


@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_exact_moments(case):
    F, grid = CASES[case]
    sample = draw_matrix_von_mises_fisher(np.random.default_rng(1), F, (50_000,))
    gram = sample.mT @ sample
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(2), gram.shape), atol=1e-12)
    assert z_scores(sample, exact_moments(F, *grid())).max() < 5


def test_moments_detect_a_missing_rejection_step(monkeypatch):
    propose = matrix_von_mises_fisher._propose

    def accept_all(rng, concentration):
        frames, log_acceptance = propose(rng, concentration)
        return frames, np.zeros_like(log_acceptance)

    monkeypatch.setattr(matrix_von_mises_fisher, "_propose", accept_all)
    sample = draw_matrix_von_mises_fisher(np.random.default_rng(1), STRONG, (50_000,))
    assert z_scores(sample, exact_moments(STRONG, *frames_by_quadrature())).max() > 10


@pytest.mark.parametrize("scale", [1e-9, 1e3, 1e8])
def test_draws_stay_orthonormal_and_concentrate_at_the_mode(scale):
    F = scale * np.random.default_rng(2).standard_normal((5, 3))
    sample = draw_matrix_von_mises_fisher(np.random.default_rng(3), F, (200,))
    gram = sample.mT @ sample
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(3), gram.shape), atol=1e-12)
    if scale >= 1e3:
        left, values, right = np.linalg.svd(F, full_matrices=False)
        distance = np.abs(sample - left @ right).max()
        assert distance < 10 / np.sqrt(values[-1])


def test_each_matrix_of_a_batch_has_its_own_distribution():
    F = np.stack([1e4 * np.eye(3, 2), -1e4 * np.eye(3, 2)])
    sample = draw_matrix_von_mises_fisher(np.random.default_rng(1), F, (5, 2))
    np.testing.assert_allclose(sample, np.broadcast_to(F / 1e4, (5, 2, 3, 2)), atol=0.1)


@pytest.mark.slow
def test_pm_draw_is_the_same_sampler():
    variable = MatrixVonMisesFisher.dist(STRONG, shape=(4000, 3, 2))
    sample = pm.draw(variable, random_seed=1)
    assert z_scores(sample, exact_moments(STRONG, *frames_by_quadrature())).max() < 5


def interpreted(function=None, **_):
    """Replace Numba's decorator."""
    return function if function else interpreted


@pytest.mark.parametrize(
    "F",
    [
        pytest.param(STRONG, id="3 × 2"),
        pytest.param(np.diag([1.0, 8.0, 3.0]) @ np.ones((3, 3)), id="3 × 3, of rank one"),
        pytest.param(np.diag([4.0, 0.5])[:, ::-1], id="2 × 2"),
        pytest.param(np.zeros((4, 2)), id="uniform"),
        pytest.param(5.0 * np.eye(4)[:, [2, 0]], id="4 × 2, where many are rejected"),
        pytest.param(4.0 * np.eye(3), id="3 × 3, where many are rejected"),
        pytest.param(np.array([[1.0], [2.0], [-3.0]]), id="one column"),
    ],
)
def test_loop_and_arrays_draw_from_the_same_distribution(F):
    """Moments of entries and of their products, by samples of both."""
    n, rng = 1500, np.random.default_rng(3)
    draw, loop = compiled_frame(interpreted), np.empty((n, *F.shape))
    for out in loop:
        draw(rng, F, out)
    arrays = draw_matrix_von_mises_fisher(rng, F, (40 * n,))
    np.testing.assert_allclose(
        np.einsum("bij,bik->bjk", loop, loop),
        np.broadcast_to(np.eye(F.shape[1]), (n, *[F.shape[1]] * 2)),
        atol=1e-13,
    )
    for power in (1, 2):
        difference = (loop**power).mean(axis=0) - (arrays**power).mean(axis=0)
        error = np.maximum((arrays**power).std(axis=0), 1e-12) * np.sqrt(1 / n + 1 / len(arrays))
        assert np.abs(difference / error).max() < 4.5


def test_compiled_draws_of_nonfinite_parameters_raise():
    with pytest.raises(ValueError, match="F must be finite"):
        compiled_frame(interpreted)(
            np.random.default_rng(1), np.full((3, 2), np.nan), np.empty((3, 2))
        )


def test_compiled_draws_that_are_infeasible_raise(monkeypatch):
    monkeypatch.setattr(matrix_von_mises_fisher, "MAX_PROPOSALS", 50)
    F = 1e3 * np.random.default_rng(1).standard_normal((30, 15))
    compiled_frame.cache_clear()
    with pytest.raises(RuntimeError, match=r"rejection is not feasible .* Draw by MCMC"):
        compiled_frame(interpreted)(np.random.default_rng(1), F, np.empty(F.shape))
    compiled_frame.cache_clear()


def test_infeasible_draws_raise(monkeypatch):
    monkeypatch.setattr(matrix_von_mises_fisher, "MAX_PROPOSALS", 50)
    F = 1e3 * np.random.default_rng(1).standard_normal((30, 15))
    with pytest.raises(RuntimeError, match="rejection is not feasible for this F of 15 columns"):
        draw_matrix_von_mises_fisher(np.random.default_rng(1), F)


def evaluate(expression):
    return expression.eval(mode="FAST_COMPILE")


def test_one_column_is_von_mises_fisher():
    direction, kappa = np.array([0.6, 0.0, -0.8]), 7.0
    frame = draw_matrix_von_mises_fisher(np.random.default_rng(1), np.zeros((6, 3, 1)))
    matrix = pm.logp(MatrixVonMisesFisher.dist(kappa * direction[:, None]), frame)
    vector = pm.logp(VonMisesFisher.dist(direction, kappa), frame[..., 0])
    np.testing.assert_allclose(evaluate(matrix), evaluate(vector), rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [1, 2])
def test_constant_of_a_dynamic_number_of_columns(columns):
    """Data containers have no static shape."""
    known = MatrixVonMisesFisher.dist(STRONG[:, :columns])
    container = pytensor.shared(STRONG[:, :columns])
    frames = draw_matrix_von_mises_fisher(np.random.default_rng(1), np.zeros((4, 3, columns)))
    later = pm.logp(MatrixVonMisesFisher.dist(container), frames)
    np.testing.assert_allclose(evaluate(later), evaluate(pm.logp(known, frames)), rtol=1e-13)


def test_free_concentrations_of_many_columns_warn():
    frame = np.eye(12, 11)
    with pm.Model():
        axes = UniformStiefel("axes", shape=(12, 11))
        MatrixVonMisesFisher("turned", axes * np.arange(11.0), observed=frame)
        kappa = pm.HalfNormal("kappa", 5.0)
        with pytest.warns(UserWarning, match=r"density of 'X' omits .* depends on 'axes', 'kappa'"):
            MatrixVonMisesFisher("X", kappa * axes, observed=frame)
        MatrixVonMisesFisher("known", kappa * frame[:, :2], observed=frame[:, :2])
        improper = pm.Flat("improper")
        with pytest.warns(UserWarning, match="depends on 'improper'"):
            MatrixVonMisesFisher("Y", improper * frame, observed=frame)


def test_the_density_of_one_column_has_a_gradient_at_zero():
    F = pt.tensor("F", shape=(3, 1))
    frame = np.array([[0.6], [0.0], [-0.8]])
    log_density = pm.logp(MatrixVonMisesFisher.dist(F), frame)
    gradient = pytensor.grad(log_density, F).eval({F: np.zeros((3, 1))}, mode="FAST_COMPILE")
    np.testing.assert_allclose(gradient, frame)


@pytest.mark.parametrize("case", CASES)
def test_the_density_has_mass_one(case):
    """The surface measure of a rotation within a frame is √2 times that of its angle."""
    F, grid = CASES[case]
    frames, weights = grid()
    log_density = evaluate(pm.logp(MatrixVonMisesFisher.dist(F), frames))
    if len(F) == 2:
        measure = np.full(len(frames), 2 * np.pi / 400 * np.sqrt(2.0))
    else:
        measure = weights * (2 * np.pi / 40) ** 2 * np.sqrt(2.0)
    assert np.exp(log_density) @ measure == pytest.approx(1.0, abs=1e-11)
    off = pm.logp(MatrixVonMisesFisher.dist(F), 1.01 * frames[:5])
    assert np.all(evaluate(off) == -np.inf)


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords={"group": range(2), "row": list("abc"), "column": range(2)}) as model:
        MatrixVonMisesFisher("X", STRONG, dims=("group", "row", "column"))
    return model


def test_the_model_prints_plots_and_starts_at_the_mode(model):
    assert model.str_repr() == "X ~ MatrixVonMisesFisher(<constant>)"
    assert "group (2) x row (3) x column (2)" in pm.model_to_mermaid(model)
    assert model.rvs_to_transforms[model["X"]] is stiefel
    left, _, right = np.linalg.svd(STRONG, full_matrices=False)
    mode = np.broadcast_to(left @ right, (2, 3, 2))
    np.testing.assert_allclose(model.initial_point()["X_stiefel__"], mode, atol=1e-14)


@pytest.mark.slow
def test_model_can_be_pickled(model):
    copy = cloudpickle.loads(cloudpickle.dumps(model))
    point = model.initial_point()
    log_densities = [m.compile_logp(mode="FAST_COMPILE")(point) for m in (model, copy)]
    assert log_densities[0] == log_densities[1]
    draws = [pm.draw(m["X"], random_seed=1, mode="FAST_COMPILE") for m in (model, copy)]
    np.testing.assert_array_equal(*draws)


@pytest.mark.slow
def test_nuts_draws_the_exact_moments():
    with pm.Model():
        MatrixVonMisesFisher("X", STRONG)
        idata = pm.sample(
            2000, chains=2, cores=1, nuts_sampler="pymc", random_seed=1, progressbar=False
        )
    sample = idata.posterior["X"].values
    moments = exact_moments(STRONG, *frames_by_quadrature())
    for values, expected in zip((sample, sample**2), moments, strict=True):
        for i, j in np.ndindex(3, 2):
            entry = values[..., i, j]
            error = entry.std() / np.sqrt(float(az.ess(entry)))
            assert abs(entry.mean() - expected[i, j]) < 5 * error
            assert error < 0.03
    assert not idata.sample_stats["diverging"].any()


@pytest.mark.parametrize(
    ("F", "message"),
    [(np.ones(3), "use VonMisesFisher"), (np.ones((2, 3)), "at least as many rows as columns")],
)
def test_invalid_parameters_raise(F, message):
    with pytest.raises(ValueError, match=message):
        MatrixVonMisesFisher.dist(F)


@pytest.mark.parametrize(
    ("F", "message"),
    [(np.full((3, 2), np.nan), "F must be finite"), (np.ones((2, 3)), "at least as many rows")],
)
def test_invalid_parameters_of_draws_raise(F, message):
    with pytest.raises(ValueError, match=message):
        draw_matrix_von_mises_fisher(np.random.default_rng(1), F)
