"""Three ways to specify minibatches, with the same posterior."""

import numpy as np
import pymc as pm
import pytest

from pymc_geodesic import SGGMC, gSGNHT
from tests.grids import cross, slow
from tests.steps.runs import INTERPRETED, run_steps, sample, start

N_ROWS, BATCH = 600, 50
PRIOR_SD = 3.0


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N_ROWS, 2)) @ [[1.0, 0.5], [0.0, 0.5]]
    return X, rng.normal(X @ [1.0, -2.0], 1.0)


@pytest.fixture(scope="module")
def posterior(table):
    """Exact mean and covariance."""
    X, y = table
    covariance = np.linalg.inv(X.T @ X + np.eye(2) / PRIOR_SD**2)
    return covariance @ X.T @ y, covariance


class Loader:
    """Data loader: an iterable of blocks with ``total_size``."""

    def __init__(self, *arrays):
        self.arrays = arrays
        self.total_size = len(arrays[0])

    def __iter__(self):
        order = np.random.default_rng(1).permutation(self.total_size)
        for i in range(0, self.total_size, BATCH):
            yield tuple(array[order[i : i + BATCH]] for array in self.arrays)


def full_data_model(X, y):
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, PRIOR_SD, shape=2)
        pm.Normal("y_obs", pm.Data("X", X) @ w, 1.0, observed=pm.Data("y", y))
    return model


def named(step_class, X, y, **kwargs):
    model = full_data_model(X, y)
    with model:
        return model, step_class(minibatch=["X", "y"], batch_size=BATCH, **kwargs)


def drawn_by_pymc(step_class, X, y, **kwargs):
    with pm.Model() as model:
        X_rows, y_rows = pm.Minibatch(X, y, batch_size=BATCH)
        w = pm.Normal("w", 0.0, PRIOR_SD, shape=2)
        pm.Normal("y_obs", X_rows @ w, 1.0, observed=y_rows, total_size=N_ROWS)
        return model, step_class(**kwargs)


def streamed(step_class, X, y, **kwargs):
    model = full_data_model(X[:1], y[:1])  # the data themselves never enter the model
    with model:
        return model, step_class(minibatch=["X", "y"], batches=Loader(X, y), **kwargs)


@pytest.mark.parametrize("route", [named, slow(drawn_by_pymc), slow(streamed)])
def test_posterior(route, table, posterior):
    """Standard errors are about 0.02 for the means and 0.03 for the covariances.

    That gradients of rows from elsewhere are those of all, `test_density.py` and
    `test_count_posteriors.py` have by default.
    """
    model, step = route(gSGNHT, *table, n_steps=100 if route is streamed else 20)
    draws = sample(model, step, draws=6000, tune=500).posterior["w"].values[0]
    mean, covariance = posterior
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    standard = (draws - mean) @ root
    assert np.abs(standard.mean(axis=0)).max() < 0.1
    assert np.abs(np.cov(standard.T) - np.eye(2)).max() < 0.12


@pytest.mark.slow
@pytest.mark.parametrize("step_class", [slow(SGGMC), gSGNHT])
def test_known_noise_allows_longer_steps(step_class, table):
    """Up to half of the noise may come from gradients of known variance."""
    sizes = {}
    for noise in (None, "fisher"):
        model, step = named(
            step_class, *table, gradient_noise=noise, metric=None, compile_kwargs=INTERPRETED
        )
        stats = sample(model, step, draws=300, tune=200).sample_stats
        sizes[noise] = stats["step_size"].values[0, -1]
        assert abs(stats["temperature"].mean() - 1.0) < 0.1
        assert (stats["noise_clips"] > 0).mean() < 0.05
    assert sizes["fisher"] > 1.5 * sizes[None]


@pytest.mark.slow
def test_fisher_noise_gives_the_posterior(table, posterior):
    model, step = named(
        SGGMC, *table, gradient_noise="fisher", n_steps=20, compile_kwargs=INTERPRETED
    )
    draws = sample(model, step, draws=800, tune=200).posterior["w"].values[0]
    mean, covariance = posterior
    standard = (draws - mean) @ np.linalg.cholesky(np.linalg.inv(covariance))
    assert np.abs(standard.mean(axis=0)).max() < 0.3
    assert np.abs(np.cov(standard.T) - np.eye(2)).max() < 0.2


@pytest.mark.parametrize(
    ("route", "order"), cross(["named", "pymc", "computed"], ["shuffled", "random"])
)
def test_data_after_set_data(table, order, route):
    """Rows that a step copied or computed are updated from the container when a chain begins."""
    X, y = table
    with pm.Model() as model:
        columns, values = pm.Data("X", X[::-1]), pm.Data("y", np.zeros(N_ROWS))
        if route == "computed":
            columns, values = columns[:, ::-1][:, ::-1], 2.0 * (0.5 * values)
        if route != "named":
            columns, values = pm.Minibatch(columns, values, batch_size=BATCH)
        w = pm.Normal("w", 0.0, PRIOR_SD, shape=2)
        pm.Normal("y_obs", columns @ w, 1.0, observed=values, total_size=N_ROWS)
        rows = {"minibatch": ["X", "y"], "batch_size": BATCH} if route == "named" else {}
        step = SGGMC(**rows, minibatch_order=order, n_steps=2, compile_kwargs=INTERPRETED)
    for arrays in ((X[::-1], np.zeros(N_ROWS)), (X, y)):
        with model:
            pm.set_data(dict(zip("Xy", arrays, strict=True)))
        start(model, step, tune=2, draws=2)
        assert_gradients_are_of(step, *arrays)
    with pytest.raises(AssertionError):
        assert_gradients_are_of(step, X, y[::-1])
    with model:
        pm.set_data({"X": X[:100], "y": y[:100]})
    with pytest.raises(ValueError, match=r"had shape .* Create the step again"):
        start(model, step, tune=2, draws=2)


def assert_gradients_are_of(step, X, y):
    """Compare gradients of minibatches and of all rows with those of the data."""
    w = np.array([0.3, -0.7])

    def expected(rows):
        residuals = y[rows] - X[rows] @ w
        return N_ROWS / rows.size * residuals @ X[rows] - w / PRIOR_SD**2

    source = step.estimator.source
    for argument in step.estimator.next_minibatches(5):
        found = step.estimator.gradient_at(w, int(argument))
        np.testing.assert_allclose(found, expected(source.row_indices(int(argument))), rtol=1e-9)
    found = step.adaptation.gradient.gradient_of_all_rows(w)
    np.testing.assert_allclose(found, expected(np.arange(N_ROWS)), rtol=1e-9)


def test_independent_minibatches_where_they_are_assumed(table):
    """Epochs for SGGMC unadapted; independent rows where noise is known, or for a thermostat."""
    many = np.tile(table[0], (100, 1)), np.tile(table[1], 100)
    kinds = {}
    for name, step_class, noise, rows in (
        ("SGGMC", SGGMC, None, table),
        ("known, 12 blocks", SGGMC, 1.0, table),
        ("known, 1200 blocks", SGGMC, 1.0, many),
        ("gSGNHT", gSGNHT, None, table),
        ("gSGNHT, known", gSGNHT, 1.0, table),
    ):
        _, step = named(
            step_class, *rows, gradient_noise=noise, metric=None, compile_kwargs=INTERPRETED
        )
        kinds[name] = type(step.estimator.source).__name__
    assert kinds == {
        "SGGMC": "ShuffledRows",
        "known, 12 blocks": "RandomRows",
        "known, 1200 blocks": "IndependentRows",
        "gSGNHT": "IndependentRows",
        "gSGNHT, known": "RandomRows",
    }
    for order, kind in (("random", "RandomRows"), ("independent", "IndependentRows")):
        _, step = named(
            gSGNHT, *table, minibatch_order=order, gradient_noise=1.0, compile_kwargs=INTERPRETED
        )
        assert type(step.estimator.source).__name__ == kind


def test_every_inner_step_takes_the_next_minibatch(table):
    model, step = named(
        SGGMC, *table, n_steps=4, step_size=1e-3, friction=1.0, compile_kwargs=INTERPRETED
    )
    point = start(model, step, tune=0, draws=9)
    seen = []
    original = step.estimator.source.next_starts
    step.estimator.source.next_starts = lambda n: seen.append(original(n)) or seen[-1]
    run_steps(step, point, 9)
    blocks = np.concatenate(seen)
    assert [len(starts) for starts in seen] == [4] * 9
    for epoch in (blocks[:12], blocks[12:24], blocks[24:]):
        assert len(set(epoch)) == 12


@pytest.mark.slow
def test_one_model_for_minibatches_nuts_and_prediction(table):
    """The step leaves model and data as they are."""
    X, y = table
    model, step = named(SGGMC, X, y, compile_kwargs=INTERPRETED)
    idata = sample(model, step, draws=20, tune=20)
    np.testing.assert_array_equal(model["X"].get_value(), X)
    with model:
        prediction = pm.sample_posterior_predictive(
            idata, progressbar=False, random_seed=1, compile_kwargs=INTERPRETED
        )
    assert prediction.posterior_predictive["y_obs"].shape == (1, 20, N_ROWS)
    nuts = sample(model, None, draws=10, tune=10)
    assert nuts.posterior["w"].shape == (1, 10, 2)
