"""Run of one sampler on one of `benchmarks.large_hierarchy_models`: time, memory, effective draws.

``python -m benchmarks.large_hierarchy_runs SETTINGS FILE`` makes the run that the fields of
`RunSettings` describe, as JSON, and writes times and summary to a file. `large_hierarchies`
starts such a process for each run, so that peak memory and compilation are those of the run.
"""

from __future__ import annotations

import json
import logging
import math
import resource
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats
from numba.core import event
from pytensor.compile.maker import FunctionMaker

from benchmarks.large_hierarchy_models import CASES, SEED, Case, Problem, group_codes
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings

METRICS = {"nutpie diagonal": "diag", "nutpie low_rank": "low_rank"}
GRADIENTS = "time of nutpie's gradient"
BURN_IN = 100
"""Sweeps of the Gibbs sampler before its draws."""

Draws = Mapping[str, np.ndarray]
"""Draws of each variable by name, shape (chains, draws, ...)."""
Summary = dict[str, np.ndarray]
"""Summary of each coordinate: ``name``, ``is_effect``, ``mean``, ``sd``, ``bulk``, ``tail``,
``of_sd`` (effective sizes) and ``rhat``, each of shape (n_coordinates,)."""


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run.

    Attributes
    ----------
    model : str
        Key of `CASES`; empty for a small model on which all samplers run, which compiles shared
        functions.
    rows : int
    method : str
    draws : int
        Per chain.
    tune : int, optional
        Length of the warm-up; None for the default of nutpie.
    chains, seed : int
    """

    model: str
    rows: int
    method: str
    draws: int
    tune: int | None
    chains: int
    seed: int

    def to_json(self) -> str:
        """Fields as JSON."""
        return json.dumps(asdict(self))


class CompilationClock(event.Listener):
    """Processor time of compilation by PyTensor and Numba within a ``with`` block.

    Attributes
    ----------
    seconds : float
    """

    def __init__(self) -> None:
        self.seconds, self._depth, self._began = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        """Start a compilation, possibly nested."""
        if self._depth == 0:
            self._began = time.process_time()
        self._depth += 1

    def on_end(self, event: Any) -> None:
        """End a compilation."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.process_time() - self._began

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.on_start(None)
            try:
                return function(*args, **kwargs)
            finally:
                self.on_end(None)

        return call

    def __enter__(self) -> Self:
        self._methods = {name: getattr(FunctionMaker, name) for name in ("__init__", "create")}
        for name, method in self._methods.items():
            setattr(FunctionMaker, name, self._timed(method))
        event.register("numba:compiler_lock", self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        event.unregister("numba:compiler_lock", self)
        for name, method in self._methods.items():
            setattr(FunctionMaker, name, method)


class DrawClock:
    """Callback of `pymc.sample`: time of warm-up and draws of all chains, and their gradients."""

    def __init__(self) -> None:
        self.before = time.process_time()
        self.seconds, self.gradients = [0.0, 0.0], [0.0, 0.0]

    def __call__(self, trace: Any, draw: Any) -> None:
        """Record times and gradients after each draw."""
        now = time.process_time()
        phase = 0 if draw.tuning else 1
        self.seconds[phase] += now - self.before
        self.gradients[phase] += float(draw.stats[0]["n_grad"])
        self.before = now


def run_step(
    problem: Problem, make_step: Callable[[], Any], settings: RunSettings
) -> tuple[dict[str, Any], Draws]:
    """Sample by a step of this package."""
    began = time.process_time()
    with (
        problem.model,
        CompilationClock() as compilation,
        SamplingWarnings() as logged,
        warnings.catch_warnings(record=True) as caught,
    ):
        warnings.simplefilter("always", UserWarning)
        step = make_step()
        construction = time.process_time() - began - compilation.seconds
        compiled_before, clock = compilation.seconds, DrawClock()
        idata = pm.sample(
            settings.draws, tune=settings.tune, chains=settings.chains, cores=1, step=step,
            random_seed=settings.seed, progressbar=False, callback=clock,
            compute_convergence_checks=False,
        )  # fmt: skip
    total = time.process_time() - began
    messages = [str(each.message) for each in caught if "pymc_geodesic" in str(each.filename)]
    messages += [each for each in logged.messages if not each.startswith(GENERAL_ADVICE)]
    warm_up = clock.seconds[0] - (compilation.seconds - compiled_before)
    figures = {
        "compilation_s": compilation.seconds,
        "construction_s": construction,
        "warm_up_s": warm_up,
        "draws_s": total - compilation.seconds - construction - warm_up,
        "warm_up_gradients": clock.gradients[0],
        "gradients": clock.gradients[1],
        "adaptation": str(step.adaptation),
        "warnings": messages,
    }
    return figures, {name: idata.posterior[name].values for name in idata.posterior.data_vars}


def run_nutpie(
    problem: Problem, adaptation: str, settings: RunSettings
) -> tuple[dict[str, Any], Draws]:
    """Sample by nutpie."""
    import nutpie

    began = time.process_time()
    compiled = nutpie.compile_pymc_model(problem.model)
    compilation = time.process_time() - began
    is_timing = settings.method == GRADIENTS
    idata = nutpie.sample(
        compiled,
        draws=10 if is_timing else settings.draws,
        tune=10 if is_timing else settings.tune,
        chains=1 if is_timing else settings.chains,
        cores=1,
        seed=settings.seed,
        progress_bar=False,
        adaptation=adaptation,
        **({"maxdepth": 3} if is_timing else {}),
    )
    seconds = time.process_time() - began - compilation
    warm_up = float(idata.warmup_sample_stats["n_steps"].sum())
    gradients = float(idata.sample_stats["n_steps"].sum())
    figures = {
        "compilation_s": compilation,
        "construction_s": 0.0,
        "warm_up_s": seconds * warm_up / (warm_up + gradients),
        "draws_s": seconds * gradients / (warm_up + gradients),
        "warm_up_gradients": warm_up,
        "gradients": gradients,
        "warnings": [],
    }
    return figures, {name: idata.posterior[name].values for name in idata.posterior.data_vars}


def run_gibbs(problem: Problem, settings: RunSettings) -> tuple[dict[str, Any], Draws]:
    """Sample by the collapsed Gibbs sampler."""
    from benchmarks.crossed_gibbs import compile_sweep, sample_crossed

    assert problem.crossed is not None
    began = time.process_time()
    compile_sweep(problem.crossed)
    compilation = time.process_time() - began
    chains = [
        sample_crossed(
            problem.crossed, draws=settings.draws, burn_in=BURN_IN, seed=settings.seed + chain
        )
        for chain in range(settings.chains)
    ]
    seconds = time.process_time() - began - compilation
    share = BURN_IN / (BURN_IN + settings.draws)
    figures = {
        "compilation_s": compilation,
        "construction_s": 0.0,
        "warm_up_s": share * seconds,
        "draws_s": (1.0 - share) * seconds,
        "warm_up_gradients": 0.0,
        "gradients": 0.0,
        "warnings": [],
    }
    return figures, {name: np.stack([chain[name] for chain in chains]) for name in chains[0]}


def coordinates(model: pm.Model, draws: Draws) -> Iterator[tuple[str, np.ndarray]]:
    """Yield draws of each variable on the real line: log scales, and correlations of LKJ variables.

    Yields
    ------
    name : str
    values : ndarray, shape (chains, draws, ...)
    """
    for rv in model.free_RVs:
        values = draws.get(rv.name)
        if f"{rv.name}_stds" in draws:
            yield f"log {rv.name}_stds", np.log(draws[f"{rv.name}_stds"])
            correlations = draws[f"{rv.name}_corr"]
            pairs = np.tril_indices(correlations.shape[-1], -1)
            yield f"atanh {rv.name}_corr", np.arctanh(correlations[(..., *pairs)])
        elif isinstance(model.rvs_to_transforms[rv], pm.distributions.transforms.LogTransform):
            yield f"log {rv.name}", np.log(values)
        else:
            yield rv.name, values


def summarize(model: pm.Model, draws: Draws) -> Summary:
    """Moments, effective sizes and R-hat of all coordinates."""
    columns: dict[str, list[np.ndarray]] = {}
    for name, values in coordinates(model, draws):
        shape = values.shape[2:]
        flat = values.reshape(*values.shape[:2], -1)
        labels = [
            f"{name}[{', '.join(map(str, index))}]" if index else name
            for index in np.ndindex(shape)
        ]
        axes = {"chain_axis": 0, "draw_axis": 1}
        found = {
            "name": labels,
            "is_effect": np.full(len(labels), len(labels) > 1 and "corr" not in name),
            "mean": flat.mean(axis=(0, 1)),
            "sd": flat.std(axis=(0, 1)),
            "bulk": array_stats.ess(flat, method="bulk", **axes),
            "tail": array_stats.ess(flat, method="tail", prob=(0.05, 0.95), **axes),
            "of_sd": array_stats.ess(flat, method="sd", **axes),
            "rhat": array_stats.rhat(flat, **axes),
        }
        for key, column in found.items():
            columns.setdefault(key, []).append(np.asarray(column))
    return {key: np.concatenate(parts) for key, parts in columns.items()}


def squared_error(effects: Mapping[str, np.ndarray], draws: Draws) -> float:
    """Mean square of (true effect − posterior mean) / posterior sd over all simulated effects.

    It is about 1 ± √(2 / number of effects) if the draws are from the posterior, whatever the
    model; NaN without simulated effects.
    """
    errors = [
        ((effect - draws[name].mean(axis=(0, 1))) / draws[name].std(axis=(0, 1))).ravel()
        for name, effect in effects.items()
    ]
    return float(np.mean(np.concatenate(errors) ** 2)) if errors else math.nan


def run_case(case: Case, settings: RunSettings) -> tuple[dict[str, Any], Summary]:
    """Run one sampler on one model in this process."""
    import pymc_geodesic as pg

    problem = case.build(settings.rows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n_coordinates = sum(np.size(value) for value in problem.model.initial_point().values())
    method, size = settings.method, case.batch_size
    if method == "Gibbs":
        figures, draws = run_gibbs(problem, settings)
    elif method in (GRADIENTS, *METRICS):
        figures, draws = run_nutpie(problem, METRICS.get(method, "diag"), settings)
    else:
        step = {"GMC": lambda: pg.GMC(), "SGGMC": lambda: pg.SGGMC(batch_size=size)}[method]
        figures, draws = run_step(problem, step, settings)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures |= {
        "coordinates": n_coordinates,
        "memory_mb": peak / 1024.0,
        "memory_of_model_mb": before / 1024.0,
    }
    if method == GRADIENTS:
        seconds = figures["warm_up_s"] + figures["draws_s"]
        figures["gradient_s"] = seconds / (figures["warm_up_gradients"] + figures["gradients"])
        return figures, {}
    figures["squared_error"] = squared_error(problem.effects, draws)
    return figures, summarize(problem.model, draws)


def _small_model(n_rows: int) -> Problem:
    """Model whose samplers compile the functions that all models share."""
    rng = np.random.default_rng(SEED)
    group, y = group_codes(rng, n_rows, n_rows // 10), rng.standard_t(4.0, size=n_rows)
    with pm.Model() as model:
        effect = pm.Normal("effect", 0.0, pm.HalfNormal("scale", 1.0), shape=n_rows // 10)
        mu = pm.Normal("mean", 0.0, 1.0) + effect[group]
        pm.StudentT("y", nu=4.0, mu=mu, sigma=1.0, observed=y)
    return Problem(model, {})


def main() -> None:
    """Run the settings of the command line."""
    settings = RunSettings(**json.loads(sys.argv[1]))
    logging.getLogger("pymc").setLevel(logging.ERROR)
    if not settings.model:
        case = Case("", _small_model, settings.rows, settings.rows, batch_size=50)
        for method in ("GMC", "SGGMC", "nutpie diagonal"):
            run_case(case, replace(settings, method=method))
        return
    figures, summary = run_case(CASES[settings.model], settings)
    np.savez(sys.argv[2], figures=json.dumps(figures), **summary)


if __name__ == "__main__":
    main()
