"""Heterogeneous minibatch noise: the scale of a non-centered hierarchy, against quadrature."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg

GROUPS, ROWS = 20, 600


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    group = rng.integers(GROUPS, size=ROWS)
    return group, 0.5 + 0.7 * rng.normal(size=GROUPS)[group] + rng.normal(size=ROWS)


def exact_scale(group: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Mean and sd of tau ~ N⁺(0, 1), with mu ~ N(0, 2) and the effects integrated out."""
    taus = np.linspace(1e-3, 3.0, 1500)
    counts = np.bincount(group, minlength=GROUPS)
    sums = np.bincount(group, y, minlength=GROUPS)
    log_density = np.empty_like(taus)
    for i, tau in enumerate(taus):
        variance = tau**2 + 1.0 / counts
        precision = 0.25 + np.sum(1.0 / variance)
        pull = np.sum(sums / counts / variance)
        log_density[i] = -0.5 * tau**2 - 0.5 * np.sum(np.log(variance)) - 0.5 * np.log(precision)
        log_density[i] += 0.5 * (pull**2 / precision - np.sum((sums / counts) ** 2 / variance))
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = weights @ taus
    return float(mean), float(np.sqrt(weights @ (taus - mean) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_scale_of_a_hierarchy(seed):
    """The bound on the step size is tested in `tests/adaptation/test_noise_measurement.py`."""
    group, y = rows()
    with pm.Model() as model:
        code, observed = pm.Data("group", group), pm.Data("y", y)
        mu, tau = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau", 1.0)
        effect = pm.Normal("effect", 0.0, 1.0, shape=GROUPS)
        pm.Normal("outcome", mu + tau * effect[code], 1.0, observed=observed)
    step = pg.SGGMC(model=model, batch_size=50, minibatch=["group", "y"])
    tune, draws = 800, 2500
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point, drawn = model.initial_point(random_seed=seed), []
    for draw in range(tune + draws):
        if draw == tune:
            step.stop_tuning()
        point, _ = step.step(point)
        if draw >= tune:
            drawn.append(float(np.exp(point["tau_log__"])))
    mean, sd = exact_scale(group, y)
    assert abs(np.mean(drawn) - mean) < 0.25 * sd
    assert 0.85 < np.std(drawn) / sd < 1.15
