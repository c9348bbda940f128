"""A run with each warning about draws, and the changes that the warnings recommend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import pymc_geodesic as pg
from benchmarks.remedy_models import (
    Problem,
    full_data,
    funnel,
    funnel_as_product,
    local_latents,
    one_wide,
    orthogonal_matrix,
    proportions,
    rare_indicators,
    regression,
    right_total_size,
    sorted_rows,
    wrong_total_size,
)
from pymc_geodesic.datasets import row_blocks


@dataclass(frozen=True)
class Attempt:
    """Arguments of a run.

    Attributes
    ----------
    change : str
        Text of the table.
    step : callable
        Problem → step method, within the model.
    problem : callable, optional
        Another problem than that of the case: the model written in another way.
    arguments : dict
        Arguments of `pymc.sample`. ``{"initvals": None}`` starts at `Problem.start`.
    """

    change: str
    step: Callable[[Problem], Any]
    problem: Callable[[], Problem] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A warning, a run that has it, and remedies.

    Attributes
    ----------
    name : str
    warning : str
        Part of the text of the warning.
    problem : callable
    before : Attempt
    remedies : tuple of Attempt
    seed : int
    """

    name: str
    warning: str
    problem: Callable[[], Problem]
    before: Attempt
    remedies: tuple[Attempt, ...]
    seed: int = 1


def _rows(problem: Problem, batch_size: int = 100) -> dict[str, Any]:
    return {"minibatch": problem.rows, "batch_size": batch_size}


def _with(step: Callable[..., Any], batch_size: int = 100, **given: Any) -> Callable[..., Any]:
    """Step method with minibatches."""
    return lambda problem: step(**_rows(problem, batch_size), **given)


def _plain(step: Callable[..., Any], **given: Any) -> Callable[..., Any]:
    """Step method with all rows."""
    return lambda problem: step(**given)


def _fixed(
    step_size: float, friction: float, *, batch_size: int = 1000, **given: Any
) -> Callable[[Problem], Any]:
    """`SGGMC` with a step size and friction."""
    return _with(pg.SGGMC, batch_size, step_size=step_size, friction=friction, **given)


def _ssgnht(
    step_size: float, diffusion: float, *, batch_size: int = 100
) -> Callable[[Problem], Any]:
    """`SSGNHT` with a step size and diffusion."""
    return _with(pg.SSGNHT, batch_size, step_size=step_size, diffusion=diffusion)


def _local(**given: Any) -> Callable[[Problem], Any]:
    """Step with local variables, from 60 of 120 rows unless another number is given."""

    def make(problem: Problem) -> Any:
        model = problem.model
        return pg.SGGMC(
            [model["m"]], local=[model["z"]], minibatch=["y"], local_tune=5, tune_temperature=1.1,
            **{"batch_size": 60, **given},
        )  # fmt: skip

    return make


def _stream(stretches: int = 1, *, is_shuffled: bool = False) -> Callable[[Problem], Any]:
    """Step with the rows in blocks of 500."""

    def make(problem: Problem) -> Any:
        y = problem.model["y"].get_value()
        if is_shuffled:
            y = np.random.default_rng(1).permutation(y)
        blocks = row_blocks(y, block_size=500, stretches=stretches)
        return pg.SGGMC(batches=blocks, minibatch=["y"], batch_size=100, total_size=len(y))

    return make


_FAR = {"initvals": {"b": np.full(6, 1000.0)}, "tune": 20}

_WIDE = {"initvals": {"w": np.eye(20)[2] * 300.0}, "tune": 6}

CASES: tuple[Case, ...] = (
    Case(
        "temperature above 1, fixed",
        "The kinetic temperature",
        full_data,
        Attempt("`SGGMC(step_size=0.001, friction=20)`", _fixed(0.001, 20.0)),
        (
            Attempt("both omitted", _with(pg.SGGMC, 1000)),
            Attempt("`step_size=0.0002`", _fixed(0.0002, 20.0)),
            Attempt("`friction=200`", _fixed(0.001, 200.0)),
            Attempt("`batch_size=5000`", _fixed(0.001, 20.0, batch_size=5000)),
            Attempt('`gradient_noise="fisher"`', _fixed(0.001, 20.0, gradient_noise="fisher")),
        ),
    ),
    Case(
        "temperature below 1",
        "The kinetic temperature",
        full_data,
        Attempt(
            "`SGGMC(step_size=0.001, friction=200, gradient_noise=2e5)`",
            _fixed(0.001, 200.0, gradient_noise=2e5),
        ),
        (
            Attempt("all omitted", _with(pg.SGGMC, 1000)),
            Attempt("`gradient_noise=1e5`", _fixed(0.001, 200.0, gradient_noise=1e5)),
            Attempt("`step_size=0.0002`", _fixed(0.0002, 200.0, gradient_noise=2e5)),
            Attempt("`friction=50`", _fixed(0.001, 50.0, gradient_noise=2e5)),
        ),
    ),
    Case(
        "thermostat at its bound",
        "with the thermostat at its bound",
        full_data,
        Attempt("`SSGNHT(step_size=0.005, diffusion=1)`", _ssgnht(0.005, 1.0)),
        (
            Attempt("both omitted", _with(pg.SSGNHT)),
            Attempt("`step_size=0.0001`", _ssgnht(0.0001, 1.0)),
            Attempt("`batch_size=5000`", _ssgnht(0.005, 1.0, batch_size=5000)),
            Attempt(
                "`batch_size=5000, step_size=0.001, diffusion=20`",
                _ssgnht(0.001, 20.0, batch_size=5000),
            ),
        ),
    ),
    Case(
        "Euler's method",
        "The loss of variance by Euler's method",
        full_data,
        Attempt("`SSGNHT(step_size=0.002, diffusion=20)`", _ssgnht(0.002, 20.0, batch_size=1000)),
        (
            Attempt("both omitted", _with(pg.SSGNHT, 1000)),
            Attempt("`step_size=0.0005`", _ssgnht(0.0005, 20.0, batch_size=1000)),
            Attempt("`diffusion=2`", _ssgnht(0.002, 2.0, batch_size=1000)),
            Attempt("`batch_size=5000`", _ssgnht(0.002, 20.0, batch_size=5000)),
        ),
    ),
    Case(
        "variance by minibatch noise",
        "relative increase of the variance by minibatch noise",
        proportions,
        Attempt("`SCIR(step_size=1)`", _with(pg.SCIR, 20, step_size=1.0)),
        (
            Attempt("`step_size` omitted", _with(pg.SCIR, 20)),
            Attempt("`step_size=0.02`", _with(pg.SCIR, 20, step_size=0.02)),
            Attempt("`batch_size=200`", _with(pg.SCIR, 200, step_size=1.0)),
        ),
    ),
    Case(
        "standard deviations with local=",
        "The possible error of the standard deviations",
        local_latents,
        Attempt(
            "`SGGMC(local=..., batch_size=60)`, `tune=200`, `draws=3000`",
            _local(),
            None,
            {"tune": 200, "draws": 3000},
        ),
        (Attempt("`batch_size=120`", _local(batch_size=120), None, {"tune": 200, "draws": 3000}),),
        seed=3,
    ),
    Case(
        "configurational temperature, few tuning draws",
        "onfigurational temperature",
        one_wide,
        Attempt("`SGGMC()`, distant `initvals=`, `tune=6`", _plain(pg.SGGMC), None, _WIDE),
        (
            Attempt("`tune=1000`", _plain(pg.SGGMC), None, _WIDE | {"tune": 1000}),
            Attempt("`GMC()`, `tune=1000`", _plain(pg.GMC), None, _WIDE | {"tune": 1000}),
        ),
    ),
    Case(
        "mean gradient",
        "The mean gradient of",
        one_wide,
        Attempt(
            "`SGGMC(step_size=0.2, friction=1)`, distant `initvals=`",
            _plain(pg.SGGMC, step_size=0.2, friction=1.0),
            None,
            _WIDE | {"tune": 1000},
        ),
        (
            Attempt("both omitted", _plain(pg.SGGMC), None, _WIDE | {"tune": 1000}),
            Attempt(
                "`tune=20000`",
                _plain(pg.SGGMC, step_size=0.2, friction=1.0),
                None,
                _WIDE | {"tune": 20_000},
            ),
            Attempt("`GMC()`", _plain(pg.GMC), None, _WIDE | {"tune": 1000}),
        ),
    ),
    Case(
        "configurational temperature",
        "onfigurational temperature",
        full_data,
        Attempt("`SGLD(step_size=0.015)`", _plain(pg.SGLD, step_size=0.015)),
        (
            Attempt("`step_size` omitted", _plain(pg.SGLD)),
            Attempt("`step_size=0.004`", _plain(pg.SGLD, step_size=0.004)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "possible error of the variance",
        "The possible error of the variance",
        rare_indicators,
        Attempt("`gSGNHT(batch_size=25)`", _with(pg.gSGNHT, 25)),
        (
            Attempt("`tune=4000`", _with(pg.gSGNHT, 25), None, {"tune": 4000}),
            Attempt("`batch_size=500`", _with(pg.gSGNHT, 500)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "funnel, centered",
        "a funnel",
        funnel,
        Attempt('`SGGMC(metric="dense")`', _plain(pg.SGGMC, metric="dense")),
        (
            Attempt("non-centered", _plain(pg.SGGMC, metric="dense"), funnel_as_product),
            Attempt("`metric=` omitted", _plain(pg.SGGMC)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "few effective draws, fixed",
        "The effective sample size",
        full_data,
        Attempt("`SGGMC(step_size=0.0001, friction=20)`", _fixed(0.0001, 20.0)),
        (
            Attempt("both omitted", _with(pg.SGGMC, 1000)),
            Attempt("`GMC()`", _plain(pg.GMC)),
        ),
    ),
    Case(
        "few effective draws",
        "The effective sample size",
        regression,
        Attempt(
            "`GMC(step_size=0.0002, n_steps=10)`", _plain(pg.GMC, step_size=0.0002, n_steps=10)
        ),
        (
            Attempt("both omitted", _plain(pg.GMC)),
            Attempt("`n_steps=100`", _plain(pg.GMC, step_size=0.0002, n_steps=100)),
            Attempt(
                "`draws=10000`",
                _plain(pg.GMC, step_size=0.0002, n_steps=10),
                None,
                {"draws": 10_000},
            ),
        ),
    ),
    Case(
        "acceptance",
        "The mean acceptance rate",
        regression,
        Attempt("`GMC(step_size=0.0027)`", _plain(pg.GMC, step_size=0.0027)),
        (
            Attempt("`step_size` omitted", _plain(pg.GMC)),
            Attempt("`step_size=0.001`", _plain(pg.GMC, step_size=0.001)),
        ),
    ),
    Case(
        "tune=0",
        "tune=0 skips the warm-up",
        full_data,
        Attempt(
            "`SSGNHT(batch_size=500)`, `tune=0` (error)", _with(pg.SSGNHT, 500), None, {"tune": 0}
        ),
        (Attempt("`tune=1000`", _with(pg.SSGNHT, 500)),),
    ),
    Case(
        "total_size",
        "does not match the 10000 rows",
        wrong_total_size,
        Attempt("`total_size=500`", _plain(pg.SGGMC)),
        (
            Attempt("`total_size=10000`", _plain(pg.SGGMC), right_total_size),
            Attempt("`pm.Data` and `batch_size=100`", _with(pg.SGGMC), full_data),
        ),
    ),
    Case(
        "rows not in random order",
        "rows of batches= are not in random order",
        sorted_rows,
        Attempt("`row_blocks(y, block_size=500)`", _stream()),
        (
            Attempt("`stretches=20`", _stream(20)),
            Attempt("rows permuted", _stream(is_shuffled=True)),
        ),
    ),
    Case(
        "orthogonal matrix",
        "never changes the sign of its determinant",
        orthogonal_matrix,
        Attempt("`SGGMC()`", _plain(pg.SGGMC)),
        (Attempt("`GMC()`", _plain(pg.GMC)),),
    ),
)
"""Warnings about draws, in the order of the page on failure modes."""
