"""Plots of top words, read back from their artists."""

import arviz as az
import numpy as np
import pytest

from pymc_geodesic.topics import align_topics, plot_top_words, top_words
from tests.back_ends import BACKENDS, assert_drawn, require


@pytest.fixture
def idata():
    beta = np.broadcast_to(np.eye(3, 5) + 0.1, (2, 50, 3, 5))
    return az.from_dict({"posterior": {"beta": beta}})


@pytest.mark.parametrize("backend", BACKENDS)
def test_top_words_with_every_backend(idata, backend):
    require(backend)
    assert_drawn(plot_top_words(idata, list("abcde"), n=3, backend=backend), backend, 3)


def test_topics_of_counts_are_found_by_their_name(idata):
    """Topics of count models are found without var_name."""
    named = az.from_dict({"posterior": {"topics": idata.posterior["beta"].values}})
    table, expected = (top_words(each, n=2) for each in (named, idata))
    np.testing.assert_array_equal(table, expected)
    drawn = plot_top_words(named, n=2).viz["plot"]
    assert len(drawn["topics"].values) == idata.posterior["beta"].shape[2]
    assert align_topics(named).posterior["topics"].shape == idata.posterior["beta"].shape
    neither = az.from_dict({"posterior": {"x": np.ones((1, 4))}})
    with pytest.raises(ValueError, match="no variable 'beta'"):
        top_words(neither)


@pytest.mark.parametrize(("text", "letters"), [*(("information", n) for n in (1, 6, 15)), ("w", 8)])
def test_labels_lie_within_the_figure(idata, text, letters):
    """Three panels in a row, with short, long and wide words."""
    words = [(30 * text)[i : i + letters] for i in range(5)]
    figure = plot_top_words(idata, words, n=2, col_wrap=3).get_viz("figure")
    figure.canvas.draw()
    extent, outer = figure.get_tightbbox(), figure.bbox_inches
    assert extent.x0 >= outer.x0
    assert extent.x1 <= outer.x1
    assert extent.y0 >= outer.y0
    assert extent.y1 <= outer.y1


def test_top_words_has_a_panel_per_topic(idata):
    words = ["sun", "moon", "sea", "tide", "salt"]
    panels = plot_top_words(idata, words, n=2, col_wrap=2).viz["plot"]["beta"].values
    assert len(panels) == 3
    firsts = [ax.get_yticklabels()[-1].get_text() for ax in panels]
    assert firsts == ["sun", "moon", "sea"]
    assert panels[0].patches[-1].get_xy()[:, 0].max() == pytest.approx(1.1)
    only = plot_top_words(idata, words, n=2, coords={"beta_dim_0": 2}).viz["plot"]["beta"].values
    assert [ax.get_yticklabels()[-1].get_text() for ax in only] == ["sea"]
