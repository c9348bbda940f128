"""Checks of the numbers that users pass to step methods."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np

from pymc_geodesic.schedules import Schedule

__all__ = ["check_count", "check_positive", "step_size_at"]


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive number; None and schedules pass.

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> from pymc_geodesic.steps.settings import check_positive
    >>> check_positive("friction", 3.0)
    >>> check_positive("friction", -3.0)
    Traceback (most recent call last):
    ValueError: friction must be positive, got -3.0
    """
    if value is None or callable(value):
        return
    if not _is_number(value):
        raise ValueError(f"{name} must be one positive number, got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be positive, got {value}")


def check_count(name: str, value: Any) -> None:
    """Refuse what is no integer of at least one; None passes.

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> from pymc_geodesic.steps.settings import check_count
    >>> check_count("n_steps", 10)
    >>> check_count("n_steps", 2.5)
    Traceback (most recent call last):
    ValueError: n_steps must be a positive integer, got 2.5
    """
    if value is None:
        return
    if not _is_number(value) or not 1 <= value < math.inf or int(value) != value:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def step_size_at(schedule: Schedule, draw: int) -> float:
    """Return the step size of a draw by a schedule.

    Raises
    ------
    ValueError
        If it is not a positive number.

    Examples
    --------
    >>> from pymc_geodesic import PolynomialDecay
    >>> from pymc_geodesic.steps.settings import step_size_at
    >>> step_size_at(PolynomialDecay(0.1, b=10, gamma=1.0), 10)
    0.05
    """
    step_size = schedule(draw)
    if not _is_number(step_size) or not 0 < step_size < math.inf:
        raise ValueError(
            f"the schedule step_size= gave {step_size} at draw {draw}; it must be positive"
        )
    return float(step_size)
