"""Detection of incorrect sampling: twenty faulty runs and twenty correct runs.

``python -m benchmarks.detectors`` perturbs a sampler after its tuning phase (or uses unsuitable
settings), measures the errors of the draws, and prints the warnings that a user sees. A faulty run
counts as detected if there is any warning; *own* warnings need one chain only, without R-hat. The
correct runs have default settings; at most one false alarm is acceptable. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

import pymc_geodesic as pg
from benchmarks.sampling_warnings import GENERAL_ADVICE, SamplingWarnings
from pymc_geodesic.ops.bessel import mean_resultant_length

CHAINS, TUNE, DRAWS = 2, 500, 1000
BATCH_SIZE = 100

Perturbation = Callable[[Any], None]
"""Function that perturbs the adapted dynamics of a step, once, at the end of the tuning phase."""


@dataclass(frozen=True)
class Known:
    """A model whose posterior is known.

    Attributes
    ----------
    model : pymc.Model
    variable : str
        Vector whose moments are compared.
    rows : list of str
    standardize : callable
        Function from draws, shape (n, d), to coordinates with mean 0 and covariance I.
    """

    model: pm.Model
    variable: str
    rows: list[str]
    standardize: Callable[[np.ndarray], np.ndarray]


def regression(seed: int = 1, *, n_rows: int = 5000, d: int = 6) -> Known:
    """Linear regression with known noise, correlated columns and scales from 0.1 to 10."""
    rng = np.random.default_rng(seed)
    mix = np.linalg.cholesky(0.4 + 0.6 * np.eye(d)).T * np.geomspace(0.1, 10.0, d)
    X = rng.normal(size=(n_rows, d)) @ mix
    y = X @ (rng.normal(size=d) / np.geomspace(0.1, 10.0, d)) + rng.normal(size=n_rows)
    with pm.Model() as model:
        rows, outcome = pm.Data("X", X), pm.Data("y", y)
        b = pm.Normal("b", 0.0, 10.0, shape=d)
        pm.Normal("outcome", rows @ b, 1.0, observed=outcome)
    precision = X.T @ X + 0.01 * np.eye(d)
    mean, root = np.linalg.solve(precision, X.T @ y), np.linalg.cholesky(precision)
    return Known(model, "b", ["X", "y"], lambda draws: (draws - mean) @ root)


def logistic(seed: int = 1, *, n_rows: int = 5000, d: int = 6) -> Known:
    """Logistic regression with the same covariates; the posterior is nearly normal."""
    rng = np.random.default_rng(seed)
    scales = np.geomspace(0.1, 10.0, d)
    X = rng.normal(size=(n_rows, d)) @ (np.linalg.cholesky(0.4 + 0.6 * np.eye(d)).T * scales)
    truth = 0.5 * rng.normal(size=d) / scales
    y = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-X @ truth))).astype(np.int64)
    with pm.Model() as model:
        rows, outcome = pm.Data("X", X), pm.Data("y", y)
        b = pm.Normal("b", 0.0, 10.0, shape=d)
        pm.Bernoulli("outcome", logit_p=rows @ b, observed=outcome)
    mode = np.zeros(d)
    for _ in range(20):
        p = 1.0 / (1.0 + np.exp(-X @ mode))
        precision = (X * (p * (1.0 - p))[:, np.newaxis]).T @ X + 0.01 * np.eye(d)
        mode = mode + np.linalg.solve(precision, X.T @ (y - p) - 0.01 * mode)
    root = np.linalg.cholesky(precision)
    proposals = rng.standard_t(10.0, size=(20_000, d))
    points = mode + np.linalg.solve(root.T, proposals.T).T
    scores = points @ X.T
    logs = scores @ y - np.logaddexp(0.0, scores).sum(axis=1) - 0.005 * np.sum(points**2, axis=1)
    logs += 5.5 * np.log1p(proposals**2 / 10.0).sum(axis=1)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ points
    covariance = (points - mean).T @ ((points - mean) * weights[:, np.newaxis])
    root = np.linalg.cholesky(np.linalg.inv(covariance))
    return Known(model, "b", ["X", "y"], lambda draws: (draws - mean) @ root)


def direction(seed: int = 1, *, n_rows: int = 5000, d: int = 5) -> Known:
    """Mean direction, whose posterior is von Mises–Fisher."""
    truth = np.full(d, d**-0.5)
    x = pm.draw(pg.VonMisesFisher.dist(truth, 10.0), draws=n_rows, random_seed=seed)
    natural = 10.0 * x.sum(axis=0)
    concentration = float(np.linalg.norm(natural))
    with pm.Model() as model:
        mu = pg.UniformSphere("mu", shape=d)
        pg.VonMisesFisher("outcome", mu, 10.0, observed=pm.Data("x", x))
    tangents = np.linalg.qr(np.column_stack([natural, np.eye(d)[:, 1:]]))[0][:, 1:]
    scale = np.sqrt(mean_resultant_length(d, concentration) / concentration)
    return Known(model, "mu", ["x"], lambda draws: draws @ tangents / scale)


MODELS: dict[str, Callable[..., Known]] = {
    "regression": regression,
    "logistic": logistic,
    "direction": direction,
}


def subtracted_noise(variance: float, *, only: int | None = None) -> Perturbation:
    """Change the subtracted noise variance, in all directions or in one."""

    def perturb(sampler: Any) -> None:
        adapted = sampler.adaptation
        parameters = adapted.parameters
        noise = parameters.noise.copy()
        noise[slice(None) if only is None else only] += variance
        adapted._bounded.parameters = replace(parameters, noise=noise)

    return perturb


def scaled_step(factor: float) -> Perturbation:
    """Change the step size."""

    def perturb(sampler: Any) -> None:
        adapted = sampler.adaptation
        step = factor * adapted.parameters.step_size
        adapted._bounded.parameters = replace(adapted.parameters, step_size=step)

    return perturb


def moved_center(distance: float) -> Perturbation:
    """Move the centering point by ``distance`` standard deviations, with its correct gradient."""

    def perturb(sampler: Any) -> None:
        adapted = sampler.adaptation
        gradient = adapted.gradient
        z = sampler.z.copy()
        z[: gradient.n_euclidean] = distance
        x = gradient.to_position(z)
        gradient.center_at(x, gradient.gradient_of_all_rows(x))

    return perturb


def stale_center(distance: float) -> Perturbation:
    """Use the gradient at another point as that at the centering point."""

    def perturb(sampler: Any) -> None:
        adapted = sampler.adaptation
        gradient = adapted.gradient
        z = np.zeros_like(sampler.z)
        center = gradient.to_position(z)
        z[0] = distance
        gradient.center_at(center, gradient.gradient_of_all_rows(gradient.to_position(z)))

    return perturb


def stretched_metric(factor: float) -> Perturbation:
    """Multiply the scale of the first coordinate in the metric."""

    def perturb(sampler: Any) -> None:
        adapted = sampler.adaptation
        gradient, metric, x = adapted.gradient, adapted.gradient.metric, sampler.position
        if gradient.n_euclidean:
            wrong = metric.factor.copy()
            wrong[0] *= factor
            gradient.set_metric(replace(metric, factor=wrong))
        else:
            lengths = metric.lengths * factor
            gradient.set_metric(replace(metric, lengths=lengths))
            adapted.product.scales[-lengths.size :] = lengths
        sampler.z[:] = gradient.whiten(x)

    return perturb


@dataclass(frozen=True)
class Run:
    """A correct or faulty run.

    Attributes
    ----------
    kind : str
        "temperature above 1", "temperature below 1", "stuck", "wrong center", "wrong metric" or
        "right".
    what : str
    model : str
        Of `MODELS`.
    make : callable
        Function from the rows of the model to a step method.
    perturb : callable, optional
    seed : int
    start : float
        Distance of the start from the origin, in the model's own coordinates.
    tune : int
    """

    kind: str
    what: str
    model: str
    make: Callable[[list[str]], Any]
    perturb: Perturbation | None = None
    seed: int = 1
    start: float = 0.0
    tune: int = TUNE


def _batches(step: Callable[..., Any], **given: Any) -> Callable[[list[str]], Any]:
    return lambda rows: step(batch_size=BATCH_SIZE, minibatch=rows, **given)


def _all_rows(step: Callable[..., Any], **given: Any) -> Callable[[list[str]], Any]:
    return lambda rows: step(**given)


_PLAIN: dict[str, Any] = {"metric": None, "control_variates": False}

FAULTY = [
    Run("temperature above 1", "SGGMC, long steps, unknown noise", "regression",
        _batches(pg.SGGMC, step_size=0.001, friction=10.0)),
    Run("temperature above 1", "SGGMC, 33 % of noise subtracted", "logistic", _batches(pg.SGGMC),
        subtracted_noise(-6.0)),
    Run("temperature above 1", "SGLD, long steps, plain gradients", "regression",
        _batches(pg.SGLD, step_size=0.001)),
    Run("temperature above 1", "gSGNHT, one direction with more noise than known", "logistic",
        _batches(pg.gSGNHT), subtracted_noise(-6.0, only=0)),
    Run("temperature below 1", "SGGMC, gradient_noise= tenfold", "direction",
        _batches(pg.SGGMC, step_size=0.0005, friction=1000.0, gradient_noise=2e7)),
    Run("temperature below 1", "SGGMC, absent noise subtracted", "logistic", _all_rows(pg.SGGMC),
        subtracted_noise(3.0)),
    Run("temperature below 1", "gSGNHT, absent noise subtracted in one direction", "logistic",
        _all_rows(pg.gSGNHT), subtracted_noise(3.0, only=0)),
    Run("temperature below 1", "SGLD, absent noise subtracted", "regression", _all_rows(pg.SGLD),
        subtracted_noise(3.0)),
    Run("stuck", "SGGMC, step_size=1e-7", "regression", _batches(pg.SGGMC, step_size=1e-7)),
    Run("stuck", "gSGNHT, a step a thousand times too short", "logistic", _batches(pg.gSGNHT),
        scaled_step(0.001)),
    Run("stuck", "GMC, step_size=1e-6", "regression", _all_rows(pg.GMC, step_size=1e-6)),
    Run("stuck", "SGLD, step_size=1e-6", "logistic", _batches(pg.SGLD, step_size=1e-6)),
    Run("wrong center", "SGGMC, centering point 10 sds away in every direction", "logistic",
        _batches(pg.SGGMC), moved_center(10.0)),
    Run("wrong center", "SGLD, centering point 10 sds away in every direction", "logistic",
        _batches(pg.SGLD), moved_center(10.0)),
    Run("wrong center", "gSGNHT, gradient of a point 3 sds from the centering point", "regression",
        _batches(pg.gSGNHT), stale_center(3.0)),
    Run("wrong center", "SGGMC, 20 tuning draws from far away", "regression",
        _batches(pg.SGGMC), start=1000.0, tune=20),
    Run("wrong metric", "SGGMC, scale of one coordinate 100 times too small", "logistic",
        _batches(pg.SGGMC), stretched_metric(0.01)),
    Run("wrong metric", "gSGNHT, scale of one coordinate 3.7 times too large", "logistic",
        _batches(pg.gSGNHT), stretched_metric(3.7)),
    Run("wrong metric", "SGGMC, a direction 100 times narrower", "direction", _batches(pg.SGGMC),
        stretched_metric(0.01)),
    Run("wrong metric", "SGGMC with plain gradients in the model's coordinates", "regression",
        _batches(pg.SGGMC, **_PLAIN)),
]  # fmt: skip

_STEPS: dict[str, tuple[Callable[..., Any], ...]] = {
    "regression": (pg.SGGMC, pg.gSGNHT, pg.SGLD),
    "logistic": (pg.SGGMC, pg.gSGNHT, pg.SGLD),
    "direction": (pg.SGGMC,),
}
CORRECT = [
    Run("right", step.__name__ + how, model, make(step), seed=seed)
    for model, steps in _STEPS.items()
    for step in steps
    for how, make, seed in (
        (", minibatches", _batches, 1),
        (", minibatches", _batches, 2),
        ("", _all_rows, 3),
    )
]
CORRECT.pop()
"""Twenty runs with default settings."""


class PerturbedSampler:
    """Sampler of a step, perturbed at the first draw after tuning."""

    def __init__(self, sampler: Any, perturb: Perturbation) -> None:
        self._draw, self._sampler, self._spoil = sampler.draw, sampler, perturb
        self._is_spoiled = False

    def __call__(self, *, tune: bool) -> dict[str, Any]:
        """Draw once."""
        if not tune and not self._is_spoiled:
            self._spoil(self._sampler)
        self._is_spoiled = not tune
        return self._draw(tune=tune)


def measure(run: Run, *, draws: int = DRAWS, cores: int = 1) -> dict[str, Any]:
    """Sample; return errors, convergence diagnostics and warnings."""
    known = MODELS[run.model](run.seed)
    result: dict[str, Any] = {"kind": run.kind, "what": run.what, "model": run.model}
    with SamplingWarnings() as caught, known.model:
        step = run.make(known.rows)
        if run.perturb is not None:
            step.sampler.draw = PerturbedSampler(step.sampler, run.perturb)
        start = None
        if run.start:
            size = known.model[known.variable].eval().size
            start = {known.variable: np.full(size, run.start)}
        try:
            idata = pm.sample(
                draws=draws,
                tune=run.tune,
                chains=CHAINS,
                cores=cores,
                step=step,
                initvals=start,
                random_seed=run.seed,
                progressbar=False,
            )
        except pm.exceptions.SamplingError as error:
            return result | {"stopped": str(error).splitlines()[0], "warnings": [], "own": []}
    z = known.standardize(idata.posterior[known.variable].values)
    ess = min(float(az.ess(z[..., i])) for i in range(z.shape[2]))
    everything = z.reshape(-1, z.shape[2])
    ratio = everything.std(axis=0)
    return result | {
        "ess": ess,
        "rhat": max(float(az.rhat(z[..., i])) for i in range(z.shape[2])),
        "mean_error": float(np.abs(everything.mean(axis=0)).max()),
        "sd_ratio": float(ratio[np.argmax(np.abs(np.log(ratio)))]),
        "warnings": [m for m in caught.messages if not m.startswith(GENERAL_ADVICE)],
        "own": [m for m in caught.messages if m.startswith(type(step).__name__)],
    }


def line(result: Mapping[str, Any]) -> str:
    """One row of the table."""
    head = f"| {result['kind']} | {result['what']} | {result['model']} |"
    if "stopped" in result:
        return f"{head} | | | | stopped: {result['stopped'][:90]} |"
    warning = (result["own"] or result["warnings"] or ["nothing"])[0].splitlines()[0]
    who = "own" if result["own"] else "PyMC" if result["warnings"] else ""
    return (
        f"{head} {result['mean_error']:.2f} | {result['sd_ratio']:.2f} | {result['ess']:,.0f} "
        f"| {result['rhat']:.3f} | {who}: {warning[:150]} |"
    )


def main() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--only", nargs="+", type=int, help="numbers of faulty runs, from 1")
    parser.add_argument("--right", type=int, default=len(CORRECT), help="number of correct runs")
    asked = parser.parse_args()
    print(
        "| kind | run | model | mean, sds | sd ratio | ESS | R-hat | warning |\n" + "|---" * 8 + "|"
    )
    wrong = FAULTY if asked.only is None else [FAULTY[i - 1] for i in asked.only]
    results = []
    for run in [*wrong, *CORRECT[: asked.right]]:
        results.append(measure(run, draws=asked.draws, cores=asked.cores))
        print(line(results[-1]), flush=True)
    reported = [r for r in results if r["kind"] != "right"]
    alarms = [r for r in results if r["kind"] == "right" and (r["warnings"] or "stopped" in r)]
    silent = [r for r in reported if not (r["warnings"] or "stopped" in r)]
    alone = [r for r in reported if r["own"] or "stopped" in r]
    print(
        f"\nfaulty: {len(reported) - len(silent)} of {len(reported)} detected, {len(alone)} of "
        f"them by one chain alone; correct: {len(alarms)} false alarms in "
        f"{len(results) - len(reported)}"
    )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
