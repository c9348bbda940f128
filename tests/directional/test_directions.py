"""Means, regions and summary tables of directions, against closed forms."""

import re
import warnings
from pathlib import Path

import arviz as az
import numpy as np
import pytest
import xarray as xr
from scipy.special import i0

from benchmarks.coverage_of_regions import coverage
from pymc_geodesic.directional import (
    credible_cap,
    direction_variables,
    from_declination_inclination,
    from_lonlat,
    hdi,
    hdr,
    mean_direction,
    simplex_summary,
    summary,
    to_declination_inclination,
    to_lonlat,
)
from pymc_geodesic.directional.density import kernel_density
from pymc_geodesic.directional.direction_variables import classify_variable
from pymc_geodesic.directional.mean_direction import stack_batches


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def von_mises_fisher(rng, mean, kappa, size):
    """Exact draws in the plane or in space, shape (*size, d)."""
    if len(mean) == 2:
        angle = np.arctan2(mean[1], mean[0]) + rng.vonmises(0.0, kappa, size=size)
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    cosine = 1.0 + np.log1p(rng.random(size) * np.expm1(-2.0 * kappa)) / kappa
    tangent = rng.standard_normal((*np.atleast_1d(size), 3))
    tangent = unit(tangent - (tangent @ mean)[..., None] * mean)
    return cosine[..., None] * np.asarray(mean) + np.sqrt(1 - cosine**2)[..., None] * tangent


def cap_radius(kappa, prob):
    """Radius of the cap with this probability under a von Mises–Fisher distribution."""
    return np.arccos(1.0 + np.log1p(prob * np.expm1(-2.0 * kappa)) / kappa)


def lattice(n):
    """Evenly distributed points on the sphere, each with the area 4π / n."""
    z = 1.0 - (2.0 * np.arange(n) + 1.0) / n
    return from_lonlat(np.arange(n) * np.pi * (3 - np.sqrt(5)), np.arcsin(z), unit="rad")


@pytest.fixture
def rng():
    return np.random.default_rng(1)


@pytest.fixture
def idata(rng):
    share = rng.dirichlet([1.0, 4.0, 2.0], size=(2, 200))
    return az.from_dict(
        {
            "posterior": {
                "mu": von_mises_fisher(rng, np.array([0.0, 0.6, -0.8]), 50.0, (2, 200, 4)),
                "plane": von_mises_fisher(rng, np.array([-1.0, 0.0]), 50.0, (2, 200)),
                "long": unit(rng.normal(size=(2, 200, 7)) + 3.0),
                "frame": np.linalg.qr(rng.normal(size=(2, 200, 5, 2)))[0],
                "share": share,
                "angle": np.pi + rng.vonmises(0.0, 50.0, size=(2, 200)),
                "number": rng.normal(size=(2, 200)),
                "numbers": rng.normal(size=(2, 200, 3)),
            }
        },
        dims={"mu": ["site", "component"], "share": ["party"]},
        coords={"site": list("abcd"), "party": ["red", "green", "blue"]},
    )


@pytest.mark.parametrize("unit_name", ["deg", "rad"])
def test_coordinates_round_trip(rng, unit_name):
    x = unit(rng.normal(size=(50, 2, 3)))
    np.testing.assert_allclose(from_lonlat(*to_lonlat(x, unit=unit_name), unit=unit_name), x)
    there = to_declination_inclination(x, unit=unit_name)
    assert (there[0] >= 0).all()
    np.testing.assert_allclose(from_declination_inclination(*there, unit=unit_name), x, atol=1e-12)


def test_coordinates_of_known_points():
    north, east, down = np.eye(3)
    assert to_declination_inclination(east) == (90.0, 0.0)
    assert to_declination_inclination(down)[1] == 90.0
    assert to_declination_inclination(-east) == (270.0, 0.0)
    assert to_lonlat(-north)[0] == 180.0
    with pytest.raises(ValueError, match="`lat` must lie between"):
        from_lonlat(0.0, 91.0)
    with pytest.raises(ValueError, match="`inclination` must lie between"):
        from_declination_inclination(0.0, -100.0)
    with pytest.raises(ValueError, match="three components"):
        to_lonlat([1.0, 0.0])
    with pytest.raises(ValueError, match="`unit` must be"):
        to_lonlat([1.0, 0.0, 0.0], unit="gon")


def test_variables_are_classified_by_values(idata):
    assert direction_variables(idata) == {
        "mu": "direction",
        "plane": "direction",
        "long": "direction",
        "frame": "frame",
        "share": "simplex",
    }
    assert direction_variables(idata, "angle", angles=["angle"]) == {"angle": "angle"}


def test_variables_are_classified_by_attribute(idata):
    idata["posterior"]["angle"].attrs["manifold"] = "angle"
    assert direction_variables(idata, "angle") == {"angle": "angle"}
    idata["posterior"]["angle"].attrs["manifold"] = "torus"
    with pytest.raises(ValueError, match="'torus'; it must be one of"):
        direction_variables(idata, "angle")


def test_single_precision_and_values_that_are_not_finite(idata):
    single = idata["posterior"].to_dataset()[["mu"]].astype(np.float32)
    broken = single.copy(deep=True)
    broken["mu"].values[0, 0, 0, 0] = np.nan
    assert direction_variables(xr.DataTree.from_dict({"posterior": single})) == {"mu": "direction"}
    assert direction_variables(xr.DataTree.from_dict({"posterior": broken})) == {}


def test_invalid_directions_raise(idata):
    with pytest.raises(ValueError, match="'numbers' should be a direction or"):
        summary(idata, "numbers")
    with pytest.raises(ValueError, match=r"'share' should be .* a simplex of length 3"):
        summary(idata, "share")
    with pytest.raises(ValueError, match="holds no variable 'missing'"):
        summary(idata, "missing")
    with pytest.raises(ValueError, match="no group 'prior'"):
        summary(idata, group="prior")
    only = az.from_dict({"posterior": {"x": np.zeros((2, 10))}})
    with pytest.raises(ValueError, match="No variable of the group 'posterior'"):
        summary(only)
    with pytest.raises(ValueError, match="`coordinates` must be"):
        summary(idata, coordinates="utm")
    with pytest.raises(ValueError, match="`fmt` must be"):
        summary(idata, fmt="long")
    with pytest.raises(ValueError, match="`ci_prob` must lie"):
        summary(idata, ci_prob=94)
    with pytest.raises(ValueError, match="lengths go from"):
        credible_cap(np.ones((5, 3)))
    with pytest.raises(ValueError, match="in the plane and in space"):
        hdr(unit(np.ones((5, 4))))


def test_mean_of_frames_is_the_nearest_frame(rng):
    frames = np.linalg.qr(rng.normal(size=(1, 60, 4, 2)) * 0.3 + np.eye(4, 2))[0]
    frames *= np.sign(frames[..., :1, :1])
    mean = mean_direction(az.from_dict({"posterior": {"F": frames}}), "F")["F"].values
    np.testing.assert_allclose(mean.T @ mean, np.eye(2), atol=1e-12)

    def distance(frame):
        return ((frames[0] - frame) ** 2).sum()

    for _ in range(200):
        other = np.linalg.qr(mean + 0.1 * rng.normal(size=mean.shape))[0]
        other *= np.sign((other * mean).sum(axis=0))
        assert distance(other) > distance(mean)


def test_one_column_of_a_frame_is_a_direction(rng):
    x = von_mises_fisher(rng, np.array([0.0, 0.6, 0.8]), 20.0, (2, 300))
    both = az.from_dict({"posterior": {"x": x, "F": x[..., None]}})
    assert direction_variables(both) == {"x": "direction", "F": "frame"}
    table = summary(both, hdr=False, coordinates="vector")
    np.testing.assert_allclose(table.loc["F"], table.loc["x"])


def test_mean_of_an_axis_is_invariant_to_signs(rng):
    x = von_mises_fisher(rng, np.array([0.0, 0.6, 0.8]), 20.0, (2, 500))
    signs = rng.choice([-1.0, 1.0], size=(2, 500, 1))
    idata = az.from_dict({"posterior": {"x": x, "axis": signs * x}})
    with pytest.warns(UserWarning, match="'axis' vanishes and they lie along an axis"):
        mean = mean_direction(idata)
    assert mean["axis"].values @ mean["x"].values > 0.9999
    found = mean_direction(idata, axial=["axis"])
    np.testing.assert_array_equal(found["axis"], mean["axis"])
    table = summary(idata, axial="axis", hdr=False)
    np.testing.assert_allclose(
        table.loc["axis", ["resultant_length", "cap89_radius", "lat"]],
        table.loc["x", ["resultant_length", "cap89_radius", "lat"]],
        rtol=0.02,
    )
    for summarise in (mean_direction, summary):  # a misspelled name
        with pytest.raises(ValueError, match=r"`axial` names 'axes', but .* are x, axis"):
            summarise(idata, "axis", axial="axes")
    # Chains on opposite sides have converged for axes, but not for directions.
    x[0] *= -1
    opposite = az.from_dict({"posterior": {"x": x}})
    assert summary(opposite, axial=True, hdr=False)["r_hat_max"].item() < 1.05
    assert summary(opposite, axial=False, hdr=False)["r_hat_max"].item() > 1.5


def test_uniform_direction_is_not_an_axis(rng):
    uniform = unit(rng.normal(size=(2, 2000, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mean_direction(az.from_dict({"posterior": {"x": uniform}}))


@pytest.mark.parametrize("kappa", [3.0, 1e8])
def test_cap_and_region_against_closed_forms(rng, kappa):
    x = von_mises_fisher(rng, np.array([0.0, 0.6, 0.8]), kappa, 20_000)
    cap = credible_cap(x, ci_prob=0.9, unit="rad")
    radius = cap_radius(kappa, 0.9) if kappa < 1e6 else np.sqrt(2 * np.log(10) / kappa)
    assert cap.radius == pytest.approx(radius, rel=0.02)
    region = hdr(x, ci_prob=0.9)
    assert region.area == pytest.approx(4 * np.pi * np.sin(radius / 2) ** 2, rel=0.05)
    assert region.area_deg2 == pytest.approx(region.area * (180 / np.pi) ** 2)
    assert region.contains(x).mean() == pytest.approx(0.9, abs=0.02)


def test_region_of_two_modes_is_not_the_cap(rng):
    modes = np.concatenate([von_mises_fisher(rng, np.array(m), 400.0, 2000) for m in np.eye(3)[:2]])
    region = hdr(modes, ci_prob=0.9)
    radius = cap_radius(400.0, 0.9)
    assert region.area == pytest.approx(2 * 4 * np.pi * np.sin(radius / 2) ** 2, rel=0.08)
    assert not region.contains(unit(np.array([1.0, 1.0, 0.0])))
    axes = hdr(modes, ci_prob=0.9, axial=True)
    assert axes.area == pytest.approx(2 * region.area, rel=0.08)
    assert axes.contains([-1.0, 0.0, 0.0])


def test_region_on_the_circle(rng):
    from scipy.stats import vonmises

    x = von_mises_fisher(rng, np.array([-1.0, 0.0]), 8.0, 20_000)
    region = hdr(x, ci_prob=0.9)
    assert region.area == pytest.approx(2 * vonmises(8.0).ppf(0.95), rel=0.04)
    assert region.area_deg2 == pytest.approx(np.degrees(region.area))


@pytest.mark.parametrize("axial", [False, True])
@pytest.mark.parametrize("kappa", [0.0, 2.0, 300.0])
def test_density_integrates_to_one(rng, kappa, axial):
    plane = von_mises_fisher(rng, np.array([0.0, 1.0]), kappa, 400)
    turn = np.linspace(0.0, 2 * np.pi, 4000, endpoint=False)
    density = kernel_density(plane, axial=axial)
    assert density(np.stack([np.cos(turn), np.sin(turn)], axis=-1)).mean() * 2 * np.pi == (
        pytest.approx(1.0)
    )
    space = von_mises_fisher(rng, np.array([0.0, 0.6, 0.8]), max(kappa, 1e-3), 400)
    density = kernel_density(space, axial=axial)
    assert density(lattice(20_000)).mean() * 4 * np.pi == pytest.approx(1.0, rel=2e-3)


def test_density_is_near_the_true_density(rng):
    angle = np.linspace(-np.pi, np.pi, 200)
    grid = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    exact = np.exp(3 * np.cos(angle)) / (2 * np.pi * i0(3.0))
    found = kernel_density(von_mises_fisher(rng, np.array([1.0, 0.0]), 3.0, 20_000))(grid)
    assert np.abs(found - exact).max() < 0.08 * exact.max()


def test_repeated_draws_do_not_narrow_the_kernels(rng):
    x = von_mises_fisher(rng, np.array([0.0, 0.6, 0.8]), 20.0, 300)
    moving, staying = kernel_density(x), kernel_density(np.repeat(x, 2, axis=0))
    assert staying.concentration < 2 * moving.concentration


def shortest_arc(turn, count):
    """The definition, with every draw as the lower end."""
    widths = [np.sort((turn - begin) % (2 * np.pi))[count - 1] for begin in turn]
    return min(widths)


def test_hdi_is_the_shortest_arc(rng):
    turn = np.pi + rng.vonmises(0.0, 2.0, size=99)
    low, high = hdi(turn, ci_prob=0.8)
    assert -np.pi < high < low <= np.pi  # crosses π
    assert (high - low) % (2 * np.pi) == pytest.approx(shortest_arc(turn, 80))
    both = np.concatenate([turn, turn + np.pi])
    axis = hdi(both, ci_prob=0.8, axial=True, unit="rad")
    assert (axis[1] - axis[0]) % np.pi < (high - low) % (2 * np.pi)
    with pytest.raises(ValueError, match="at least one value"):
        hdi([])


def test_axes_in_the_plane_lie_in_the_half_turn_of_their_arc(rng):
    """An axis at 100° is one at −80°, as its arc is."""
    angle = np.radians(100.0 + rng.normal(size=(2, 200))) + np.pi * rng.integers(2, size=(2, 200))
    axis = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    idata = az.from_dict({"posterior": {"axis": axis}})
    row = summary(idata, axial=True, hdr=False, ci_prob=0.9).loc["axis"]
    assert row["angle"] == pytest.approx(-80.0, abs=0.5)
    assert row["arc90_lb"] < row["angle"] < row["arc90_ub"]


@pytest.mark.parametrize(("prob", "label"), [(0.58, "58"), (0.94, "94"), (0.999, "99.9")])
def test_columns_name_their_probability(rng, prob, label):
    angle = rng.normal(size=(2, 600))
    table = summary(
        az.from_dict({"posterior": {"angle": angle}}), angles="angle", hdr=False, ci_prob=prob
    )
    assert f"cap{label}_radius" in table.columns
    assert f"arc{label}_lb" in table.columns


def test_summary_of_every_kind(idata):
    table = summary(idata, angles="angle", hdr=False)
    assert list(table.index) == [
        *(f"mu[{site}]" for site in "abcd"), "plane", "long", "frame", "angle",
    ]  # fmt: skip
    np.testing.assert_allclose(table.loc["mu[a]", "lat"], np.degrees(np.arcsin(-0.8)), atol=2)
    assert abs(table.loc["plane", "angle"]) == pytest.approx(180, abs=2)
    assert table.loc["frame"].notna().sum() == 6
    np.testing.assert_allclose(table["resultant_length"] + table["spherical_variance"], 1.0)
    radians = summary(idata, unit="rad", angles="angle", hdr=False)
    for column in ("lon", "lat", "angle", "cap89_radius", "arc89_lb"):
        np.testing.assert_allclose(np.radians(table[column]), radians[column])
    np.testing.assert_array_equal(table["r_hat_max"], radians["r_hat_max"])


def test_summary_coordinates(idata):
    mean = mean_direction(idata)
    table = summary(idata, ["mu", "long"], coordinates="vector", hdr=False)
    np.testing.assert_allclose(table.loc["mu[b]", ["x0", "x1", "x2"]], mean["mu"].sel(site="b"))
    np.testing.assert_allclose(table.loc["long", [f"x{i}" for i in range(7)]], mean["long"])
    table = summary(idata, "mu", coordinates="declination_inclination", hdr=False)
    vectors = from_declination_inclination(table["declination"], table["inclination"])
    np.testing.assert_allclose(vectors, mean["mu"])
    rounded = summary(idata, "mu", hdr=False, round_to=1)
    np.testing.assert_array_equal(rounded, rounded.round(1))


def test_summary_of_angles_around_the_discontinuity(idata):
    """R-hat of raw angles around π is far from 1; that of the embedding is not."""
    draws = idata["posterior"]["angle"]
    wrapped = (draws + np.pi) % (2 * np.pi) - np.pi
    jumping = wrapped.copy()
    jumping[0] = wrapped[0] % (2 * np.pi)
    tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"angle": jumping})})
    assert az.rhat(jumping).item() > 1.2
    table = summary(tree, angles="angle")
    assert table["r_hat_max"].item() < 1.05
    same = summary(idata, "angle", angles="angle")
    np.testing.assert_allclose(table, same, rtol=1e-3)  # R-hat depends on ties of rounded numbers


def test_summary_merges_with_that_of_arviz(idata):
    ours = summary(idata, angles="angle", fmt="xarray")
    for kind in ("eti", "hdi"):
        theirs = az.summary(idata, fmt="xarray", ci_kind=kind, round_to="none")
        assert not {*ours["summary"].values} & {*theirs["summary"].values}
        both = xr.merge([theirs, ours], join="outer", compat="no_conflicts")
        picked = {"summary": "cap89_radius", "site": "c", "component": 0}
        expected = ours["mu"].sel(summary="cap89_radius", site="c").item()
        assert both["mu"].sel(picked).item() == expected
        assert both["number"].sel(summary="mean").item() == theirs["number"].sel(summary="mean")


def test_column_order(idata):
    first = summary(idata, ["plane", "mu"])
    assert list(first.columns) == list(summary(idata, ["mu", "plane"]).columns)


def test_simplex_summary_orders_the_labels(idata):
    table = simplex_summary(idata, ci_prob=0.9)
    assert list(table.index) == ["share[green]", "share[blue]", "share[red]"]
    draws = idata["posterior"]["share"].values.reshape(-1, 3)
    np.testing.assert_allclose(table["mean"], draws.mean(axis=0)[[1, 2, 0]])
    largest = np.bincount(draws.argmax(axis=1), minlength=3) / len(draws)
    np.testing.assert_allclose(table["p_largest"], largest[[1, 2, 0]])
    np.testing.assert_allclose(table["rank"].sum(), 6.0)
    theirs = az.summary(idata, "share", ci_kind="hdi", ci_prob=0.9, round_to="none")
    np.testing.assert_allclose(
        table["hdi90_lb"].sort_index(), theirs["hdi90_lb"].astype(float).sort_index()
    )


@pytest.mark.parametrize(("prob", "name"), [(0.29, "hdi29"), (0.58, "hdi58"), (0.995, "hdi99.5")])
def test_column_names_of_intervals(idata, prob, name):
    """100 · 0.29 and 100 · 0.58 are a little below integers in floating point."""
    table = simplex_summary(idata, ci_prob=prob)
    assert [each for each in table.columns if "hdi" in each] == [f"{name}_lb", f"{name}_ub"]


def test_documented_columns_are_those_of_the_default_probability(idata):
    """The docstring and the guide list the columns as they are named by default."""
    page = (Path(__file__).parents[2] / "docs" / "directional.md").read_text()
    of_regions = re.compile(r"`((?:cap|arc|hdr)\d+_\w+)`")
    expected = {each for each in summary(idata).columns if of_regions.match(f"`{each}`")}
    documented = set(of_regions.findall(summary.__doc__))
    assert expected <= documented
    assert {name.split("_")[0] for name in documented} == {"cap89", "arc89", "hdr89"}
    in_page = set(of_regions.findall(page)) - {"cap94_radius"}  # of `ci_prob=0.94`
    assert in_page <= documented
    of_shares = set(re.findall(r"``(hdi\w+)``", simplex_summary.__doc__))
    assert of_shares <= set(simplex_summary(idata).columns)


def test_simplices_of_a_batch_keep_their_labels(rng):
    share = rng.dirichlet([1.0, 9.0], size=(2, 50, 3))
    idata = az.from_dict({"posterior": {"s": share}}, dims={"s": ["year", "party"]},
                         coords={"year": [1, 2, 3], "party": ["a", "b"]})  # fmt: skip
    table = simplex_summary(idata)
    assert list(table.index)[:4] == ["s[1, b]", "s[1, a]", "s[2, b]", "s[2, a]"]
    means = share.mean(axis=(0, 1))
    np.testing.assert_allclose(table["mean"].values.reshape(3, 2), means[:, ::-1])


def test_batches_need_chains(rng):
    with pytest.raises(ValueError, match="no dimension 'chain'"):
        stack_batches(xr.DataArray(np.zeros((5, 3)), dims=("draw", "x"), name="x"), 1)


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3])
def test_coverage_on_simulated_data(d):
    """A uniform prior and κ known: the posterior is von Mises–Fisher around the sum of the data."""
    prob, n_sets = 0.9, 1000
    found = coverage(d, n_sets, prob)
    error = np.sqrt(prob * (1 - prob) / n_sets)
    assert abs(found["cap"] - prob) < 4 * error, found
    assert abs(found["region"] - prob) < 4 * error, found
    if d == 2:  # the shortest of many arcs is a little too short
        assert abs(found["arc"] - prob) < 0.01 + 4 * error, found


def test_names_and_groups_are_those_of_arviz(idata):
    """As in `arviz.summary`: a group by itself, and names with a tilde."""
    every = list(direction_variables(idata))
    assert list(direction_variables(idata.posterior)) == every
    assert list(direction_variables(idata, f"~{every[0]}")) == every[1:]
    table = summary(idata, ["~" + every[0]], hdr=False)
    assert not table.index.str.startswith(every[0]).any()
    with pytest.raises(ValueError, match="Groups of the tree: posterior"):
        direction_variables(idata.posterior, group="prior")
    with pytest.raises(ValueError, match="no variable 'nothing' to exclude"):
        direction_variables(idata, "~nothing")


def test_error_messages_name_remedies(rng):
    x = unit(rng.normal(size=(2, 50, 3)))
    gap = np.where(np.arange(50)[:, None] == 3, np.nan, x)
    draws = az.from_dict({"posterior": {"x": x, "gap": gap, "angle": x[..., 0]}})
    with pytest.raises(ValueError, match=r"none of these, since 2 of its draws are not finite"):
        summary(draws, "gap")
    with pytest.raises(ValueError, match="a sum of one") as found:
        simplex_summary(draws)
    assert "angles=" not in str(found.value)
    with pytest.raises(ValueError, match="should be a direction or frame") as found:
        mean_direction(draws, "angle")
    assert "angles=" not in str(found.value)


def test_too_few_draws_for_a_probability_warn(rng):
    """The maximum of eight draws exceeds another draw with probability 8/9, below 90 %."""
    for n, warns in ((1, True), (8, True), (9, False)):
        x = unit(rng.normal([0.0, 0.0, 9.0], 1.0, size=(n, 3)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            credible_cap(x, ci_prob=0.9)
            hdi(np.arctan2(x[:, 0], x[:, 2]), ci_prob=0.9)
        found = [str(each.message) for each in caught if "too few" in str(each.message)]
        assert len(found) == (2 if warns else 0)
        assert all(f"{n} draws are too few for 90 %: take at least 9" in each for each in found)


def test_direction_along_an_axis_is_not_a_simplex(rng):
    """The vertex (0, 0, 1) has both norm one and sum one."""
    pole = np.broadcast_to([0.0, 0.0, 1.0], (2, 50, 3))
    mixed = np.where(rng.random((2, 50, 1)) < 0.5, pole, 1 / 3)
    idata = az.from_dict({"posterior": {"pole": pole.copy(), "share": mixed}})
    assert direction_variables(idata) == {"pole": "direction", "share": "simplex"}
    found = idata.posterior["pole"].assign_attrs(manifold="simplex")
    assert classify_variable(found) == "simplex"


def test_vectors_as_angles_raise(rng):
    angle = rng.vonmises(0.5, 5.0, size=(2, 30))
    with pytest.raises(ValueError, match=r"hold unit vectors.*arctan2"):
        hdi(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    with pytest.raises(ValueError, match=r"hold unit vectors.*credible_cap"):
        hdi(unit(rng.normal(size=(40, 3))))
    row = hdi(np.array([[0.6, 0.8]]), ci_prob=0.5)
    assert hdi(angle).shape == row.shape == (2,)


def test_cap_around_a_vanishing_mean_warns(rng):
    ends = unit(rng.normal([0.0, 0.0, 9.0], 1.0, size=(200, 3))) * rng.choice([-1, 1], (200, 1))
    with pytest.warns(UserWarning, match="lie along an axis.*`axial=True`"):
        wide = credible_cap(ends, ci_prob=0.9)
    assert credible_cap(ends, ci_prob=0.9, axial=True).radius < 20.0 < wide.radius


def test_angles_in_degrees_warn():
    degrees = np.random.default_rng(1).normal(200.0, 10.0, size=(2, 60))
    idata = az.from_dict({"posterior": {"wind": degrees}})
    with pytest.warns(UserWarning, match=r"angles of 'wind' .* value is 2\d\d.* np.radians"):
        direction_variables(idata, angles="wind")
    with pytest.warns(UserWarning, match=r"angles of 'angles' are interpreted as radians"):
        hdi(degrees)
    low, high = hdi(degrees, unit="deg", ci_prob=0.5)
    assert low < high
    assert abs(0.5 * (low + high) + 160.0) < 5.0
