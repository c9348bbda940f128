"""Sampling of one chain, with the processor time of set-up, tuning and draws."""

from __future__ import annotations

import math
import time
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings

WANTED = 1000.0
"""Effective draws of the reported time to a number of effective draws."""


class Clock:
    """Callback that records the times of the first and the last draw after tuning."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last: float = math.nan

    def __call__(self, trace: Any, draw: Any) -> None:
        """Record the time of a draw."""
        if draw.tuning:
            return
        self.last = time.process_time()
        if self.first is None:
            self.first = self.last


def timed_chain(
    step: Any, variable: str, *, draws: int, tune: int, began: float | None = None
) -> tuple[dict[str, Any], np.ndarray]:
    """Sample one chain of the model in the context.

    Parameters
    ----------
    step : step method
    variable : str
        Variable whose worst coordinate determines the effective sample size.
    draws, tune : int
    began : float, optional
        Processor time at the start of set-up; by default the time of the call.

    Returns
    -------
    figures : dict
        ``ess_per_s`` refers to the draws after tuning; ``end_s``, the time in which `pymc.sample`
        assembles its result, is included in the time to 1,000 effective draws.
    values : ndarray, shape (draws, size)
    """
    clock, began = Clock(), time.process_time() if began is None else began
    with SamplingWarnings() as caught:
        idata = pm.sample(
            draws=draws,
            tune=tune,
            chains=1,
            cores=1,
            step=step,
            random_seed=1,
            progressbar=False,
            callback=clock,
            compute_convergence_checks=False,
        )
    done = time.process_time()
    assert clock.first is not None
    values = idata.posterior[variable].values.reshape(1, draws, -1)
    stats = idata.sample_stats
    size = min(float(az.ess(values[..., i])) for i in range(values.shape[2]))
    squares = (values - values.mean(axis=1)) ** 2
    of_squares = min(float(az.ess(squares[..., i])) for i in range(values.shape[2]))
    per_second = size * (1.0 - 1.0 / draws) / (clock.last - clock.first)
    figures = {
        "ess": size,
        "ess_of_squares": of_squares,
        "ess_per_s": per_second,
        "set_up_s": clock.first - began,
        "end_s": done - clock.last,
        "time_to_1000_s": clock.first - began + WANTED / per_second + done - clock.last,
        "n_grad_per_draw": float(stats["n_grad"].values.mean()),
        "step_size": float(stats["step_size"].values[0, -1]),
        "noise_ratio": float(stats["noise_ratio"].values[0, -1]) if "noise_ratio" in stats else 1.0,
        "warnings": [m for m in caught.messages if not m.startswith(GENERAL_ADVICE)],
    }
    return figures, values[0]
