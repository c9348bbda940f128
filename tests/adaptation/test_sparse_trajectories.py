"""Warm-up in the coordinates of the sparse metric."""

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg


def normal_groups(n_groups: int) -> pm.Model:
    """Five normal rows per group."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(n_groups), 5)
    y = rng.normal(size=n_groups)[group] + rng.normal(size=group.size)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("scale"), shape=n_groups)
        mu = pm.Normal("mean") + effect[group]
        pm.Normal("y", mu, pm.HalfNormal("noise"), observed=y)
    return model


@pytest.mark.parametrize("n_groups", [50, 10_000])
def test_the_first_trajectories_are_long_and_accepted(n_groups):
    """From the mode of many effects, where scales are far from typical, they would be rejected."""
    model = normal_groups(n_groups)
    step = pg.GMC(model=model)
    step.setup_chain(np.random.default_rng(1), 1_000, 10)
    point, rows = model.initial_point(random_seed=1), []
    for _ in range(20):
        point, (stats,) = step.step(point)
        rows.append(stats)
    assert np.mean([row["acceptance_rate"] for row in rows]) > 0.8
    assert min(row["step_size"] for row in rows) > 0.3
