"""Coverage of credible caps, highest-density regions and shortest arcs.

``python -m benchmarks.coverage_of_regions`` simulates 1,000 data sets of five von Mises–Fisher
directions with κ = 3 around a uniform mean, on the circle and on the sphere. With a uniform prior
the posterior of the mean is von Mises–Fisher around the sum of the data. A cap, a highest-density
region and, on the circle, a shortest arc of 90 % are computed from 400 draws of it. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from pymc_geodesic.directional import credible_cap, hdi, hdr
from pymc_geodesic.distributions.von_mises_fisher_draws import (
    draw_uniform_directions,
    draw_von_mises_fisher,
)

KAPPA, N_DATA, N_DRAWS = 3.0, 5, 400


def coverage(d: int, n_sets: int, prob: float = 0.9, seed: int = 1) -> dict[str, float]:
    """Return the proportion of data sets whose cap, region and arc contain the true mean."""
    rng = np.random.default_rng(seed)
    held: dict[str, list[bool]] = {"cap": [], "region": []} | ({"arc": []} if d == 2 else {})
    for truth in draw_uniform_directions(rng, (n_sets, d)):
        total = KAPPA * draw_von_mises_fisher(rng, truth, KAPPA, (N_DATA,)).sum(axis=0)
        length = np.linalg.norm(total)
        draws = draw_von_mises_fisher(rng, total / length, length, (N_DRAWS,))
        cap = credible_cap(draws, ci_prob=prob, unit="rad")
        held["cap"].append(bool(np.arccos(np.clip(cap.center @ truth, -1, 1)) <= cap.radius))
        held["region"].append(bool(hdr(draws, ci_prob=prob).contains(truth)))
        if d == 2:
            low, high = hdi(np.arctan2(draws[:, 1], draws[:, 0]), ci_prob=prob)
            angle = np.arctan2(truth[1], truth[0])
            held["arc"].append(bool((angle - low) % (2 * np.pi) <= (high - low) % (2 * np.pi)))
    return {name: float(np.mean(each)) for name, each in held.items()}


def main() -> None:
    """Print a table, and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1000, help="simulated data sets")
    parser.add_argument("--prob", type=float, default=0.9, help="probability of the regions")
    options = parser.parse_args()
    error = float(np.sqrt(options.prob * (1 - options.prob) / options.sets))
    found = {
        name: coverage(d, options.sets, options.prob) for name, d in (("circle", 2), ("sphere", 3))
    }
    for name, each in found.items():
        shares = ", ".join(f"{kind} {share:.1%}" for kind, share in each.items())
        print(f"{name}: {shares}; nominal {options.prob:.0%}, binomial error {error:.1%}")
    print(json.dumps({"coverage": found, "binomial_error": error}))


if __name__ == "__main__":
    main()
