"""What the plots show, read back from their artists."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.diagnostics import plot_temperature
from pymc_geodesic.directional import plot_circle_density, plot_sphere_points
from pymc_geodesic.topics import align_topics, plot_perplexity, plot_top_words, top_words


@pytest.fixture
def idata():
    rng = np.random.default_rng(1)
    circle = rng.normal([2.0, 0.0], size=(2, 50, 2))
    sphere = rng.normal(size=(2, 50, 3))
    beta = np.broadcast_to(np.eye(3, 5) + 0.1, (2, 50, 3, 5))
    return az.from_dict(
        {
            "posterior": {"circle": circle, "sphere": sphere, "beta": beta},
            "sample_stats": {"temperature": rng.normal([[1.0], [1.5]], 0.1, size=(2, 50))},
        }
    )


def test_circle_histogram_and_density_integrate_to_one(idata):
    ax = plot_circle_density(idata, "circle", density=lambda angle: 3 * np.exp(np.cos(angle)))
    height, edges, _ = ax.patches[0].get_data()
    assert (height * np.diff(edges)).sum() == pytest.approx(1)
    angle, density = ax.lines[0].get_data()
    assert np.trapezoid(density, angle) == pytest.approx(1)
    # The draws lean towards angle 0 and the bins must show it.
    middle = edges[:-1] + np.diff(edges) / 2
    assert height[np.abs(middle) < 1].sum() > 5 * height[np.abs(middle) > 2].sum()


def test_sphere_shows_all_points_or_thins_them(idata):
    ax = plot_sphere_points(idata, "sphere")
    assert len(ax.collections[-1]._offsets3d[0]) == 100
    ax = plot_sphere_points(idata, "sphere", max_points=10, ax=ax)
    assert len(ax.collections[-1]._offsets3d[0]) == 10


def test_temperature_has_a_running_mean_per_chain(idata):
    ax = plot_temperature(idata, backend="matplotlib").get_target("temperature", {})
    last = [line.get_ydata()[-1] for line in ax.lines if len(line.get_ydata()) == 50]
    np.testing.assert_allclose(last, idata.sample_stats["temperature"].mean("draw"))


def test_perplexity_shows_curves_and_baselines():
    ax = plot_perplexity({"a": ([1, 2], [5, 4]), "b": ([1], [3])}, baselines={"mean": 6})
    assert ax.get_xscale() == "log"
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), [5, 4])
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), [6, 6])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b", "mean"]


def test_topics_of_counts_are_found_by_their_name(idata):
    """As the models of counts call them, where no name is given."""
    named = az.from_dict({"posterior": {"topics": idata.posterior["beta"].values}})
    table, expected = (top_words(each, n=2, fmt="xarray") for each in (named, idata))
    np.testing.assert_array_equal(table["weight"], expected["weight"])
    drawn = plot_top_words(named, n=2).viz["plot"]
    assert len(drawn["topics"].values) == idata.posterior["beta"].shape[2]
    assert align_topics(named).posterior["topics"].shape == idata.posterior["beta"].shape
    neither = az.from_dict({"posterior": {"x": np.ones((1, 4))}})
    with pytest.raises(ValueError, match="no variable 'beta'"):
        top_words(neither)


@pytest.mark.parametrize("letters", [1, 6, 15])
def test_labels_of_words_lie_within_the_figure(idata, letters):
    """Three panels side by side, with short and long words."""
    words = [(2 * "information")[i : i + letters] for i in range(5)]
    figure = plot_top_words(idata, words, n=2, columns=3).get_viz("figure")
    figure.canvas.draw()
    extent, outer = figure.get_tightbbox(), figure.bbox_inches
    assert extent.x0 >= outer.x0
    assert extent.x1 <= outer.x1
    assert extent.y0 >= outer.y0
    assert extent.y1 <= outer.y1


def test_top_words_has_a_panel_per_topic(idata):
    words = ["sun", "moon", "sea", "tide", "salt"]
    panels = plot_top_words(idata, words, n=2, columns=2).viz["plot"]["beta"].values
    assert len(panels) == 3
    firsts = [ax.get_yticklabels()[-1].get_text() for ax in panels]
    assert firsts == ["sun", "moon", "sea"]
    assert panels[0].patches[-1].get_xy()[:, 0].max() == pytest.approx(1.1)
    only = plot_top_words(idata, words, n=2, topics=[2]).viz["plot"]["beta"].values
    assert [ax.get_yticklabels()[-1].get_text() for ax in only] == ["sea"]


@pytest.mark.parametrize(("plot", "dimension"), [(plot_circle_density, 2), (plot_sphere_points, 3)])
def test_wrong_vectors_are_refused(idata, plot, dimension):
    with pytest.raises(ValueError, match=f"vectors of length {dimension}"):
        plot(np.ones((4, 7)))
    with pytest.raises(ValueError, match="holds no variable 'missing'"):
        plot(idata, "missing")
