"""Validation of the arguments of step methods."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from pymc_geodesic.schedules import Schedule

DEFAULT_STEPS = 10
"""Default number of inner steps per draw in the coordinates of the model."""

_ASYMMETRY, _SINGULAR = 1e-8, 1e-12
"""Maximum asymmetry of a covariance matrix, and its minimum eigenvalue, in units of its scales."""


def _is_number(value: Any) -> bool:
    if isinstance(value, bool | np.bool_):
        return False
    is_scalar = isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf"
    return isinstance(value, Real) or is_scalar


def listed(items: Sequence[str]) -> str:
    """Join items by commas and a final "and".

    Examples
    --------
    >>> from pymc_geodesic.arguments import listed
    >>> listed(["step size", "friction", "n_steps"])
    'step size, friction and n_steps'
    """
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def check_positive(name: str, value: Any) -> None:
    """Validate an optional positive number or schedule.

    Raises
    ------
    ValueError
        If the value is neither None, nor callable, nor one positive number.

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


def check_positive_number(name: str, value: Any) -> None:
    """Validate an optional positive number that cannot be a schedule.

    Raises
    ------
    ValueError
        If the value is neither None nor one positive number.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_positive_number
    >>> check_positive_number("friction", None)
    >>> check_positive_number("friction", lambda draw: 1.0)
    Traceback (most recent call last):
    ValueError: friction must be a number. Only step_size= can be a schedule
    """
    check_positive(name, value)
    if callable(value):
        raise ValueError(f"{name} must be a number. Only step_size= can be a schedule")


def check_alternatives(quantity: str, **values: Any) -> None:
    """Validate that at most one of several arguments sets a quantity.

    Raises
    ------
    ValueError
        If more than one of the arguments is not None.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_alternatives
    >>> check_alternatives("the step size", step_size=0.1, learning_rate=0.2)
    Traceback (most recent call last):
    ValueError: step_size= and learning_rate= both set the step size. Pass one of them
    """
    passed = [f"{name}=" for name, value in values.items() if value is not None]
    if len(passed) > 1:
        raise ValueError(f"{' and '.join(passed)} both set {quantity}. Pass one of them")


def check_choice(name: str, value: Any, choices: Iterable[str | bool | None]) -> None:
    """Validate an argument with a finite set of choices.

    Raises
    ------
    ValueError
        If the value is not among the choices.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_choice
    >>> check_choice("splitting", "euler", ("exact", "paper"))
    Traceback (most recent call last):
    ValueError: splitting='euler' is unknown. Choose from ['exact', 'paper']
    """
    choices = list(choices)
    if not isinstance(value, str | bool | np.bool_ | None) or value not in choices:
        raise ValueError(f"{name}={value!r} is unknown. Choose from {choices}")


def check_gradient_noise(gradient_noise: Any) -> None:
    """Validate known variances of the gradient, or the name of an estimator; None is valid.

    Raises
    ------
    ValueError
        If the name is unknown, or a variance is not a finite number of at least 0.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_gradient_noise
    >>> check_gradient_noise("known")
    Traceback (most recent call last):
    ValueError: gradient_noise='known' is unknown. Pass None, a variance, variances or "fisher"
    """
    if gradient_noise is None:
        return
    if isinstance(gradient_noise, str):
        if gradient_noise != "fisher":
            raise ValueError(
                f"gradient_noise={gradient_noise!r} is unknown. Pass None, a variance, variances "
                'or "fisher"'
            )
        return
    variances = np.asarray(gradient_noise)
    if variances.dtype.kind not in "iufO":
        raise ValueError(f"gradient_noise= must be numbers, got {gradient_noise!r}")
    try:
        variances = variances.astype(float)
    except (TypeError, ValueError):
        raise ValueError(f"gradient_noise= must be numbers, got {gradient_noise!r}") from None
    if not np.all((variances >= 0) & np.isfinite(variances)):
        raise ValueError("gradient_noise= is a variance and must not be negative, NaN or infinite")


def check_tune_temperature(temperature: Any) -> None:
    """Validate the kinetic temperature at the start of tuning; None is valid.

    Raises
    ------
    ValueError
        If it is not a number, below 1 or not finite.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_tune_temperature
    >>> check_tune_temperature(0.5)
    Traceback (most recent call last):
    ValueError: tune_temperature must be a finite number of at least 1, got 0.5
    """
    if temperature is None:
        return
    if not _is_number(temperature) or not 1.0 <= temperature < math.inf:
        raise ValueError(
            f"tune_temperature must be a finite number of at least 1, got {temperature!r}"
        )


def check_trajectories(name: str, step_size: Any, n_steps: Any, target_accept: Any) -> None:
    """Validate the arguments of Hamiltonian trajectories; see `pymc_geodesic.GMC`.

    Raises
    ------
    ValueError
        If a value is invalid, or the step size a schedule.
    """
    check_positive("step_size", step_size)
    check_count("n_steps", n_steps)
    check_fraction("target_accept", target_accept)
    if callable(step_size):
        raise ValueError(f"step_size= of {name} must be a number and not a schedule")


def check_compile_kwargs(compile_kwargs: Any) -> None:
    """Validate the keyword arguments of the compiler; None is valid.

    Raises
    ------
    ValueError
        If they are not a mapping.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_compile_kwargs
    >>> check_compile_kwargs("CVM")
    Traceback (most recent call last):
    ValueError: compile_kwargs='CVM' is not a dictionary. Pass, for example, {"mode": "CVM"}
    """
    if not isinstance(compile_kwargs, Mapping | None):
        raise ValueError(
            f"compile_kwargs={compile_kwargs!r} is not a dictionary. Pass, for example, "
            '{"mode": "CVM"}'
        )


def check_row_blocks(batches: Any) -> None:
    """Validate the iterable of row blocks; None is valid.

    Raises
    ------
    ValueError
        If it is not iterable, or if it is a path or a data frame.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_row_blocks
    >>> check_row_blocks(100)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: batches=100 is not an iterable of blocks of rows. Use batch_size= for ...
    """
    if batches is not None and not isinstance(batches, Iterable):
        raise ValueError(
            f"batches={batches!r} is not an iterable of blocks of rows. Use batch_size= for the "
            "number of rows of a minibatch"
        )
    if isinstance(batches, str | os.PathLike) or hasattr(batches, "columns"):
        raise ValueError(
            f"batches= is a {type(batches).__name__}. For the columns of Parquet files or of a "
            "Dask data frame pass datasets.table_blocks(source, like=sample), where sample is the "
            "data frame with which the model was built"
        )


def plain_number(value: Any) -> Any:
    """Convert a number to a float; return None and schedules unchanged.

    Compiled code needs arrays of floats, and products with other numbers may have another type.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from pymc_geodesic.arguments import plain_number
    >>> plain_number(Fraction(1, 4)), plain_number(None)
    (0.25, None)
    """
    return value if value is None or callable(value) else float(value)


def check_fraction(name: str, value: Any) -> None:
    """Validate a number between zero and one.

    Raises
    ------
    ValueError
        If the value is not a number in (0, 1).

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_fraction
    >>> check_fraction("target_accept", 80)
    Traceback (most recent call last):
    ValueError: target_accept must lie between 0 and 1, got 80
    """
    if not _is_number(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


def _has_name(each: Any) -> bool:
    return isinstance(each, str) or isinstance(getattr(each, "name", None), str)


def check_containers(names: Any) -> None:
    """Validate ``minibatch=``: a name or variable, a sequence of different ones, or None.

    Raises
    ------
    ValueError
        For another type, an empty sequence, or a name that occurs twice.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_containers
    >>> check_containers(["X", "y", "X"])
    Traceback (most recent call last):
    ValueError: minibatch= names 'X' twice. Name every container once
    """
    if names is None or _has_name(names):
        return
    hint = (
        'minibatch= must be names of pm.Data containers, such as ["X", "y"], an observed variable '
        "or a dimension"
    )
    if not isinstance(names, Iterable):
        raise ValueError(f"{hint}, got {names!r}")
    seen: list[Any] = []
    for name in names:
        if not _has_name(name):
            remedy = "Put the rows into a container, and pass its name"
            raise ValueError(f"{hint}, got a {type(name).__name__}. {remedy}")
        if name in seen:
            raise ValueError(f"minibatch= names {name!r} twice. Name every container once")
        seen.append(name)
    if not seen:
        raise ValueError(f"{hint}, got no name. Omit minibatch= to use all rows")


def check_count(name: str, value: Any) -> None:
    """Validate an optional positive integer.

    Raises
    ------
    ValueError
        If the value is neither None nor an integer of at least 1.

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


def check_batch_size(
    batch_size: Any, n_rows: int, rows: str = "rows", *, shape: Sequence[int] = ()
) -> None:
    """Validate an optional batch size.

    Parameters
    ----------
    batch_size : int or None
    n_rows : int
    rows : str
        Description of the rows.
    shape : sequence of int
        Shape of the data, to recognize data whose rows are columns.

    Raises
    ------
    ValueError
        If it is not an integer from 1 to the number of rows.

    Examples
    --------
    >>> from pymc_geodesic.arguments import check_batch_size
    >>> check_batch_size(20, 30)
    >>> check_batch_size(40, 30)
    Traceback (most recent call last):
    ValueError: batch_size=40 exceeds the 30 rows. Use batch_size <= 30, or omit batch_size=
    """
    check_count("batch_size", batch_size)
    if batch_size is None or batch_size <= n_rows:
        return
    is_transposed = max(shape[1:], default=0) >= batch_size
    raise ValueError(
        f"batch_size={batch_size} exceeds the {n_rows} {rows}. Use batch_size <= {n_rows}, or omit "
        "batch_size="
        + (f". Rows are the first axis of the shape {shape}: transpose it" if is_transposed else "")
    )


def check_integers(**limits: tuple[Any, int]) -> None:
    """Validate integers with a lower bound.

    Parameters
    ----------
    **limits : tuple of (value, int)
        Value and lower bound of each argument, by its name.

    Raises
    ------
    ValueError
        If a value is not an integer, or below its bound.

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
    """Evaluate and validate a step size schedule.

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
            f"the schedule step_size= returned {step_size} at draw {draw}, which is not positive. "
            "Return positive numbers"
        )
    return float(step_size)


METRICS = ("auto", "dense", "diag")
"""Metrics of all steps that adapt their coordinates."""


def checked_metric(metric: Any, names: Sequence[str] = METRICS) -> str | None:
    """Validate the name of a metric.

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
    ValueError: metric='full' is unknown. Choose "auto", "dense", "diag" or None
    """
    if metric is None or (isinstance(metric, str) and metric in names):
        return metric
    choices = ", ".join(f'"{name}"' for name in names)
    raise ValueError(f"metric={metric!r} is unknown. Choose {choices} or None")


def checked_metric_or_covariance(
    metric: Any, names: Sequence[str] = METRICS
) -> str | np.ndarray | None:
    """Validate the name of a metric, or a covariance.

    Returns
    -------
    str, ndarray or None

    Raises
    ------
    ValueError
        If the name is unknown, or the array is neither a covariance matrix nor variances.

    Examples
    --------
    >>> from pymc_geodesic.arguments import checked_metric_or_covariance
    >>> checked_metric_or_covariance([1.0, 4.0])
    array([1., 4.])
    >>> checked_metric_or_covariance([[1.0, 2.0], [2.0, 1.0]])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: metric= is not positive definite: ...
    """
    if metric is None or isinstance(metric, str):
        return checked_metric(metric, names)
    try:
        covariance = np.array(metric, dtype=float)
    except (TypeError, ValueError):
        return checked_metric(metric, names)
    shape = covariance.shape
    if covariance.ndim not in (1, 2) or shape[0] != shape[-1]:
        raise ValueError(
            f"metric= has shape {shape}. Pass d variances or a d × d covariance matrix"
        )
    if not np.isfinite(covariance).all():
        raise ValueError("metric= contains NaN or infinity. Pass finite variances and covariances")
    variances = covariance if covariance.ndim == 1 else np.diag(covariance)
    if not variances.min(initial=np.inf) > 0.0:
        raise ValueError(
            f"metric= has the variance {variances.min():.3g} of coordinate {variances.argmin()}. "
            "Pass positive variances"
        )
    if covariance.ndim == 1:
        return covariance
    scales = np.sqrt(np.outer(variances, variances))
    if not np.all(np.abs(covariance - covariance.T) <= _ASYMMETRY * scales):
        raise ValueError(
            "metric= is not symmetric. Pass a symmetric covariance, or (m + m.T) / 2 to remove "
            "rounding errors"
        )
    smallest = np.linalg.eigvalsh(covariance / scales).min(initial=np.inf)
    if not smallest > _SINGULAR:
        raise ValueError(
            "metric= is not positive definite: the correlations have an eigenvalue of "
            f"{smallest:.3g}. Estimate it from more draws than coordinates, or pass the variances"
        )
    return covariance


def checked_control_variates(order: Any) -> str | int:
    """Validate the order of control variates.

    Returns
    -------
    {"auto", 0, 1, 2}
        0 for none.

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
    ValueError: control_variates=True is unknown. Choose "auto", 1, 2 or False
    """
    if isinstance(order, str) and order == "auto":
        return order
    if order is False:
        return 0
    # True equals 1, and is not an order
    if _is_number(order) and order in (1, 2):
        return int(order)
    raise ValueError(f'control_variates={order!r} is unknown. Choose "auto", 1, 2 or False')
