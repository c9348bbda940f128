"""Short runs of `pymc.sample` and of single steps."""

from typing import Any

import numpy as np
import pymc as pm

INTERPRETED = {"mode": "FAST_COMPILE"}
"""Without compilation, for short runs."""


def sample(model: pm.Model, step: Any, **kwargs: Any) -> Any:
    """Run `pymc.sample` with one chain in this process, quietly."""
    defaults = {
        "draws": 100,
        "tune": 100,
        "chains": 1,
        "cores": 1,
        "random_seed": 1,
        "progressbar": False,
        "compute_convergence_checks": False,
        "quiet": True,
    }
    if step is None:
        defaults["compile_kwargs"] = INTERPRETED
    with model:
        return pm.sample(step=step, **(defaults | kwargs))


def run_steps(step: Any, point: dict[str, np.ndarray], n: int) -> tuple[list[dict], list[dict]]:
    """Call a step ``n`` times; return points and stats."""
    points, stats = [], []
    for _ in range(n):
        point, (stat,) = step.step(point)
        points.append(point)
        stats.append(stat)
    return points, stats


def start(model: pm.Model, step: Any, tune: int, draws: int, seed: int = 1) -> dict:
    """Set up a chain and return its first point."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    return model.initial_point(random_seed=seed)


def assert_same_draws(one: Any, other: Any, rtol: float = 0.0) -> None:
    """Compare the posteriors of two runs, to the last bit by default."""
    for name, draws in one.posterior.data_vars.items():
        if rtol:
            np.testing.assert_allclose(other.posterior[name].values, draws.values, rtol=rtol)
        else:
            np.testing.assert_array_equal(other.posterior[name].values, draws.values)
