"""Every step method, every route of the data, every kind of variable: right, or refused.

Each run samples several kinds of variable at once with the settings that tuning chooses, one chain,
one seed, and compares mean and standard deviation of every coordinate and of every principal axis
of each kind with exact ones. What a step does not support is refused when it is made.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import sparse

import pymc_geodesic as pg
from tests.steps.known_posteriors import (
    COMPACT,
    EXPANDED,
    EXPANDED_AND_LOG_NORMAL,
    FLAT,
    N_ROWS,
    Child,
    Kind,
    LogNormal,
    Probabilities,
    Rate,
    RateOfRate,
    Sibling,
    data_of,
    model_of,
)
from tests.steps.runs import INTERPRETED, sample

MEAN_BOUND = 0.1
"""In standard deviations of the posterior."""
SD_BOUND = 0.05
"""Relative."""
LARGEST_ERROR = 1.0 / 3.0
"""Monte Carlo error in units of the bound, from which a run says nothing and fails."""

BATCH = 25
LONG_BLOCKS = (50, 50, 20)
SHORT_BLOCKS = (30, 24, 36, 12, 18)

METROPOLIS = ("GMC", "SubgradientHMC")
MOMENTUM = ("SGGMC", "gSGNHT", "SSGNHT")
LANGEVIN = ("SGLD", "SSGLD")
SIMPLEX = ("SCIR", "SGRLD")
STEPS = (*METROPOLIS, *MOMENTUM, *LANGEVIN, *SIMPLEX)

IN_MEMORY = ("full", "sparse")
ROUTES = (
    "full",
    "pm.Minibatch",
    "minibatch",
    "batches, batch_size",
    "batches",
    "sparse",
    "sparse batches",
)


class Blocks:
    """Blocks of rows in the order of the data, as a loader yields them."""

    total_size = N_ROWS

    def __init__(self, data: Mapping[str, np.ndarray], lengths: tuple[int, ...], sparse_names):
        self.data, self.lengths, self.sparse_names = data, lengths, sparse_names

    def __iter__(self) -> Iterator[tuple]:
        begin = 0
        for length in self.lengths:
            yield tuple(
                sparse.csr_array(array[begin : begin + length].astype(float))
                if name in self.sparse_names
                else array[begin : begin + length]
                for name, array in self.data.items()
            )
            begin += length


@dataclass(frozen=True)
class Group:
    """Kinds of variable that one run samples, and which of them are another step's."""

    kinds: tuple[Kind, ...]

    @property
    def beside_nuts(self) -> list[str]:
        return [kind.parent for kind in self.kinds if hasattr(kind, "parent")]


GROUPS = {
    "flat": Group(FLAT),
    "compact": Group(COMPACT),
    "expanded": Group(EXPANDED),
    "expanded, log-normal": Group(EXPANDED_AND_LOG_NORMAL),
    "child": Group((Child(),)),
    "sibling": Group((Sibling(),)),
    "rate": Group((RateOfRate(),)),
}
BESIDE_NUTS = ("child", "sibling", "rate")


def is_subsampled(step: str, route: str) -> bool:
    """Whether the step sees minibatches."""
    return route != "full" and step not in METROPOLIS


def prepare(step: str, route: str, kinds: tuple[Kind, ...], **kwargs: Any) -> tuple[pm.Model, Any]:
    """Model and step method of a route."""
    data = data_of(kinds)
    as_sparse = route.startswith("sparse")
    if route == "pm.Minibatch":
        model = model_of(kinds, data, minibatch=BATCH)
    elif "batches" in route:
        # the data themselves never enter the model
        model = model_of(kinds, {n: np.zeros_like(a[:1]) for n, a in data.items()}, as_sparse=as_sparse)
    else:
        model = model_of(kinds, data, as_sparse=as_sparse)
    rows: dict[str, Any] = {}
    if route == "minibatch" or (route == "sparse" and step not in METROPOLIS):
        rows = {"minibatch": list(data), "batch_size": BATCH}
    elif "batches" in route:
        sparse_names = [name for kind in kinds for name in kind.sparse] if as_sparse else []
        rows = {"minibatch": list(data)}
        rows["batches"] = Blocks(data, SHORT_BLOCKS if route == "batches" else LONG_BLOCKS, sparse_names)
        if route != "batches":
            rows["batch_size"] = BATCH
    names = [
        name
        for kind in kinds
        for name in kind.names
        if step != "SGRLD" or not isinstance(kind, LogNormal)
    ]
    with model:
        made = getattr(pg, step)([model[name] for name in names], **rows, **kwargs)
        others = [kind.parent for kind in kinds if hasattr(kind, "parent")]
        if others:
            return model, [made, pm.NUTS([model[name] for name in others])]
    return model, made


@dataclass(frozen=True)
class Found:
    """Worst errors of one kind: value, Monte Carlo error, both in units of the bound."""

    names: str
    mean: tuple[float, float]
    sd: tuple[float, float]

    @property
    def passes(self) -> bool:
        return all(
            abs(error) <= 1.0 and monte_carlo <= LARGEST_ERROR
            for error, monte_carlo in (self.mean, self.sd)
        )

    def __str__(self) -> str:
        mean, sd = self.mean, self.sd
        return (
            f"{self.names:>12}: mean {MEAN_BOUND * mean[0]:+.3f} ± {MEAN_BOUND * mean[1]:.3f} sd, "
            f"sd {100 * SD_BOUND * sd[0]:+.1f} ± {100 * SD_BOUND * sd[1]:.1f} %"
            + ("" if self.passes else "   <--")
        )


def compare(idata: Any, names: str, exact: Any) -> Found:
    """Worst coordinate or principal axis of the draws of some variables."""
    draws = np.concatenate(
        [
            idata.posterior[name].values[0].reshape(idata.posterior.sizes["draw"], -1)
            for name in names.split()
        ],
        axis=1,
    )
    variances, axes = np.linalg.eigh(exact.covariance)
    axes = axes[:, variances > 1e-9 * variances.max()]
    directions = np.concatenate([np.eye(len(exact.mean)), axes.T])
    worst_mean = worst_sd = (0.0, 0.0)
    for direction in directions:
        sd = np.sqrt(direction @ exact.covariance @ direction)
        standard = (draws - exact.mean) @ direction / sd
        squares = standard**2
        mean_error = standard.std() / np.sqrt(float(az.ess(standard[None])))
        sd_error = 0.5 * squares.std() / np.sqrt(float(az.ess(squares[None])))
        worst_mean = max(
            worst_mean, (standard.mean() / MEAN_BOUND, mean_error / MEAN_BOUND), key=_size
        )
        worst_sd = max(
            worst_sd, ((standard.std() - 1.0) / SD_BOUND, sd_error / SD_BOUND), key=_size
        )
    return Found(names, worst_mean, worst_sd)


def _size(found: tuple[float, float]) -> float:
    return max(abs(found[0]), found[1] / LARGEST_ERROR)


def run(step: str, route: str, group: str) -> tuple[list[Found], float]:
    """Sample once with what tuning chooses."""
    kinds = GROUPS[group].kinds
    inner = {} if step in METROPOLIS else {"n_steps": 50}
    model, made = prepare(step, route, kinds, **inner)
    began = time.perf_counter()
    idata = sample(model, made, draws=LENGTHS.get((step, group), LENGTHS[step]), tune=1000)
    data = data_of(kinds)
    found = [
        compare(idata, names, exact)
        for kind in kinds
        for names, exact in kind.exact(data).items()
    ]
    return found, time.perf_counter() - began


LENGTHS: dict[Any, int] = dict.fromkeys(STEPS, 20_000)


def supported_groups(step: str) -> tuple[str, ...]:
    if step == "SCIR":
        return ("expanded, log-normal", "rate")
    if step == "SGRLD":
        return ("expanded", "rate")
    return ("flat", "compact", *BESIDE_NUTS)


def supported(step: str, route: str, group: str) -> bool:
    """Whether a step runs, or else is refused."""
    if step in METROPOLIS and route not in IN_MEMORY:
        return False
    if group in BESIDE_NUTS and route == "pm.Minibatch":
        return False
    return not (group == "sibling" and "batches" in route)


RUNS = [
    (step, route, group)
    for step in STEPS
    for route in ROUTES
    for group in supported_groups(step)
    if supported(step, route, group) and not (group in BESIDE_NUTS and route.startswith("sparse"))
]
