"""Every example runs with ``--quick``, on its data or on generated data of the same shape."""

import numpy as np
import pytest

from tests.examples.generated import write_data
from tests.examples.run import SCRIPTS, data_folder, has_ink_at_border, run_example


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return data_folder(tmp_path_factory.mktemp("data"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_runs_with_quick(name, data, tmp_path):
    result = run_example(name, tmp_path, data, quick=True)
    assert not result.error, (tmp_path / "stderr.txt").read_text()[-3000:]
    assert not result.clipped
    draws_figures = "savefig" in SCRIPTS[name].read_text() or "plot" in SCRIPTS[name].read_text()
    assert bool(result.figures) == draws_figures


@pytest.mark.slow
def test_generated_data_have_the_shapes_of_the_real_ones(tmp_path, data_home):
    """Numbers of non-zero elements differ; everything else is the same."""
    for path in write_data(tmp_path).glob("*.npz"):
        generated, real = np.load(path), np.load(data_home / path.name)
        for name in generated.files:
            if not name.endswith(("_data", "_indices")) and name in real.files:
                assert generated[name].shape == real[name].shape, (path.name, name)
                assert generated[name].dtype.kind == real[name].dtype.kind, (path.name, name)
            elif name.endswith("_data") and name in real.files:
                assert 0.5 < generated[name].size / real[name].size < 2.0, (path.name, name)


def test_ink_at_the_border_is_found(tmp_path):
    """A label that is longer than the figure is cut off."""
    from matplotlib.figure import Figure

    for label, cut in (("x", False), ("x" * 200, True)):
        figure = Figure(figsize=(3, 2), layout="constrained")
        figure.add_subplot().set_xlabel(label)
        figure.savefig(tmp_path / "figure.png")
        assert has_ink_at_border(tmp_path / "figure.png") == cut
