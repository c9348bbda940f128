"""Which variable of the model a complaint names."""

import numpy as np
import pytest

from pymc_geodesic.adaptation.gradient_noise import complaint_about_noise
from pymc_geodesic.adaptation.langevin_parameters import (
    overdamped_parameters,
    underdamped_parameters,
)
from pymc_geodesic.adaptation.noise_variance import NoiseVariance
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.monitoring.complaint import (
    MOST_NAMES,
    complaint_about,
    complaint_in_the_model,
)
from pymc_geodesic.monitoring.stationarity import Stationarity

NAMES = ["a", "b", "c", "mu", "mu", "mu"]
N = 2000


def looked_at(shift: np.ndarray, scale: np.ndarray) -> Stationarity:
    """Looks at draws z ~ N(shift, scale²) where the posterior is N(0, 1); the sphere is right."""
    rng = np.random.default_rng(1)
    stationarity = Stationarity(6, 3, N)
    for _ in range(N):
        z = np.concatenate([shift + scale * rng.standard_normal(3), rng.standard_normal(3)])
        stationarity.look(z, np.concatenate([-z[:3], 0.3 * rng.standard_normal(3)]))
    return stationarity


def swapping() -> np.ndarray:
    """L in whose coordinates the last variable of the model comes first."""
    return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [30.0, 0.0, 0.0]])


METRICS = {
    "diagonal": (np.array([1.0, 10.0, 0.1]), NAMES),
    "dense": (swapping(), ["c", "a", "b"]),
}


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("place", range(3))
def test_names_the_variable(kind, place):
    factor, names = METRICS[kind]
    metric = Metric(np.zeros(3), factor, np.ones(1))
    off = 0.5 * np.eye(3)[place]
    of_mean = complaint_about(looked_at(off, np.ones(3)), metric, NAMES)
    assert of_mean is not None
    assert of_mean.startswith(f"the mean of {names[place]!r} is 0.")
    of_variance = complaint_about(looked_at(np.zeros(3), 1.0 + off), metric, NAMES)
    assert of_variance is not None
    assert of_variance.startswith(f"the variance of {names[place]!r} is off")


@pytest.mark.parametrize("kind", METRICS)
def test_names_all_variables_with_their_number(kind):
    factor, names = METRICS[kind]
    metric = Metric(np.zeros(3), factor, np.ones(1))
    stretched = complaint_about(
        looked_at(np.zeros(3), np.array([1.9, 1.0, 1.5])), metric, [*NAMES[:3], "d", "e", "f"]
    )
    expected = f"This concerns 2 of 6 coordinates: {names[0]!r}, {names[2]!r}."
    assert expected in stretched
    shifted = complaint_about(looked_at(np.array([0.9, 0.0, 0.5]), np.ones(3)), metric, NAMES)
    assert expected in shifted
    in_the_model = complaint_in_the_model(looked_at(np.array([0.9, 0.0, 0.5]), np.ones(3)), NAMES)
    assert "This concerns 2 of 6 coordinates: 'a', 'c'." in in_the_model


def test_a_long_list_is_cut():
    """Of rare indicators there may be hundreds."""
    d = MOST_NAMES + 7
    settings = underdamped_parameters(np.full(d, 9.0))
    metric, names = Metric(np.zeros(d), np.ones(d)), [f"b[{i}]" for i in range(d)]
    complaint = complaint_about_noise(settings, np.full(d, 6.0), metric, names)
    assert f"This concerns {d} of {d} coordinates: 'b[0]', 'b[1]', " in complaint
    assert f"'b[{MOST_NAMES - 1}]' and 7 more. " in complaint
    one = complaint_about_noise(settings, np.eye(d)[3] * 6.0, metric, names)
    assert "'b[3]'" in one
    assert "This concerns" not in one


def test_right_draws_deserve_no_word():
    metric = Metric(np.zeros(3), np.eye(3), np.ones(1))
    assert complaint_about(looked_at(np.zeros(3), np.ones(3)), metric, NAMES) is None


@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_a_chain_that_does_not_move_is_reported(scale):
    rng = np.random.default_rng(1)
    frozen = Stationarity(2, 2, N)
    for draw in range(4 * N):
        z = 0.3 + scale * rng.standard_normal(2)
        frozen.pass_by(z)
        if draw % 4 == 0:
            frozen.look(z, -z + 30.0 * rng.standard_normal(2))
    complaint = complaint_about(frozen, Metric(np.zeros(2), np.ones(2)), ["a", "b"])
    assert (complaint is not None and "does not move" in complaint) == (scale < 0.01)


@pytest.mark.parametrize("has_momentum", [True, False])
def test_noise_that_few_minibatches_make_is_named(has_momentum):
    """One minibatch in two hundred makes all of the noise of the third direction."""
    rng = np.random.default_rng(1)
    differences = rng.standard_normal((100, 8, 3))
    differences[..., 2] *= np.sqrt(200.0) * (rng.random((100, 8)) < 1.0 / 200.0)
    noise = NoiseVariance.empty(3)
    noise.add(20.0 * differences**2)
    make = underdamped_parameters if has_momentum else overdamped_parameters
    settings = make(noise.mean)
    for factor, expected in ((np.ones(3), "c"), (swapping(), "b")):
        metric = Metric(np.zeros(3), factor)
        complaint = complaint_about_noise(settings, noise.error, metric, NAMES)
        # without a momentum so little of the noise is let in that it does no harm
        assert (complaint is not None) == has_momentum
        if has_momentum:
            assert f"noise of {expected!r} is known badly" in complaint
    even = NoiseVariance.empty(3)
    even.add(20.0 * rng.standard_normal((100, 8, 3)) ** 2)
    metric = Metric(np.zeros(3), np.ones(3))
    assert complaint_about_noise(make(even.mean), even.error, metric, NAMES) is None
