"""Errors of posterior means and standard deviations, by step and batch size and against time.

    python -m benchmarks.bias_table [--part steps] [--part time] [--output docs/figures]

Part ``steps``: a mean direction of known concentration, whose posterior is known in closed form
(10⁵ rows, d = 10). Step sizes and batch sizes are fixed, friction is tuned.
Every run starts at the posterior mean and lasts the same time.

Part ``time``: tuned samplers and NUTS on the same model from the same starting point, the prior's
center, against time, which includes tuning but not compilation. Three models: the directions row by
row; the same with their sum, a sufficient statistic; and a regression with Student-t errors, which
has none.

Errors are in posterior standard deviations, over all axes of the posterior: of the mean, the root
mean square; of the standard deviation, the root mean square deviation from the exact mean, pooled
over the axes, minus 1, in which errors of opposite sign in different axes cancel. Times are
processor times of one core, which on an idle machine are wall times.
"""

from benchmarks.timing import use_one_core

use_one_core()

import argparse
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import arviz as az
import matplotlib
import numpy as np
import pymc as pm
from pymc.initial_point import make_initial_point_fn

from benchmarks.known_posteriors import KnownPosterior, directional, regression
from pymc_geodesic import GMC, SGGMC, gSGNHT

DIMENSION, N_DIRECTIONS = 10, 100_000
N_RESPONSES, N_COEFFICIENTS = 100_000, 4
STEP_SIZES = (0.01, 0.03, 0.1, 0.3)
BATCH_SIZES = (100, 1000, 10_000)
N_STEPS = 50
MIN_ESS = 50.0
TUNE_FIXED_STEP = 50
FRACTIONS_OF_TIME = (1 / 16, 1 / 4, 1.0)
STOCHASTIC: dict[str, tuple[type, dict[str, Any]]] = {
    "SGGMC": (SGGMC, {}),
    "SGGMC, Fisher noise": (SGGMC, {"gradient_noise": "fisher"}),
    "gSGNHT": (gSGNHT, {}),
}


def sample_for(
    posterior: KnownPosterior, step: Any, seconds: float, tune: int, at_mode: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw for a given time. The first draw compiles, is not counted and is repeated.

    Returns
    -------
    draws : ndarray, shape (n, k)
        Standardized draws after tuning.
    times : ndarray, shape (n,)
        Processor time of each since the first draw of the tuning phase, in seconds.
    temperatures : ndarray, shape (n,)
        Kinetic temperature where the sampler has one, otherwise NaN.
    """
    model = posterior.model
    step.setup_chain(np.random.default_rng(1), tune, 10**9)
    start = {model[posterior.variable]: posterior.mode} if at_mode else {}
    point = make_initial_point_fn(model=model, overrides=start)(1)
    (value,) = model.continuous_value_vars
    step.step(point)
    step.setup_chain(np.random.default_rng(1), tune, 10**9)
    if isinstance(step, pm.NUTS):
        step.reset_tuning()
    points, times, temperatures = [], [], []
    begin = process_time()
    now, n = 0.0, 0
    while now < seconds:
        if n == tune:
            step.stop_tuning()
        point, (stats,) = step.step(point)
        now, n = process_time() - begin, n + 1
        if n > tune:
            points.append(point[value.name])
            times.append(now)
            temperatures.append(stats.get("temperature", np.nan))
    if not points:
        return np.empty((0, 1)), np.empty(0), np.empty(0)
    transform = model.rvs_to_transforms[model[posterior.variable]]
    draws = np.array(points)
    if transform is not None:
        draws = np.asarray(transform.backward(draws).eval())
    return posterior.standardize(draws), np.array(times), np.array(temperatures)


def errors(draws: np.ndarray) -> tuple[float, float]:
    """Return the error of the mean and that of the pooled standard deviation."""
    if len(draws) < 2:
        return np.nan, np.nan
    return float(np.sqrt(np.mean(draws.mean(axis=0) ** 2))), float(np.sqrt(np.mean(draws**2)) - 1)


def described(draws: np.ndarray) -> str:
    """Return one cell of the table of step sizes: errors with their Monte Carlo error."""
    squares = np.mean(draws**2, axis=1)
    if len(draws) < MIN_ESS or not float(az.ess(draws[None, :, 0])) >= MIN_ESS:
        return "too slow"
    of_mean, of_deviation = errors(draws)
    monte_carlo = 0.5 * squares.std() / np.sqrt(float(az.ess(squares[None]))) / squares.mean()
    return f"{of_mean:.2f}; {100 * of_deviation:+.1f} ± {100 * monte_carlo:.1f} %"


def by_step_size(n_rows: int, seconds: float) -> Iterator[str]:
    """Yield the rows of the Markdown table of step and batch sizes as they are measured."""
    posterior = directional(n_rows, DIMENSION)
    yield "| sampler | batch | " + " | ".join(f"ε = {h:g} σ" for h in STEP_SIZES) + " |"
    yield "|---|---:|" + "---|" * len(STEP_SIZES)

    def line(label: str, batch: str, make: Callable[[float], Any]) -> str:
        cells = []
        for h in STEP_SIZES:
            with posterior.model:
                step = make(h * posterior.scale)
            try:
                draws, _, _ = sample_for(posterior, step, seconds, TUNE_FIXED_STEP, at_mode=True)
            except pm.exceptions.SamplingError:
                cells.append("diverged")
                continue
            cells.append(described(draws))
        return f"| {label} | {batch} | " + " | ".join(cells) + " |"

    for label, (sampler, options) in STOCHASTIC.items():
        if (
            "gradient_noise" in options
        ):  # consecutive blocks, to show the effect of few distinct minibatches
            options = options | {"minibatch_order": "independent"}
        for batch in BATCH_SIZES:
            if batch > n_rows:
                continue
            make = partial(
                sampler,
                batch_size=batch,
                minibatch=posterior.containers,
                n_steps=N_STEPS,
                **options,
            )
            yield line(label, f"{batch:,}", lambda step_size, make=make: make(step_size=step_size))
    yield line("GMC", "all", lambda step_size: GMC(step_size=step_size, n_steps=5))


def samplers_of(posterior: KnownPosterior, rows: bool) -> dict[str, tuple[Any, int]]:
    """Return samplers by name, each with its number of tuning draws."""
    result: dict[str, tuple[Any, int]] = {}
    with posterior.model:
        if rows:
            for label, (sampler, options) in STOCHASTIC.items():
                step = sampler(
                    batch_size=1000, minibatch=posterior.containers, n_steps=N_STEPS,
                    metric=None, **options,
                )  # fmt: skip
                result[label] = step, 500
        result["GMC"] = GMC(metric=None), 200
        result["NUTS"] = pm.NUTS(), 200
    return result


def against_time(
    title: str, posterior: KnownPosterior, seconds: float, rows: bool, curves: dict
) -> Iterator[str]:
    """Yield rows of the table of errors against time; add the curves to ``curves``."""
    for label, (step, tune) in samplers_of(posterior, rows).items():
        draws, times, _ = sample_for(posterior, step, seconds, tune)
        marks = seconds * np.geomspace(1 / 64, 1.0, 25)
        curves[title, label] = (
            marks,
            np.array([errors(draws[: np.searchsorted(times, mark)]) for mark in marks]),
        )
        cells = []
        for part in FRACTIONS_OF_TIME:
            used = draws[: np.searchsorted(times, part * seconds)]
            of_mean, of_deviation = errors(used)
            cells.append(
                f"{of_mean:.2g}; {100 * of_deviation:+.2g} %" if len(used) > 1 else "tuning"
            )
        first = f"{times[0]:.1f}" if len(times) else "–"
        yield f"| {title} | {label} | {first} | {len(draws):,} | " + " | ".join(cells) + " |"


def by_time(n_directions: int, n_responses: int, seconds: float, curves: dict) -> Iterator[str]:
    """Yield the table of errors at equal time in Markdown."""
    header = " | ".join(f"{part * seconds:.3g} s" for part in FRACTIONS_OF_TIME)
    yield f"| model | sampler | tuned after, s | draws | {header} |"
    yield "|---|---|---:|---:|" + "---|" * len(FRACTIONS_OF_TIME)
    problems: list[tuple[str, Callable[[], KnownPosterior], bool]] = [
        (f"directions, {n_directions:,} rows", lambda: directional(n_directions, DIMENSION), True),
        (
            "directions, their sum",
            lambda: directional(n_directions, DIMENSION, sufficient=True),
            False,
        ),
        (
            f"Student-t regression, {n_responses:,} rows",
            lambda: regression(n_responses, N_COEFFICIENTS),
            True,
        ),
    ]
    for title, make, rows in problems:
        yield from against_time(title, make(), seconds, rows, curves)


def draw_curves(curves: dict, file: Path) -> None:
    """Write the figure of errors against time."""
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    titles = list(dict.fromkeys(title for title, _ in curves))
    labels = list(dict.fromkeys(label for _, label in curves))
    colors = {label: f"C{i}" for i, label in enumerate(labels)}
    figure, axes = plt.subplots(
        2, len(titles), figsize=(4 * len(titles), 6), sharex=True, sharey="row",
        layout="constrained", squeeze=False,
    )  # fmt: skip
    for (title, label), (times, values) in curves.items():
        column = titles.index(title)
        for row in range(2):
            axes[row, column].loglog(
                times, np.abs(values[:, row]), color=colors[label], label=label, lw=1.2
            )
        axes[0, column].set_title(title, fontsize=10)
        axes[1, column].set_xlabel("processor time, s")
    axes[0, 0].set_ylabel("error of the mean (posterior sd)")
    axes[1, 0].set_ylabel("relative error of the sd")
    axes[0, 0].legend(fontsize=8)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    """Print the tables and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=["steps", "time"])
    parser.add_argument("--directions", type=int, default=N_DIRECTIONS)
    parser.add_argument("--responses", type=int, default=N_RESPONSES)
    parser.add_argument(
        "--seconds", type=float, default=2.0, help="of a run with a fixed step size"
    )
    parser.add_argument("--budget", type=float, default=12.0, help="seconds of a tuned run")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    arguments = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    parts = arguments.part or ["steps", "time"]
    if "steps" in parts:
        for line in by_step_size(arguments.directions, arguments.seconds):
            print(line, flush=True)
    if "time" in parts:
        curves: dict = {}
        print(flush=True)
        for line in by_time(arguments.directions, arguments.responses, arguments.budget, curves):
            print(line, flush=True)
        draw_curves(curves, arguments.output / "bias_against_time.png")


if __name__ == "__main__":
    main()
