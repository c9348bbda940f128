"""Plots of directions, with every installed backend."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.directional import (
    credible_cap,
    from_lonlat,
    hdi,
    hdr,
    plot_circular_density,
    plot_ppc_dist,
    plot_rose,
    plot_sphere,
    plot_ternary,
    plot_trace,
)
from pymc_geodesic.directional.compositions import CORNERS, ternary_contours
from pymc_geodesic.directional.plot_checks import angles_from_mean
from pymc_geodesic.directional.projections import (
    break_at_jumps,
    density_contour,
    equal_area,
    from_equal_area,
    mollweide,
)
from tests.back_ends import BACKENDS, assert_drawn, panels_of, require
from tests.grids import cross


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def around(rng, mean, scale, size):
    return unit(np.asarray(mean) + scale * rng.normal(size=(*size, len(mean))))


@pytest.fixture(scope="module")
def idata():
    rng = np.random.default_rng(1)
    draws = (2, 150)
    phase = np.repeat([["explore", "tune"]], 2, axis=0).repeat(75, axis=1)
    stats = {"temperature": rng.gamma(9.0, 1 / 9, size=draws)}
    return az.from_dict(
        {
            "posterior": {
                "mu": around(rng, [0.0, 0.6, 0.8], 0.2, (*draws, 2)),
                "heading": around(rng, [-1.0, 0.0], 0.3, draws),
                "share": rng.dirichlet([4.0, 8.0, 3.0], size=draws),
            },
            "sample_stats": stats | {"step_size": np.full(draws, 0.1)},
            "warmup_sample_stats": stats
            | {"step_size": rng.gamma(2.0, size=draws), "phase": phase},
            "posterior_predictive": {"y": around(rng, [0.0, 0.6, 0.8], 0.4, (2, 40, 50))},
            "observed_data": {"y": around(rng, [0.0, 0.6, 0.8], 0.4, (50,))},
        },
        dims={"share": ["party"]},
        coords={"party": ["red", "green", "blue"]},
        save_warmup=True,
    )


@pytest.fixture(params=BACKENDS)
def backend(request):
    require(request.param)
    return request.param


PLOTS = {
    "rose": (plot_rose, {}, 1),
    "rose of axes": (plot_rose, {"axial": True, "compass": True}, 1),
    "density": (plot_circular_density, {}, 1),
    "density on a line": (plot_circular_density, {"kind": "linear", "density": np.ones_like}, 1),
    "equal area": (plot_sphere, {}, 2),
    "lower hemisphere": (plot_sphere, {"axial": True, "lower_hemisphere": "east_north_up"}, 2),
    "Mollweide": (plot_sphere, {"projection": "mollweide"}, 2),
    "globe": (plot_sphere, {"projection": "3d"}, 2),
    "ternary": (plot_ternary, {}, 1),
    "trace": (plot_trace, {}, 3),
    "predictive": (plot_ppc_dist, {}, 1),
}


def panel(collection, name, **selection):
    return collection.get_target(name, selection)


@pytest.mark.parametrize(("name", "backend"), cross(PLOTS, BACKENDS), indirect=["backend"])
def test_plots_need_no_arguments_but_idata(idata, backend, name):
    plot, options, n_panels = PLOTS[name]
    assert_drawn(plot(idata, backend=backend, **options), backend, n_panels)


def test_angles_by_name(idata, backend):
    rng = np.random.default_rng(2)
    wind = az.from_dict({"posterior": {"wind": rng.vonmises(3.0, 2.0, size=(2, 60, 3))}})
    for plot in (plot_rose, plot_circular_density, plot_trace):
        assert len(panels_of(plot(wind, angles="wind", backend=backend))) == 3
    with pytest.raises(ValueError, match="No variable of the group 'posterior'"):
        plot_rose(wind, backend=backend)
    with pytest.raises(ValueError, match="'mu' should be a direction or angle of length 2"):
        plot_rose(idata, "mu", backend=backend)


def area(polygon):
    x, y = polygon.T
    return 0.5 * abs(np.sum(x * np.roll(y, -1) - y * np.roll(x, -1)))


def test_rose_shows_shares_as_areas(idata):
    ax = panel(plot_rose(idata, bins=12, backend="matplotlib"), "heading")
    angle = np.arctan2(*idata["posterior"]["heading"].values.reshape(-1, 2).T[::-1])
    counts, _ = np.histogram(angle % (2 * np.pi), np.linspace(0, 2 * np.pi, 13))
    found = [area(each.get_xy()) for each in ax.patches]
    np.testing.assert_allclose(found, counts / counts.sum(), rtol=0.01, atol=1e-9)


def test_rose_shows_mean_and_arc(idata):
    ax = panel(plot_rose(idata, ci_prob=0.8, backend="matplotlib"), "heading")
    arc, mean = (ax.lines[k].get_xydata() for k in (0, 1))
    rows = idata["posterior"]["heading"].values.reshape(-1, 2)
    rim = np.linalg.norm(arc[0]) / 0.97
    np.testing.assert_allclose(mean[1] / rim, rows.mean(axis=0), atol=1e-9)
    low, high = hdi(np.arctan2(rows[:, 1], rows[:, 0]), ci_prob=0.8)
    np.testing.assert_allclose(np.arctan2(arc[0, 1], arc[0, 0]), low)
    np.testing.assert_allclose(np.arctan2(arc[-1, 1], arc[-1, 0]), high)


@pytest.mark.parametrize("labels", [["east", "north"], ["E", "N"], ["Easting", "Northing"]])
def test_compass_with_labels_in_the_wrong_order_raises(labels):
    wind = unit(np.random.default_rng(1).normal(size=(2, 20, 5, 2)))
    idata = az.from_dict(
        {
            "posterior": {"wind": wind},
            "posterior_predictive": {"wind": wind},
            "observed_data": {"wind": wind[0, 0]},
        },
        dims={"wind": ["site", "axis"]},
        coords={"axis": labels},
    )
    for plot in (plot_rose, plot_circular_density, plot_ppc_dist):
        with pytest.raises(ValueError, match=r"mirrored. Swap them: idata.isel\(axis=\[1, 0\]\)"):
            plot(idata, "wind", compass=True)
    plot_rose(idata.isel(site=0), "wind")
    plot_rose(idata.isel(site=0, axis=[1, 0]), "wind", compass=True)


def test_compass_runs_clockwise_from_north():
    east = np.broadcast_to([-0.01, 1.0], (2, 20, 2))
    ax = panel(plot_rose(az.from_dict({"posterior": {"x": unit(east)}}), compass=True), "x")
    x, y = ax.lines[1].get_xydata()[1]
    assert x > 10 * abs(y)


def test_density_integrates_to_one_and_the_filled_part_to_its_share(idata):
    plot = plot_circular_density(
        idata, kind="linear", density=lambda a: 7 * np.exp(np.cos(a)), ci_prob=0.8,
        backend="matplotlib",
    )  # fmt: skip
    ax = panel(plot, "heading")
    for line in ax.lines[:2]:
        degrees, height = line.get_data()
        assert np.trapezoid(height, np.radians(degrees)) == pytest.approx(1.0, abs=1e-3)
    outside = ax.patches[0].get_xy()
    assert np.radians(area(outside)) == pytest.approx(0.8, abs=0.05)


def test_maps_preserve_areas():
    rng = np.random.default_rng(3)
    points = unit(rng.normal(size=(200, 3)))
    center = unit(np.array([0.3, -0.8, 0.2]))
    points = points[(points @ center > -0.95) & (np.abs(points[:, 2]) < 0.99)]
    seam = np.abs(np.arctan2(points[:, 1], points[:, 0])) > 3.0
    east = unit(np.cross([0.0, 0.0, 1.0], points))
    north = np.cross(points, east)
    step = 1e-5
    for project, keep in (
        (lambda x: equal_area(x, center), np.ones(len(points), bool)),
        (mollweide, ~seam),
    ):
        columns = [
            (project(unit(points + step * way)) - project(unit(points - step * way))) / (2 * step)
            for way in (east, north)
        ]
        determinant = columns[0][:, 0] * columns[1][:, 1] - columns[0][:, 1] * columns[1][:, 0]
        np.testing.assert_allclose(determinant[keep], 1.0, rtol=1e-4)


def test_equal_area_round_trip():
    rng = np.random.default_rng(3)
    points = unit(rng.normal(size=(50, 3)))
    for center in (np.array([0.0, 0.0, -1.0]), unit(np.array([1.0, 2.0, 3.0]))):
        plane = equal_area(points, center)
        np.testing.assert_allclose(from_equal_area(plane, center), points, atol=1e-9)
        angle = np.arccos(points @ center)
        np.testing.assert_allclose(np.linalg.norm(plane, axis=1), 2 * np.sin(angle / 2))
    assert np.isnan(from_equal_area([2.1, 0.0], [1.0, 0.0, 0.0])).all()
    # North is up, and east to the right.
    assert equal_area(from_lonlat(10.0, 0.0), [1.0, 0.0, 0.0])[0] > 0
    assert equal_area(from_lonlat(0.0, 10.0), [1.0, 0.0, 0.0])[1] > 0


def test_mollweide_of_known_points():
    np.testing.assert_allclose(mollweide(from_lonlat(180.0, 0.0)), [-2 * np.sqrt(2), 0.0])
    np.testing.assert_allclose(mollweide([0.0, 0.0, -1.0]), [0.0, -np.sqrt(2)], atol=1e-3)
    np.testing.assert_allclose(mollweide(from_lonlat(50.0, 0.0), np.radians(50.0)), 0.0, atol=1e-12)
    there_and_back = mollweide(from_lonlat(np.array([170.0, -170.0]), 0.0))
    assert np.isnan(break_at_jumps(there_and_back, 1.5)[1]).all()


@pytest.mark.parametrize(("scale", "axial"), cross([0.3, 0.01, 1.2], [True, False]))
def test_outline_of_a_region_contains_its_probability(scale, axial):
    """The area within the outline is that of the region, which holds its share of the draws."""
    rng = np.random.default_rng(4)
    mean = np.array([0.0, 0.6, 0.8])
    rows = around(rng, mean, scale, (1500,))
    region = hdr(rows, ci_prob=0.7, axial=axial)
    assert region.contains(rows).mean() == pytest.approx(0.7, abs=0.05)
    line = density_contour(region.density, region.level, mean)
    begin, end = line[::3], line[1::3]
    height = region.density(np.concatenate([begin, end]))
    np.testing.assert_allclose(height, region.level, rtol=0.08)
    # Green's theorem, on an equal-area map.
    a, b = equal_area(begin, mean), equal_area(end, mean)
    if scale < 1.0 and not axial:
        green = 0.5 * np.sum(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0])
        assert green == pytest.approx(region.area, rel=0.04)


def test_sphere_plots_draws_and_outlines_where_they_are(idata):
    collection = plot_sphere(idata, "mu", ci_probs=[0.6], backend="matplotlib")
    ax = panel(collection, "mu", mu_dim_0=1)
    rows = idata["posterior"]["mu"].values[:, :, 1].reshape(-1, 3)
    mean = unit(rows.mean(axis=0))
    offsets = ax.collections[0].get_offsets()
    np.testing.assert_allclose(offsets, equal_area(rows, mean), atol=1e-9)
    np.testing.assert_allclose(ax.collections[1].get_offsets(), [[0.0, 0.0]], atol=1e-7)
    region = hdr(rows, ci_prob=0.6)
    line = ax.lines[-1].get_xydata()
    inside = from_equal_area(line[np.isfinite(line[:, 0])], mean)
    np.testing.assert_allclose(region.density(inside), region.level, rtol=0.05)
    assert ax.get_title() == "mu[1]: 60% regions, rim at 45°"


@pytest.mark.parametrize(
    ("components", "vectors"),
    [("east_north_up", [[0.0, 1.0, -1.0], [1.0, 0.0, -1.0]]),
     ("north_east_down", [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])],
)  # fmt: skip
def test_lower_hemisphere_is_seen_from_above(components, vectors):
    """Directions plunging to the north are at the top, those to the east on the right; directions
    that point up are beyond the rim, and axes are on either side."""
    plunging = unit(np.array(vectors))
    draws = np.stack([plunging[[0, 0]], plunging[[1, 1]], -plunging[[0, 1]]], axis=1)
    idata = az.from_dict({"posterior": {"x": draws}})
    options = {"lower_hemisphere": components, "ci_probs": (), "backend": "matplotlib"}
    radius = 2.0 * np.sin(np.pi / 8)
    ax = panel(plot_sphere(idata, **options), "x")
    points = ax.collections[0].get_offsets()
    expected = [[0.0, radius], [radius, 0.0], [0.0, radius], [radius, 0.0]]
    np.testing.assert_allclose(points, expected, atol=1e-9)
    assert ax.get_title() == "x, rim at 90°, 33% beyond it"
    named = {text.get_text(): text.get_position() for text in ax.texts}
    assert named["N"][1] > 1.4 < named["E"][0]
    axes = panel(plot_sphere(idata, axial=True, **options), "x")
    points = np.unique(np.round(axes.collections[0].get_offsets(), 6), axis=0)
    np.testing.assert_allclose(points, [[0.0, radius], [radius, 0.0]], atol=1e-5)
    assert axes.get_title() == "x, rim at 90°"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lower_hemisphere": True}, "the components of the directions; got True"),
        ({"center": [0, 0, 1]}, "Omit `projection`, `center` and `extent`"),
        ({"projection": "mollweide"}, "Omit `projection`, `center` and `extent`"),
    ],
)
def test_invalid_lower_hemisphere_raises(idata, options, message):
    options = {"lower_hemisphere": "north_east_down"} | options
    with pytest.raises(ValueError, match=message):
        plot_sphere(idata, "mu", **options)


def test_globe_shows_the_near_side_darker():
    both = np.broadcast_to(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])[None], (2, 2, 3))
    idata = az.from_dict({"posterior": {"x": both.copy()}})
    ax = panel(plot_sphere(idata, projection="3d", center=[0, 0, 1], ci_probs=(), axial=False), "x")
    far, near = ax.collections[:2]
    assert len(far.get_offsets()) == len(near.get_offsets()) == 2
    assert far.get_alpha() < near.get_alpha()


def test_ternary_positions(idata):
    ax = panel(plot_ternary(idata, ci_probs=0.8, backend="matplotlib"), "share")
    shares = idata["posterior"]["share"].values.reshape(-1, 3)
    np.testing.assert_allclose(ax.collections[0].get_offsets(), shares @ CORNERS)
    names = {each.get_text(): each.get_position() for each in ax.texts}
    for k, name in enumerate(["red", "green", "blue"]):
        np.testing.assert_allclose(names[name], CORNERS[k], atol=0.07)
    line = ternary_contours(shares, [0.8])[0]
    known = line[np.isfinite(line[:, 0])]
    np.testing.assert_allclose(known.sum(axis=1), 1.0)
    region = hdr(np.sqrt(shares), ci_prob=0.8)
    np.testing.assert_allclose(region.density(np.sqrt(known)), region.level, rtol=0.05)


def test_trace_shows_angles_from_the_mean(idata):
    collection = plot_trace(idata, ci_prob=0.7, backend="matplotlib")
    draws = idata["posterior"]["mu"].values[:, :, 0]
    cap = credible_cap(draws, ci_prob=0.7)
    ax = panel(collection, "mu", mu_dim_0=0)
    expected = np.degrees(np.arccos(draws[1] @ cap.center))
    np.testing.assert_allclose(ax.lines[1].get_ydata(), expected, rtol=1e-6)
    np.testing.assert_allclose(ax.lines[2].get_ydata(), cap.radius)
    # In the plane with a sign, and without a jump at ±180°.
    turned = from_lonlat(np.array([179.0, -179.0]), 0.0)[:, :2]
    np.testing.assert_allclose(angles_from_mean(turned, np.array([-1.0, 0.0])), [-1.0, 1.0])
    assert np.abs(panel(collection, "heading").lines[0].get_ydata()).max() < 100


def test_predictive_check_counts_the_data_in_each_region(idata):
    title = panel(plot_ppc_dist(idata, backend="matplotlib"), "y").get_title()
    seen = idata["observed_data"]["y"].values
    drawn = idata["posterior_predictive"]["y"].values.reshape(-1, 3)
    share = hdr(drawn, ci_prob=0.5).contains(seen).mean()
    found = title.split(" of data in 50%")[0].split()[-1]
    assert float(found.strip("%")) / 100 == pytest.approx(share, abs=0.03)
    assert title.endswith("of data in 89%")
    without = az.from_dict({"observed_data": {"y": seen}})
    with pytest.raises(ValueError, match="sample_posterior_predictive"):
        plot_ppc_dist(without)


def test_invalid_plot_arguments_raise(idata):
    with pytest.raises(ValueError, match="`projection` must be one of"):
        plot_sphere(idata, projection="mercator")
    with pytest.raises(ValueError, match=r"`center` must be a vector of 3 .*`from_lonlat`"):
        plot_sphere(idata, center=[10.0, 20.0])
    with pytest.raises(ValueError, match="`kind` must be"):
        plot_circular_density(idata, kind="pie")
    with pytest.raises(ValueError, match="`projection` must be"):
        plot_ppc_dist(idata, projection="3d")
    with pytest.raises(ValueError, match="`backend` must be one of"):
        plot_rose(idata, backend="gnuplot")


@pytest.mark.parametrize("bins", [0, 2.5])
def test_invalid_number_of_sectors_raises(idata, bins):
    with pytest.raises(ValueError, match="bins must be an integer of at least 1"):
        plot_rose(idata, "heading", bins=bins)


def test_observations_as_draws():
    """The sample dimension of data is their first dimension by default."""
    x = unit(np.random.default_rng(1).normal([0.0, 0.0, 3.0], size=(40, 3)))
    data = az.from_dict({"observed_data": {"x": x}}, dims={"x": ["obs", "axis"]})
    options = {"group": "observed_data", "backend": "matplotlib", "ci_probs": ()}
    for dims in (None, "obs"):
        ax = panel(plot_sphere(data, sample_dims=dims, **options), "x")
        assert len(ax.collections[0].get_offsets()) == 40
    with pytest.raises(ValueError, match=r"shape \(40, 3\) .*group=.observed_data"):
        plot_sphere(x)


def test_arguments_of_the_plot_collection(idata):
    options = {"coords": {"mu_dim_0": 1}, "figure_kwargs": {"figsize": (3.0, 3.1)}}
    collection = plot_sphere(idata, "mu", ci_probs=(), backend="matplotlib", **options)
    figure = collection.get_viz("figure")
    assert len(panels_of(collection)) == 1
    np.testing.assert_allclose(figure.get_size_inches(), [3.0, 3.1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'nbins'"):
        plot_rose(idata, nbins=10)
    wrapped = plot_trace(idata, col_wrap=1, backend="matplotlib")
    assert wrapped.get_viz("figure").axes[0].get_gridspec().ncols == 1
