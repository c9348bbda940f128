import arviz as az
import numpy as np
import pytest

from pymc_geodesic.diagnostics import temperature_summary


def with_temperature(values):
    draws = np.zeros(values.shape[:2])
    return az.from_dict({"posterior": {"x": draws}, "sample_stats": {"temperature": values}})


def test_mean_and_error_per_chain():
    rng = np.random.default_rng(1)
    values = rng.normal([[1.0], [1.05], [0.85]], 0.2, size=(3, 400))
    summary = temperature_summary(with_temperature(values))
    np.testing.assert_allclose(summary["mean"], values.mean(axis=1))
    # Independent draws: the Monte Carlo error is the standard error of the mean.
    np.testing.assert_allclose(summary["mcse"], 0.2 / np.sqrt(400), rtol=0.3)
    np.testing.assert_array_equal(summary["off"], [False, False, True])


def test_the_summary_prints_as_a_table():
    """A header, the name of the index and a line for each chain."""
    values = np.random.default_rng(1).normal(1.0, 0.1, size=(3, 50))
    lines = str(temperature_summary(with_temperature(values))).splitlines()
    assert lines[0].split() == ["mean", "mcse", "off"]
    assert [line.split()[0] for line in lines[1:]] == ["chain", "0", "1", "2"]
    with pytest.raises(ValueError, match="`fmt` must be 'wide' or 'xarray', got 'long'"):
        temperature_summary(with_temperature(values), fmt="long")


def test_the_tolerance_is_an_argument():
    values = np.random.default_rng(1).normal(1.05, 0.01, size=(1, 100))
    assert temperature_summary(with_temperature(values), tolerance=0.02)["off"].all()
    assert not temperature_summary(with_temperature(values))["off"].any()


def test_several_samplers_have_separate_rows():
    values = np.random.default_rng(1).normal([1.0, 2.0], 0.1, size=(2, 100, 2))
    summary = temperature_summary(with_temperature(values))
    np.testing.assert_array_equal(summary["off"], [False, True, False, True])
    assert summary.index.names == ["chain", "sampler"]
    as_dataset = temperature_summary(with_temperature(values), fmt="xarray")
    np.testing.assert_array_equal(as_dataset["off"], [[False, True], [False, True]])


def test_draws_without_temperature_raise():
    with pytest.raises(ValueError, match="contain no temperature"):
        temperature_summary(az.from_dict({"posterior": {"x": np.zeros((1, 4))}}))
