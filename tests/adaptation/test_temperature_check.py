"""When a mean temperature is acted on."""

import numpy as np
import pytest

from pymc_geodesic.adaptation.bounded_parameters import HeatWatch


def verdicts(mean: float, spread: float, n: int, seed: int = 1) -> list[int]:
    rng = np.random.default_rng(seed)
    watch = HeatWatch()
    return [watch.observe(t) for t in mean + spread * rng.standard_normal(n)]


@pytest.mark.parametrize(("mean", "expected"), [(1.2, 1), (0.8, -1)])
def test_what_is_beyond_doubt_is_acted_on_once_in_forty_draws(mean, expected):
    found = verdicts(mean, 0.1, 400)
    assert found == ([0] * 39 + [expected]) * 10


@pytest.mark.parametrize("mean", [0.96, 1.0, 1.04])
def test_small_errors_are_let_pass(mean):
    assert not any(verdicts(mean, 0.05, 4000))


def test_what_may_be_chance_is_let_pass():
    assert not any(verdicts(1.3, 1.0, 39 * 1000, seed=2)[:40])
    assert not any(verdicts(1.0, 1.0, 4000))


def test_draws_before_other_settings_are_forgotten():
    watch = HeatWatch()
    for _ in range(39):
        watch.observe(3.0)
    watch.forget()
    assert not any(watch.observe(1.0) for _ in range(200))
