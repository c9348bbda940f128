"""Diagnoses: values, coordinates of the model, and the text of the warning."""

import numpy as np
import pytest

from pymc_geodesic.adaptation.langevin_parameters import (
    overdamped_parameters,
    underdamped_parameters,
)
from pymc_geodesic.adaptation.noise_diagnosis import diagnose_noise
from pymc_geodesic.adaptation.noise_variance import NoiseVariance
from pymc_geodesic.gradients.metric import Metric
from pymc_geodesic.monitoring.diagnosis import SETTINGS, Diagnosis
from pymc_geodesic.monitoring.stationarity import Stationarity
from pymc_geodesic.monitoring.stationarity_monitors import diagnose_in_model, diagnose_whitened

NAMES = ["a", "b", "c", "mu", "mu", "mu"]
N = 2000


def checked(shift: np.ndarray, scale: np.ndarray) -> Stationarity:
    """Checks of z ~ N(shift, scale²) where the posterior is N(0, 1); the sphere is right."""
    rng = np.random.default_rng(1)
    stationarity = Stationarity(6, 3, N)
    for _ in range(N):
        z = np.concatenate([shift + scale * rng.standard_normal(3), rng.standard_normal(3)])
        stationarity.check(z, np.concatenate([-z[:3], 0.3 * rng.standard_normal(3)]))
    return stationarity


def swapping() -> np.ndarray:
    """L in whose coordinates the last variable of the model comes first."""
    return np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0], [30.0, 0.0, 0.0]])


METRICS = {
    "diagonal": (np.array([1.0, 10.0, 0.1]), NAMES),
    "dense": (swapping(), ["c", "a", "b"]),
}


@pytest.mark.parametrize("kind", METRICS)
@pytest.mark.parametrize("coordinate", range(3))
def test_names_the_variable(kind, coordinate):
    factor, names = METRICS[kind]
    metric = Metric(np.zeros(3), factor, np.ones(1))
    off = 0.5 * np.eye(3)[coordinate]
    of_mean = diagnose_whitened(checked(off, np.ones(3)), metric, NAMES)
    assert (of_mean.quantity, of_mean.coordinates[0]) == ("error of the mean", names[coordinate])
    assert of_mean.value == pytest.approx(0.5, abs=0.1)
    of_variance = diagnose_whitened(checked(np.zeros(3), 1.0 + off), metric, NAMES)
    assert of_variance.quantity == "configurational temperature"
    assert of_variance.coordinates == (names[coordinate],)
    assert of_variance.value == pytest.approx(1.5**2, abs=0.3)
    assert {of_mean.anchor, of_variance.anchor} == {"stationarity"}


@pytest.mark.parametrize("kind", METRICS)
def test_names_all_variables_with_their_number(kind):
    factor, names = METRICS[kind]
    metric = Metric(np.zeros(3), factor, np.ones(1))
    stretched = diagnose_whitened(
        checked(np.zeros(3), np.array([1.9, 1.0, 1.5])), metric, [*NAMES[:3], "d", "e", "f"]
    )
    expected = f"This concerns 2 of 6 coordinates: {names[0]!r}, {names[2]!r}."
    assert stretched.finding.endswith(expected)
    shifted = diagnose_whitened(checked(np.array([0.9, 0.0, 0.5]), np.ones(3)), metric, NAMES)
    assert shifted.finding.endswith(expected)
    in_model = diagnose_in_model(checked(np.array([0.9, 0.0, 0.5]), np.ones(3)), NAMES)
    assert in_model.quantity == "mean gradient"
    assert in_model.finding.endswith("This concerns 2 of 6 coordinates: 'a', 'c'.")


def test_text_of_a_warning():
    """A line with the finding, a line with the remedy, and the address of the section."""
    diagnosis = Diagnosis(
        quantity="temperature",
        condition="with step size 1",
        value=1.2345,
        error=0.0123,
        expected=1.0,
        consequence="the draws are wide",
        remedy="Use {minibatches}.",
        anchor="temperature",
    )
    found, remedy = diagnosis.message("SGGMC[x{0}]", "batch_size <= 9").splitlines()
    assert found == (
        "SGGMC[x{0}]: The temperature with step size 1 is 1.23 (standard error 0.012, expected 1): "
        "the draws are wide."
    )
    assert remedy.startswith("Use batch_size <= 9. See ")
    assert remedy.endswith("#temperature")


def test_a_long_list_is_cut():
    """Of rare indicators there may be hundreds."""
    d = SETTINGS.max_names + 7
    parameters = underdamped_parameters(np.full(d, 9.0))
    metric, names = Metric(np.zeros(d), np.ones(d)), [f"b[{i}]" for i in range(d)]
    many = diagnose_noise(parameters, np.full(d, 6.0), metric, names)
    assert len(many.coordinates) == d
    assert f"This concerns {d} of {d} coordinates: 'b[0]', 'b[1]', " in many.finding
    assert many.finding.endswith(f"'b[{SETTINGS.max_names - 1}]' and 7 more.")
    one = diagnose_noise(parameters, np.eye(d)[3] * 6.0, metric, names)
    assert "'b[3]'" in one.finding
    assert "This concerns" not in one.finding


def test_right_draws_have_no_diagnosis():
    metric = Metric(np.zeros(3), np.eye(3), np.ones(1))
    assert diagnose_whitened(checked(np.zeros(3), np.ones(3)), metric, NAMES) is None


@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_a_chain_that_does_not_move_is_reported(scale):
    rng = np.random.default_rng(1)
    frozen = Stationarity(2, 2, N)
    for draw in range(4 * N):
        z = 0.3 + scale * rng.standard_normal(2)
        frozen.observe(z)
        if draw % 4 == 0:
            frozen.check(z, -z + 30.0 * rng.standard_normal(2))
    found = diagnose_whitened(frozen, Metric(np.zeros(2), np.ones(2)), ["a", "b"])
    assert (found is not None and "does not move" in found.finding) == (scale < 0.01)


@pytest.mark.parametrize("has_momentum", [True, False])
def test_noise_that_few_minibatches_make_is_named(has_momentum):
    """One minibatch in two hundred makes all of the noise of the third direction."""
    rng = np.random.default_rng(1)
    differences = rng.standard_normal((100, 8, 3))
    differences[..., 2] *= np.sqrt(200.0) * (rng.random((100, 8)) < 1.0 / 200.0)
    noise = NoiseVariance.empty(3)
    noise.add(20.0 * differences**2)
    make = underdamped_parameters if has_momentum else overdamped_parameters
    parameters = make(noise.mean)
    for factor, expected in ((np.ones(3), "c"), (swapping(), "b")):
        found = diagnose_noise(parameters, noise.error, Metric(np.zeros(3), factor), NAMES)
        # without a momentum so little of the noise is subtracted that it does no harm
        assert (found is not None) == has_momentum
        if has_momentum:
            assert found.coordinates[0] == expected
            assert found.value > found.expected
    even = NoiseVariance.empty(3)
    even.add(20.0 * rng.standard_normal((100, 8, 3)) ** 2)
    metric = Metric(np.zeros(3), np.ones(3))
    assert diagnose_noise(make(even.mean), even.error, metric, NAMES) is None
