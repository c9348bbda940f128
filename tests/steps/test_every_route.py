"""All combinations of step methods, data routes and kinds of variables: exact moments or an error.

Each run samples several kinds of variable at once with the settings that tuning chooses, one chain,
one seed, and compares mean and standard deviation of every coordinate and of every principal axis
of each kind with exact ones. Unsupported combinations raise an error when the step is created.

The bounds hold for all steps alike, and leave room for what tuning allows: 2 % of the variance
for the gradient noise of SGGMC, ε²V/(2Cε), and gSGNHT; 5 % for SGLD (h²V/4 + h²λ/4), SCIR
(tanh(h/2) Var[â]) and SGRLD; Cε/2 = 2.5 % that Euler's method takes away in SSGNHT.
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
    placeholders,
)
from tests.steps.runs import INTERPRETED, sample

pytestmark = pytest.mark.slow

MEAN_BOUND = 0.1
"""In standard deviations of the posterior."""
SD_BOUND = 0.05
"""Relative."""
LARGEST_ERROR = 1.0 / 3.0
"""Monte Carlo error in units of the bound above which a run is uninformative and fails."""

BATCH = 25
LONG_BLOCKS = (50, 50, 20)
SHORT_BLOCKS = (30, 24, 36, 12, 18)

METROPOLIS = ("GMC", "SubgradientHMC")
MOMENTUM = ("SGGMC", "gSGNHT", "SSGNHT")
LANGEVIN = ("SGLD",)
SIMPLEX = ("SCIR", "SGRLD")
STEPS = (*METROPOLIS, *MOMENTUM, *LANGEVIN, *SIMPLEX)

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


GROUPS = {
    "flat": Group(FLAT),
    "compact": Group(COMPACT),
    "conjugate": Group((Probabilities(), Rate(), LogNormal())),
    "probabilities": Group((Probabilities(),)),
    "counts": Group((Rate(),)),
    "child": Group((Child(),)),
    "sibling": Group((Sibling(),)),
    "rate": Group((RateOfRate(),)),
}
BESIDE_NUTS = ("child", "sibling", "rate")


def prepare(step: str, route: str, kinds: tuple[Kind, ...], **kwargs: Any) -> tuple[pm.Model, Any]:
    """Model and step method of a route."""
    data = data_of(kinds)
    as_sparse = route.startswith("sparse")
    if as_sparse:
        data.pop("n", None)  # the numbers of trials, which the sparse counts do not need
    if route == "pm.Minibatch":
        model = model_of(kinds, data, minibatch=BATCH)
    elif "batches" in route:
        # the data themselves never enter the model
        model = model_of(kinds, placeholders(data), as_sparse=as_sparse)
    else:
        model = model_of(kinds, data, as_sparse=as_sparse)
    rows: dict[str, Any] = {}
    if route == "minibatch" or (route == "sparse" and step not in METROPOLIS):
        rows = {"minibatch": list(data), "batch_size": BATCH}
    elif "batches" in route:
        sparse_names = [name for kind in kinds for name in kind.sparse] if as_sparse else []
        rows = {"minibatch": list(data)}
        rows["batches"] = Blocks(
            data, SHORT_BLOCKS if route == "batches" else LONG_BLOCKS, sparse_names
        )
        if route != "batches":
            rows["batch_size"] = BATCH
    names = [name for kind in kinds for name in kind.names]
    with model:
        made = getattr(pg, step)([model[name] for name in names], **rows, **kwargs)
        others = [kind.parent for kind in kinds if kind.parent]
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
    axes = axes[:, variances > 0.1 * variances.max()]
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
    """Sample once with tuned parameters."""
    kinds = GROUPS[group].kinds
    inner = {} if step in METROPOLIS else {"n_steps": 50 if step not in SIMPLEX else 20}
    model, made = prepare(step, route, kinds, **inner)
    began = time.perf_counter()
    idata = sample(model, made, draws=LENGTHS[step], tune=1000)
    data = data_of(kinds)
    found = [
        compare(idata, names, exact) for kind in kinds for names, exact in kind.exact(data).items()
    ]
    return found, time.perf_counter() - began


LENGTHS = (
    dict.fromkeys(METROPOLIS, 50_000)
    | dict.fromkeys(MOMENTUM + LANGEVIN, 20_000)
    | dict.fromkeys(SIMPLEX, 15_000)
)
"""Draws, whose Monte Carlo error is well below the bounds."""


def groups_of(step: str) -> tuple[str, ...]:
    """Groups of kinds that a step can sample by some route."""
    if step == "SCIR":
        return ("conjugate", "rate")
    if step == "SGRLD":
        return ("probabilities", "counts", "rate")
    return ("flat", "compact", *BESIDE_NUTS)


def expected_error(step: str, route: str, kind: Kind) -> str | None:
    """Expected message if a step raises an error; None if it samples."""
    families = {"SCIR": (Probabilities, Rate, RateOfRate, LogNormal)}
    families["SGRLD"] = families["SCIR"][:-1]
    if not isinstance(kind, families.get(step, Kind)):
        return f"{step} samples .* variables, but '{kind.names[0]}' has another"
    if step in METROPOLIS and ("batches" in route or route == "minibatch"):
        return "unexpected keyword argument"
    if step in METROPOLIS and route == "pm.Minibatch":
        return "the model has a pm.Minibatch, but"
    if kind.parent and route == "pm.Minibatch":
        return rf"\['{kind.parent}'\] would be sampled by another step method.*pm.Minibatch"
    if isinstance(kind, Sibling) and "batches" in route:
        return rf"\['{kind.parent}'\] would be sampled by another step method.*batches="
    return None


EVERY_KIND = (*FLAT, *COMPACT, Child(), Sibling(), RateOfRate())
COMBINATIONS = [
    (step, route, kind)
    for step in STEPS
    for route in ROUTES
    for kind in EVERY_KIND
    if kind.sparse or "sparse" not in route
]
UNSUPPORTED = [combination for combination in COMBINATIONS if expected_error(*combination)]
RUNS = [
    (step, route, group)
    for step in STEPS
    for route in ROUTES
    for group in groups_of(step)
    if (members := [k for k in GROUPS[group].kinds if k.sparse or "sparse" not in route])
    and not any(expected_error(step, route, kind) for kind in members)
]


@pytest.mark.parametrize(
    ("step", "route", "group"),
    RUNS,
    ids=str,
)
def test_posterior(step, route, group):
    found, seconds = run(step, route, group)
    report = f"{step}, {route}, {group} ({seconds:.0f} s)\n" + "\n".join(map(str, found))
    print(f"\n{report}")
    assert all(each.passes for each in found), report


def begin(step: str, route: str, kind: Kind) -> None:
    """Create a step, and begin a chain if there are several steps."""
    model, made = prepare(step, route, (kind,), compile_kwargs=INTERPRETED)
    if isinstance(made, list):
        sample(model, made, draws=1, tune=1)


@pytest.mark.parametrize("step", STEPS)
def test_unsupported_combinations_raise(step):
    """A step raises an error for unsupported combinations when it is created.

    Errors about variables of other steps are raised when all steps begin a chain.
    """
    for _, route, kind in [each for each in UNSUPPORTED if each[0] == step]:
        with pytest.raises((TypeError, ValueError), match=expected_error(step, route, kind)):
            begin(step, route, kind)


def test_every_combination_runs_or_raises():
    runs = {
        (step, route, type(kind))
        for step, route, group in RUNS
        for kind in GROUPS[group].kinds
        if kind.sparse or "sparse" not in route
    }
    unsupported = {(step, route, type(kind)) for step, route, kind in UNSUPPORTED}
    every = {(step, route, type(kind)) for step, route, kind in COMBINATIONS}
    print(f"\n{len(runs)} combinations run, {len(unsupported)} raise")
    assert runs | unsupported == every
    assert not runs & unsupported
