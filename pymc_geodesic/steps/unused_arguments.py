"""Checks that every argument of a step method has an effect.

An argument that is ignored in some combination raises an error there, unless it has its default
value.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_geodesic.adaptation.eligibility import Ineligibility
from pymc_geodesic.arguments import listed
from pymc_geodesic.manifolds import Product

_OF_STEP_SIZE = ("step_size=", "learning_rate=")
_OF_FRICTION = ("friction=", "momentum_decay=", "diffusion=")


def check_defaults(step_class: type, reason: str, **values: Any) -> None:
    """Check that arguments without effect have their default values.

    Parameters
    ----------
    step_class : type
        Step whose constructor defines the default values.
    reason : str
        Condition in which the arguments have no effect.
    **values
        Value of each argument, by its name.

    Raises
    ------
    ValueError
        If a value differs from the default.

    Examples
    --------
    >>> from pymc_geodesic import SGGMC
    >>> from pymc_geodesic.steps.unused_arguments import check_defaults
    >>> check_defaults(SGGMC, "without local=", local_draws=20, local_tune=5)
    Traceback (most recent call last):
    ValueError: local_tune= has no effect without local=. Omit it
    """
    parameters = inspect.signature(step_class).parameters
    for name, value in values.items():
        if value != parameters[name].default:
            raise ValueError(f"{name}= has no effect {reason}. Omit it")


def specified_arguments(**values: Any) -> list[str]:
    """List the arguments that are not None, with which coordinates are not adapted.

    Examples
    --------
    >>> from pymc_geodesic.steps.unused_arguments import specified_arguments
    >>> specified_arguments(step_size=0.1, friction=None, local=["theta"])
    ['step_size=', 'local=']
    """
    return [f"{name}=" for name, value in values.items() if value is not None]


def check_adaptation_arguments(
    specified: Sequence[str],
    *,
    metric: str | np.ndarray | None,
    control_variates: str | int = "auto",
    tune_temperature: float | None = None,
) -> None:
    """Check that arguments of the adaptation have an effect with the other arguments.

    Parameters
    ----------
    specified : sequence of str
        Arguments with which coordinates are not adapted; see `specified_arguments`.
    metric : str, ndarray or None
        ``"auto"`` and None are valid with any arguments.
    control_variates : {"auto", 0, 1, 2}
        ``"auto"`` and 0 are valid with any arguments.
    tune_temperature : float, optional
        It has an effect if the step size or the friction is adapted.

    Raises
    ------
    ValueError
        For an argument without effect.

    Examples
    --------
    >>> from pymc_geodesic.steps.unused_arguments import check_adaptation_arguments
    >>> check_adaptation_arguments(["step_size="], metric="dense")
    Traceback (most recent call last):
    ValueError: metric= has no effect with step_size=. Omit metric=, or omit step_size=
    """
    if specified and _is_chosen(metric):
        raise _without_effect("metric=", specified)
    if control_variates in (1, 2):
        if specified:
            raise _without_effect(f"control_variates={control_variates}", specified)
        if metric is None:
            raise _without_effect(f"control_variates={control_variates}", ["metric=None"])
    of_dynamics = [each for each in specified if each in _OF_STEP_SIZE + _OF_FRICTION]
    if tune_temperature is not None and len(of_dynamics) > 1:
        raise _without_effect("tune_temperature=", of_dynamics)


def _without_effect(argument: str, others: Sequence[str]) -> ValueError:
    with_these = listed(others)
    return ValueError(
        f"{argument} has no effect with {with_these}. Omit {argument.split('=')[0]}=, or omit "
        f"{with_these}"
    )


def _is_chosen(metric: str | np.ndarray | None) -> bool:
    """Whether a metric is neither the default nor None."""
    return isinstance(metric, np.ndarray) or metric not in (None, "auto")


def check_metric_has_coordinates(metric: str | np.ndarray | None, product: Product) -> None:
    """Check that there are Euclidean variables that a metric whitens.

    Raises
    ------
    ValueError
        For a metric by name without Euclidean variables; arrays have the wrong size then.
    """
    has_coordinates = any(manifold.is_flat for _, manifold, _ in product.components)
    if isinstance(metric, str) and metric != "auto" and not has_coordinates:
        raise ValueError("metric= has no effect without Euclidean variables. Omit it")


def check_eligible_arguments(
    ineligibility: Ineligibility, *, metric: str | np.ndarray | None, control_variates: str | int
) -> None:
    """Check arguments of the adaptation if data or manifolds do not allow it.

    Parameters
    ----------
    ineligibility : Ineligibility
        Reason why coordinates are not adapted.
    metric, control_variates
        See `check_adaptation_arguments`.

    Raises
    ------
    ValueError
        For an argument without effect.
    """
    argument = ""
    if control_variates in (1, 2):
        argument = f"control_variates={control_variates}"
    if _is_chosen(metric):
        argument = "metric="
    if argument:
        remedy = f". {ineligibility.remedy}, or omit it" if ineligibility.remedy else ". Omit it"
        raise ValueError(f"{argument} has no effect: {ineligibility.reason}{remedy}")


def check_minibatch_arguments(
    *,
    has_minibatches: bool,
    learning_rate: float | None,
    tune_temperature: float | None,
    noise_is_known: bool,
) -> None:
    """Check arguments that have no effect on the gradient of all rows.

    Parameters
    ----------
    has_minibatches : bool
    learning_rate, tune_temperature : float, optional
        See `pymc_geodesic.SGGMC`.
    noise_is_known : bool
        Whether the user specified the variance of the gradient.

    Raises
    ------
    ValueError
        For an argument without effect.
    """
    if has_minibatches:
        return
    if learning_rate is not None:
        raise ValueError(
            "learning_rate= needs minibatches, which define N in step_size = sqrt(learning_rate / "
            "N). Set batch_size=, or set step_size= instead"
        )
    if tune_temperature is not None and not noise_is_known:
        raise ValueError(
            "tune_temperature= has no effect without minibatches, whose gradient noise raises the "
            "temperature. Set batch_size=, or omit it"
        )
