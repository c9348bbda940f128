"""Level and power of `stein_test`.

``python -m benchmarks.stein_test`` draws samples of a von Mises–Fisher distribution with κ = 8 and
of a Kent distribution with κ = 12, β = 4, tests each against its own distribution at 5 %, and
samples of other distributions against it. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import pymc_geodesic as pg
from pymc_geodesic.directional.goodness_of_fit import SteinTest
from pymc_geodesic.gradients.scores import ManifoldDistribution

POLE, MAJOR, LEVEL = np.eye(3)[2], np.eye(3)[0], 0.05


def rejected(data: Any, hypothesis: Any, n: int, repetitions: int, seed: int = 1) -> float:
    """Return the proportion of samples of n directions that the test at 5 % rejects."""
    rng = np.random.default_rng(seed)
    test = SteinTest(ManifoldDistribution(hypothesis))
    samples = ManifoldDistribution(data).draws(n, repetitions, rng)
    p_values = [test(x, "bootstrap", "median", -0.5, 199, rng).pvalue for x in samples]
    return float(np.mean(np.array(p_values) <= LEVEL))


def main() -> None:
    """Print a table, and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    asked = parser.parse_args()

    def fisher(kappa: float) -> Any:
        return pg.VonMisesFisher.dist(POLE, kappa)

    def kent(beta: float) -> Any:
        return pg.Kent.dist(POLE, MAJOR, 12.0, beta)

    cases = {
        "von Mises-Fisher, n = 20": (fisher(8.0), fisher(8.0), 20),
        "von Mises-Fisher, n = 50": (fisher(8.0), fisher(8.0), 50),
        "Kent, n = 20": (kent(4.0), kent(4.0), 20),
        "Kent, n = 50": (kent(4.0), kent(4.0), 50),
        "kappa 6 for 8, n = 100": (fisher(6.0), fisher(8.0), 100),
        "kappa 5 for 8, n = 100": (fisher(5.0), fisher(8.0), 100),
        "Kent for von Mises-Fisher, n = 100": (kent(4.0), fisher(12.0), 100),
    }
    result = {}
    for name, (data, hypothesis, n) in cases.items():
        result[name] = rejected(data, hypothesis, n, asked.samples)
        print(f"{name}: {result[name]:.1%} rejected at 5 %", flush=True)
    error = float(np.sqrt(LEVEL * (1.0 - LEVEL) / asked.samples))
    print(json.dumps({"rejected": result, "binomial_error_of_the_level": error}))


if __name__ == "__main__":
    main()
