"""Checks of the numbers that users pass to step methods."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from pymc_geodesic.schedules import Schedule

__all__ = [
    "check_batch_size",
    "check_containers",
    "check_count",
    "check_fraction",
    "check_integers",
    "check_positive",
    "checked_control_variates",
    "checked_metric",
    "checked_metric_or_covariance",
    "plain_number",
    "step_size_at",
]


_ASYMMETRY, _SINGULAR = 1e-8, 1e-12
"""What rounding may do to a covariance matrix, in units of its scales."""


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no positive number; None and schedules pass.

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_positive
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


def plain_number(value: Any) -> Any:
    """Return a number as a float; None and schedules as they are.

    What is multiplied by an array must not make one of another type, which compiled code would
    read as if it were of floats.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from pymc_geodesic.arguments import plain_number
    >>> plain_number(Fraction(1, 4)), plain_number(None)
    (0.25, None)
    """
    return value if value is None or callable(value) else float(value)


def check_fraction(name: str, value: Any) -> None:
    """Refuse what is no number between zero and one.

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_fraction
    >>> check_fraction("target_accept", 80)
    Traceback (most recent call last):
    ValueError: target_accept must lie between 0 and 1, got 80
    """
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


def check_containers(names: Any) -> None:
    """Refuse a ``minibatch=`` that is no name and no list of different names; None passes.

    Raises
    ------
    ValueError
        The message says what to write.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_containers
    >>> check_containers(["X", "y", "X"])
    Traceback (most recent call last):
    ValueError: minibatch= names 'X' twice; name every container once
    """
    if names is None or isinstance(names, str):
        return
    hint = 'minibatch= takes the names of pm.Data containers, such as ["X", "y"]'
    if not isinstance(names, Iterable):
        raise ValueError(f"{hint}, got {names!r}")
    seen: list[str] = []
    for name in names:
        if not isinstance(name, str):
            own = getattr(name, "name", None)
            remedy = f"write {own!r}" if own else "put the rows into a container and name that"
            raise ValueError(f"{hint}, got a {type(name).__name__}: {remedy}")
        if name in seen:
            raise ValueError(f"minibatch= names {name!r} twice; name every container once")
        seen.append(name)
    if not seen:
        raise ValueError(f"{hint}, got no name; omit minibatch= to use all rows")


def check_count(name: str, value: Any) -> None:
    """Refuse what is no integer of at least one; None passes.

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_count
    >>> check_count("n_steps", 10)
    >>> check_count("n_steps", 2.5)
    Traceback (most recent call last):
    ValueError: n_steps must be a positive integer, got 2.5
    """
    if value is None:
        return
    if not _is_number(value) or not 1 <= value < math.inf or int(value) != value:
        raise ValueError(f"{name} must be a positive integer, got {value!r}")


def check_batch_size(batch_size: Any, n_rows: int, rows: str = "rows") -> None:
    """Refuse a size of minibatches that is no integer from 1 to the number of rows; None passes.

    Raises
    ------
    ValueError
        The message says how many there are.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_batch_size
    >>> check_batch_size(20, 30)
    >>> check_batch_size(40, 30)
    Traceback (most recent call last):
    ValueError: batch_size=40 does not fit the 30 rows; choose 1 to 30
    """
    check_count("batch_size", batch_size)
    if batch_size is not None and batch_size > n_rows:
        raise ValueError(
            f"batch_size={batch_size} does not fit the {n_rows} {rows}; choose 1 to {n_rows}"
        )


def check_integers(**limits: tuple[Any, int]) -> None:
    """Refuse what is no integer, or is below its least value.

    Parameters
    ----------
    **limits : tuple of (value, int)
        What was passed under each name, and the least that it may be.

    Raises
    ------
    ValueError
        The message names the argument.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_integers
    >>> check_integers(draws=(100, 1), tune=(0, 0))
    >>> check_integers(draws=(0.5, 1))
    Traceback (most recent call last):
    ValueError: draws must be an integer of at least 1, got 0.5
    """
    for name, (value, least) in limits.items():
        if not _is_number(value) or not value >= least or value % 1 != 0:
            raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def step_size_at(schedule: Schedule, draw: int) -> float:
    """Return the step size of a draw by a schedule.

    Raises
    ------
    ValueError
        If it is not a positive number.

    Examples
    --------
    >>> from pymc_geodesic import PolynomialDecay
    >>> from pymc_geodesic.arguments import step_size_at
    >>> step_size_at(PolynomialDecay(0.1, b=10, gamma=1.0), 10)
    0.05
    """
    step_size = schedule(draw)
    if not _is_number(step_size) or not 0 < step_size < math.inf:
        raise ValueError(
            f"the schedule step_size= gave {step_size} at draw {draw}; it must be positive"
        )
    return float(step_size)


def checked_metric(metric: Any) -> str | None:
    """Return the metric that an argument names.

    Raises
    ------
    ValueError
        If it is unknown.

    Examples
    --------
    >>> from pymc_geodesic.arguments import checked_metric
    >>> checked_metric("auto")
    'auto'
    >>> checked_metric("full")
    Traceback (most recent call last):
    ValueError: metric='full' is unknown; choose "auto", "dense", "diag" or None
    """
    if metric is None or (isinstance(metric, str) and metric in ("auto", "dense", "diag")):
        return metric
    raise ValueError(f'metric={metric!r} is unknown; choose "auto", "dense", "diag" or None')


def checked_metric_or_covariance(metric: Any) -> str | np.ndarray | None:
    """Return the metric that an argument names, or the covariance that it is.

    Raises
    ------
    ValueError
        If the name is unknown, or the array no covariance matrix and no vector of variances.

    Examples
    --------
    >>> from pymc_geodesic.arguments import checked_metric_or_covariance
    >>> checked_metric_or_covariance([1.0, 4.0])
    array([1., 4.])
    >>> checked_metric_or_covariance([[1.0, 2.0], [2.0, 1.0]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: metric= must be positive definite, ...
    """
    if metric is None or isinstance(metric, str):
        return checked_metric(metric)
    try:
        covariance = np.array(metric, dtype=float)
    except (TypeError, ValueError):
        return checked_metric(metric)
    shape = covariance.shape
    if covariance.ndim not in (1, 2) or shape[0] != shape[-1]:
        raise ValueError(
            f"metric= must be d variances or a d × d covariance matrix, but has shape {shape}"
        )
    if not np.isfinite(covariance).all():
        raise ValueError("metric= holds NaN or infinity; give finite variances and covariances")
    variances = covariance if covariance.ndim == 1 else np.diag(covariance)
    if not variances.min(initial=np.inf) > 0.0:
        raise ValueError(
            "metric= holds variances, which must be positive, but that of coordinate "
            f"{variances.argmin()} is {variances.min():.3g}"
        )
    if covariance.ndim == 1:
        return covariance
    scales = np.sqrt(np.outer(variances, variances))
    if not np.all(np.abs(covariance - covariance.T) <= _ASYMMETRY * scales):
        raise ValueError(
            "metric= must be symmetric, as a covariance is; (m + m.T) / 2 makes it so where only "
            "rounding is in the way"
        )
    smallest = np.linalg.eigvalsh(covariance / scales).min(initial=np.inf)
    if not smallest > _SINGULAR:
        raise ValueError(
            "metric= must be positive definite, but the correlations have an eigenvalue of "
            f"{smallest:.3g}; take more draws than coordinates, or give the variances alone"
        )
    return covariance


def checked_control_variates(order: Any) -> str | int:
    """Return the order of control variates that an argument names, 0 for none.

    Raises
    ------
    ValueError
        If it is unknown.

    Examples
    --------
    >>> from pymc_geodesic.arguments import checked_control_variates
    >>> checked_control_variates(2), checked_control_variates(False)
    (2, 0)
    >>> checked_control_variates(True)
    Traceback (most recent call last):
    ValueError: control_variates=True is unknown; choose "auto", 1, 2 or False
    """
    if isinstance(order, str) and order == "auto":
        return order
    if order is False:
        return 0
    # True is no order, though it equals 1
    if _is_number(order) and order in (1, 2):
        return int(order)
    raise ValueError(f'control_variates={order!r} is unknown; choose "auto", 1, 2 or False')
