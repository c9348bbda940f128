"""Kinetic temperature of a chain, and the variance that Euler's method loses."""

import numpy as np
import pytest

from pymc_geodesic.monitoring.kinetic_temperature import TemperatureMonitor

N_DRAWS = 1000


def observed(*, by_euler: bool = False, **given: float) -> TemperatureMonitor:
    """Monitor of draws that all have the same sample stats."""
    monitor = TemperatureMonitor(np.array([10]), by_euler=by_euler)
    stats = {"temperature": 1.0, "n_steps": 10, "step_size": 0.1, "friction": 2.0}
    stats |= {"thermostat": 2.0, "largest_thermostat": 2.0} | given
    for _ in range(N_DRAWS):
        monitor.observe(np.zeros(10), stats)
    return monitor


@pytest.mark.parametrize(("temperature", "width"), [(1.25, "wider"), (0.75, "narrower")])
def test_temperature_above_and_below_1(temperature, width):
    found = observed(temperature=temperature).diagnosis(["x"])
    assert found.value == pytest.approx(temperature)
    assert f"the draws are {width} than the posterior" in found.finding
    assert "Omit step_size, friction and gradient_noise" in found.remedy
    assert "otherwise use {minibatches}, GMC or NUTS" in found.remedy


@pytest.mark.parametrize("temperature", [0.91, 1.0, 1.09])
def test_small_errors_are_accepted(temperature):
    assert observed(temperature=temperature).diagnosis(["x"]) is None


def test_thermostat_at_its_bound():
    stats = {"temperature": 1.5, "largest_thermostat": 9.5}
    found = observed(by_euler=True, **stats).diagnosis(["x"])
    assert "with the thermostat at its bound, 1/step_size = 10, is 1.5" in found.finding
    assert "the thermostat" not in observed(**stats).diagnosis(["x"]).finding


def test_variance_that_eulers_method_loses():
    found = observed(by_euler=True, thermostat=4.0).diagnosis(["x"])
    assert found.value == pytest.approx(0.2)
    assert "gSGNHT" in found.remedy
    assert observed(by_euler=True, thermostat=1.0).diagnosis(["x"]) is None
    assert observed(thermostat=4.0).diagnosis(["x"]) is None


def test_continues_from_its_state():
    whole = observed(temperature=1.25)
    copy = TemperatureMonitor(np.array([10]))
    copy.state = whole.state
    assert copy.state == whole.state
    assert copy.diagnosis(["x"]) == whole.diagnosis(["x"])
