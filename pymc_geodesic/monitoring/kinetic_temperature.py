"""What the mean kinetic temperature of a chain says of its draws."""

from __future__ import annotations

import numpy as np

TEMPERATURE_TOLERANCE = 0.1
TEMPERATURE_ERRORS = 3.0
"""Standard errors by which a mean temperature must leave the tolerance to be reported."""


def temperature_error(dims: np.ndarray, decay: np.ndarray, n_steps: int) -> float:
    """Return the standard error of a mean kinetic temperature whose expectation is 1.

    A component v² has variance 2 and forgets e^(−2Cε) of itself in a step.

    Parameters
    ----------
    dims : ndarray, shape (n_variables,)
        Dimension of every variable; the temperature is the mean over the variables.
    decay : ndarray, shape (n_variables,)
        Cε, the friction of one step.
    n_steps : int
        Inner steps that the mean is over.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_geodesic.monitoring.kinetic_temperature import temperature_error
    >>> temperature_error(np.array([50]), np.array([0.1]), 100_000)
    0.002
    """
    dependence = np.minimum(1.0 / (np.tanh(decay) * n_steps), 1.0)
    return float(np.sqrt(np.sum(2.0 / dims * dependence)) / len(dims))


def temperature_complaint(
    mean: float, error: float, *, dynamics: str, too_hot: str, too_cold: str
) -> str | None:
    """Say what a mean temperature does to the draws, and the remedy; None if it is as it should be.

    Parameters
    ----------
    mean, error : float
        Mean kinetic temperature, and its standard error.
    dynamics : str
        What was run.
    too_hot, too_cold : str
        What to use if it is too hot or too cold.

    Examples
    --------
    >>> from pymc_geodesic.monitoring.kinetic_temperature import temperature_complaint
    >>> given = {"dynamics": "step size 1", "too_hot": "less", "too_cold": "more"}
    >>> temperature_complaint(1.25, 0.06, **given) is None
    True
    >>> temperature_complaint(1.25, 0.01, **given)
    'ran at a kinetic temperature of 1.25 instead of 1 (step size 1): the draws are wider than the
    posterior. Use less, or let tuning choose.'
    """
    if abs(mean - 1.0) <= TEMPERATURE_TOLERANCE + TEMPERATURE_ERRORS * error:
        return None
    problem, remedy = ("wider", too_hot) if mean > 1.0 else ("narrower", too_cold)
    return (
        f"ran at a kinetic temperature of {mean:.3g} instead of 1 ({dynamics}): the draws are "
        f"{problem} than the posterior. Use {remedy}, or let tuning choose."
    )
