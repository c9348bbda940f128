"""Diagnostics of selected, concatenated or transposed draws."""

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr

from pymc_geodesic import VonMisesFisher
from pymc_geodesic.diagnostics import ksd, stein_thinning
from pymc_geodesic.directional import mean_direction, summary

MEANS = np.array([[0.0, 5.0], [-5.0, 20.0]])
POLE = np.array([0.0, 0.6, 0.8])
COORDS = {"side": ["left", "right"], "time": ["am", "pm"], "axis": ["x", "y", "z"]}


@pytest.fixture(scope="module")
def model():
    with pm.Model(coords=COORDS) as model:
        pm.Normal("w", MEANS, 1.0, dims=("side", "time"))
        pm.Normal("v", [0.0, 9.0], 1.0, shape=2)
        VonMisesFisher("mu", POLE, 30.0, dims="axis")
    return model


@pytest.fixture(scope="module")
def posterior(model):
    """Exact draws of two chains."""
    drawn = pm.draw([model["w"], model["v"], model["mu"]], 100, random_seed=1)
    shaped = {
        name: values.reshape(2, 50, *values.shape[1:])
        for name, values in zip(("w", "v", "mu"), drawn, strict=True)
    }
    dims = {"w": ["side", "time"], "mu": ["axis"]}
    return az.from_dict({"posterior": shaped}, coords=COORDS, dims=dims)["posterior"].to_dataset()


def tree(posterior):
    return xr.DataTree.from_dict({"posterior": posterior})


TURNED = {
    "axes": lambda draws: draws.transpose("chain", "draw", "time", "side", ...),
    "draws first": lambda draws: draws.transpose("draw", "chain", ...),
    "draws last": lambda draws: draws.transpose(..., "chain", "draw"),
    "labels": lambda draws: draws.isel(axis=[2, 0, 1], side=[1, 0]),
    "numbers": lambda draws: draws.isel(v_dim_0=[1, 0]),
}


@pytest.mark.parametrize("turn", TURNED.values(), ids=TURNED.keys())
def test_the_order_of_axes_and_labels_does_not_matter(model, posterior, turn):
    turned, straight = (
        ksd(tree(draws), model, metric="diag", random_seed=1)
        for draws in (turn(posterior), posterior)
    )
    assert straight.p_value > 0.01
    assert turned.statistic == pytest.approx(straight.statistic, abs=1e-9)


def test_coordinate_labels_are_kept(model, posterior):
    renamed = posterior.assign_coords(axis=["east", "north", "up"])
    assert ksd(tree(renamed), model, random_seed=1).p_value > 0.01


def test_one_chain_without_its_axis(model, posterior):
    one, listed = (tree(posterior.sel(chain=chain)) for chain in (1, [1]))
    assert ksd(one, model).statistic == ksd(listed, model).statistic
    few, same = (stein_thinning(each, model, 5, laplacian=False) for each in (one, listed))
    xr.testing.assert_equal(few["posterior"].to_dataset(), same["posterior"].to_dataset())
    assert np.all(few["sample_stats"]["source_chain"] == 1)
    xr.testing.assert_equal(mean_direction(one, "mu"), mean_direction(listed, "mu"))
    assert summary(one, "mu", hdr=False).shape == (1, 8)


def test_the_group_itself(model, posterior):
    node = tree(posterior)["posterior"]
    assert ksd(node, model).statistic == ksd(tree(posterior), model).statistic


def test_directions_with_draws_last(posterior):
    last = posterior.transpose("axis", ...)
    xr.testing.assert_equal(mean_direction(tree(last), "mu"), mean_direction(posterior, "mu"))


def test_stacked_draws_raise(model, posterior):
    stacked = posterior.stack(sample=("chain", "draw"))
    with pytest.raises(ValueError, match=r"stacked along 'sample'.*that pm\.sample returned"):
        ksd(tree(stacked), model)
    with pytest.raises(ValueError, match="stacked along 'sample'"):
        summary(tree(stacked))
    with pytest.raises(ValueError, match=r"no dimension 'chain'.*keep the dimension"):
        ksd(tree(posterior.isel(chain=0).drop_vars("chain")), model)
