"""Random directions: this package against SciPy, as ratios of times measured in one run.

    python benchmarks/von_mises_fisher_draws.py

SciPy takes one mean direction at a time, so that different means need a Python loop. Each time is
the minimum over several alternating runs.
"""

import time
from collections.abc import Callable

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from scipy import stats

from pymc_geodesic.distributions import VonMisesFisher
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    draw_uniform_directions,
    draw_von_mises_fisher,
)

KAPPA = 50.0


def shortest(calls: list[Callable[[], object]], repeats: int) -> list[float]:
    """Return the shortest time of each call in seconds; calls alternate."""
    times = np.full(len(calls), np.inf)
    for _ in range(repeats):
        for i, call in enumerate(calls):
            start = time.perf_counter()
            call()
            times[i] = min(times[i], time.perf_counter() - start)
    return list(times)


def compiled(n_means: int, d: int, draws: int | None) -> Callable[..., object]:
    """Return draws by PyTensor's default backend."""
    rng = pt.random.rng("rng")
    mu = pt.tensor("mu", shape=(n_means, d) if n_means > 1 else (d,))
    x = VonMisesFisher.dist(mu, KAPPA, size=None if draws is None else (draws,), rng=rng)
    return pytensor.function([rng, mu], x, trust_input=True)


def main() -> None:
    """Print the table."""
    print(f"PyMC {pm.__version__}, kappa = {KAPPA:g}")
    print(f"{'':34}{'SciPy':>12}{'NumPy here':>12}{'ratio':>8}{'compiled':>12}{'ratio':>8}")
    rng = np.random.default_rng(1)
    for d in (2, 3, 10, 100, 1000):
        n = 100_000 if d <= 10 else 2_000
        mu = draw_uniform_directions(rng, (d,))
        function = compiled(1, d, n)
        report(
            f"one mean, d = {d}, {n:,} draws",
            lambda mu=mu, n=n: stats.vonmises_fisher.rvs(mu, KAPPA, size=n, random_state=rng),
            lambda mu=mu, n=n: draw_von_mises_fisher(rng, mu, KAPPA, (n,)),
            lambda mu=mu, function=function: function(rng, mu),
        )
    means = draw_uniform_directions(rng, (10_000, 10))
    function = compiled(10_000, 10, None)
    report(
        "10,000 means, d = 10, one draw each",
        lambda: [stats.vonmises_fisher.rvs(m, KAPPA, random_state=rng) for m in means],
        lambda: draw_von_mises_fisher(rng, means, KAPPA),
        lambda: function(rng, means),
    )


def report(label: str, *calls: Callable[[], object]) -> None:
    """Print one line; the first call is SciPy's."""
    for call in calls[1:]:
        call()
    scipy, numpy, numba = shortest(list(calls), 5)
    print(
        f"{label:34}{1e3 * scipy:9.2f} ms{1e3 * numpy:9.2f} ms{scipy / numpy:8.1f}"
        f"{1e3 * numba:9.2f} ms{scipy / numba:8.1f}"
    )


if __name__ == "__main__":
    main()
