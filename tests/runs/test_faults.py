"""Faults of runs: inconsistent arguments, damaged files and killed processes."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_geodesic as pg
from pymc_geodesic.__main__ import main
from pymc_geodesic.runs.identity import check_identity, compute_identity
from pymc_geodesic.runs.process_control import release_lock
from pymc_geodesic.runs.reading import RunFiles
from tests.runs.stopped import (
    QUIET,
    StoppedError,
    assert_same_trees,
    checkpoint_every,
    checkpoints,
    interpreted_runs,
    stop_after,
    stopped,
)
from tests.steps.runs import INTERPRETED, sample

KWARGS = {"draws": 20, "tune": 10, "chains": 2, "random_seed": 3}
X = np.random.default_rng(1).normal(size=(40, 2))


@pytest.fixture(autouse=True)
def interpreted():
    with interpreted_runs():
        yield


def make_model(x=X, scale=1.0, n=2):
    with pm.Model() as model:
        rows = pm.Data("x", x)
        b = pm.Normal("b", 0.0, scale, shape=n)
        pm.Normal("seen", b[:2], 1.0, observed=rows)
    return model


def make_step(model, **kwargs):
    rows = {"minibatch": ["x"], "batch_size": 8}
    return pg.SGGMC(model=model, compile_kwargs=INTERPRETED, **rows, **kwargs)


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def expected(model):
    with interpreted_runs():
        return sample(model, make_step(model), **KWARGS)


@pytest.fixture(scope="module")
def stopped_run(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("stopped") / "run"
    with interpreted_runs():
        stopped(model, make_step(model), path, 42, 0.0, **KWARGS)
    release_lock(path)
    return path


@pytest.fixture
def run(stopped_run, tmp_path):
    """A run whose second chain has 12 draws, each with a checkpoint."""
    return shutil.copytree(stopped_run, tmp_path / "run")


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_a_damaged_last_segment(run, model, expected, damage):
    """Earlier draws are read; the segment is drawn again from the previous checkpoint."""
    last = max((run / "chain-1").glob("draws-*.npz"))
    content = bytearray(last.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        position = content.index(b"\x93NUMPY") + 130  # within the numbers of the first array
        content[position] ^= 1
    last.write_bytes(content)
    with pytest.warns(UserWarning, match=r"draws-000000011.npz cannot be read.*11 draws before"):
        assert RunFiles(run).chain(1).read().n == 11
    with pytest.warns(UserWarning, match="cannot be read"):
        again = pg.resume(run, model, **QUIET)
    assert_same_trees(expected, again)


def test_damaged_early_segment_is_drawn_again(run, model, expected):
    (run / "chain-1" / "draws-000000003.npz").write_bytes(b"")
    with pytest.warns(UserWarning, match="3 draws before it are read"):
        again = pg.resume(run, model, **QUIET)
    assert_same_trees(expected, again)


def test_a_damaged_state(run, model, expected):
    max((run / "chain-1").glob("state-*.npz")).write_bytes(b"nothing")
    with pytest.warns(UserWarning, match="An earlier state is taken"):
        again = pg.resume(run, model, **QUIET)
    assert_same_trees(expected, again)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": X + 1.0}, "data 'x': other values in the run"),
        ({"scale": 2.0}, "distribution of 'b'"),
        ({"n": 3}, "variable 'b': float64 of shape \\(2,\\) in the run, float64 of shape \\(3,\\)"),
    ],
)
def test_another_model_raises(run, other, message):
    with pytest.raises(ValueError, match=message):
        pg.resume(run, make_model(**other))


def test_unnamed_change_of_the_model_raises(run):
    """Two models with equal descriptions and different densities."""
    other = make_model()
    with other:
        pm.Potential("p", other["b"].sum())
    with pytest.raises(ValueError, match="log-density"):
        pg.resume(run, other)


@pytest.mark.parametrize("held", [lambda array: array, pytensor.shared], ids=["array", "shared"])
def test_array_in_the_density_is_part_of_the_identity(held):
    """An array outside data containers, which is abbreviated in printed graphs."""

    def with_factors(factors):
        with pm.Model() as model:
            b = pm.Normal("b")
            pm.Normal("seen", held(factors) * b, 1.0, observed=np.zeros(2000))
        return compute_identity(model)

    first, other = np.ones(2000), np.ones(2000)
    other[1000] = 2.0
    check_identity(with_factors(first), with_factors(first.copy()), any_version=False)
    with pytest.raises(ValueError, match="log-density"):
        check_identity(with_factors(first), with_factors(other), any_version=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda m: make_step(m, n_steps=3), "n_steps=None in the run, 3 now"),
        (lambda m: pg.GMC(model=m), "SGGMC in the run, GMC now"),
    ],
)
def test_another_step_raises(run, model, make, message):
    with pytest.raises(ValueError, match=message):
        pg.resume(run, model, step=make(model), **QUIET)


def test_another_start_raises(run, model):
    with pytest.raises(ValueError, match=r"chain 0 does not start .* point.b differs"):
        pg.resume(run, model, initvals={"b": [5.0, 5.0]}, **QUIET)


def test_other_versions_raise_unless_allowed(run, model, expected, monkeypatch):
    monkeypatch.setattr("pymc_geodesic.runs.identity.version", lambda name: "0.0")
    with pytest.raises(ValueError, match=r"version of 'pymc'.*any_version=True"):
        pg.resume(run, model, **QUIET)
    assert_same_trees(expected, pg.resume(run, model, any_version=True, **QUIET))


def test_existing_run_raises(run, model):
    with pytest.raises(FileExistsError, match=r"pymc_geodesic\.resume"):
        sample(model, make_step(model), trace=checkpoints(run), **KWARGS)


@pytest.mark.parametrize("every", [-1.0, np.nan, np.inf])
def test_invalid_interval_raises(every):
    with pytest.raises(ValueError, match="every="):
        pg.CheckpointTrace("run", every)


@pytest.mark.parametrize("max_overhead", [0.0, -1.0, np.nan])
def test_invalid_overhead_raises(max_overhead):
    with pytest.raises(ValueError, match="max_overhead="):
        pg.CheckpointTrace("run", max_overhead=max_overhead)


def test_arguments_that_the_run_determines_raise(run, model):
    with pytest.raises(TypeError, match="tune, random_seed"):
        pg.resume(run, model, tune=3, random_seed=1)


def test_status(run, capsys):
    assert main(["status", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 chains, each 10 tuning draws and 20 draws" in lines[0]
    assert "chain 0: finished, 10 tuning draws and 20 draws, last written" in lines[1]
    assert "chain 1: drawing, 10 tuning draws and 2 draws, last written" in lines[2]
    assert main(["status", str(run / "nothing")]) == 1
    assert "holds no run" in capsys.readouterr().err


def test_chains_of_different_lengths_are_read(run, expected):
    """Two chains of two draws are fewer than one of twenty."""
    with pytest.warns(UserWarning, match=r"chains \[1\] have fewer draws"):
        tree = pg.open_run(run)
    np.testing.assert_array_equal(tree.posterior["b"][0], expected.posterior["b"][0])
    assert tree.posterior.sizes["chain"] == 1
    assert tree.warmup_posterior["b"].shape == (2, 10, 2)


@pytest.mark.slow
def test_an_interrupted_run_keeps_all_draws(model, expected, tmp_path):
    """The whole run stops; PyMC's own traces would continue with the second chain.

    Draws since the last checkpoint are kept too, and drawn again, being the same.
    """

    def interrupt(trace, draw):
        if draw.chain == 0 and draw.draw_idx == 17:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with (
        pytest.warns(UserWarning, match=r"stopped after 18 of 60 .*pymc_geodesic\.resume"),
        pytest.warns(UserWarning, match=r"chains \[1\] have fewer"),
    ):
        sample(
            model,
            make_step(model),
            trace=checkpoints(path, 1e6),
            callback=interrupt,
            **KWARGS,
        )
    assert [RunFiles(path).chain(chain).read().n for chain in (0, 1)] == [18, 0]
    assert_same_trees(expected, pg.resume(path, model, **QUIET))


@pytest.mark.slow
def test_interruption_of_a_resumed_run(model, expected, tmp_path):
    """In the second chain, in tuning of the first, and in the progress bar."""

    def interrupt_at(*position):
        def interrupt(trace, draw):
            if (draw.chain, draw.draw_idx) == position:
                raise KeyboardInterrupt

        return interrupt

    def interrupted(run, counts, **kwargs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            run(**kwargs)
        assert [RunFiles(path).chain(chain).read().n for chain in (0, 1)] == counts

    def begin(**kwargs):
        sample(model, make_step(model), trace=checkpoints(path, 0.0), **KWARGS, **kwargs)

    def resume(**kwargs):
        pg.resume(path, model, **QUIET, **kwargs)

    path = tmp_path / "run"
    interrupted(begin, [5, 0], callback=interrupt_at(0, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pm.sampling.mcmc, "MCMCProgressBarManager", InterruptedBar)
        interrupted(resume, [9, 0])
    interrupted(resume, [30, 13], callback=interrupt_at(1, 12))
    assert_same_trees(expected, pg.resume(path, model, **QUIET))


class InterruptedBar:
    """Progress bar of PyMC in which an interrupt arrives after nine draws, once."""

    combined_progress = True
    chains = 2

    def __init__(self, **_):
        self.n = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def update(self, **_):
        self.n += 1
        if self.n == 9:
            raise KeyboardInterrupt


SCRIPT = """
import sys
from tests.runs.stopped import checkpoints, interpreted_runs
from tests.runs.test_faults import KWARGS, make_model, make_step, sample
with interpreted_runs():
    model = make_model()
    sample(
        model, make_step(model), trace=checkpoints(sys.argv[1], 0.0),
        **(KWARGS | {"draws": 100_000}),
    )
"""


def killed_after(path, n):
    """Start a run in another process, and kill it after n draws."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, path], env=environment
    )
    try:
        while process.poll() is None and len(list(path.glob("chain-0/draws-*.npz"))) < n:
            time.sleep(0.02)
        assert process.poll() is None, "the process ended by itself"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 10, 23, 41])
def test_killed_process(model, tmp_path, n):
    """`test_interruptions.py` covers two chains."""
    path = tmp_path / "run"
    killed_after(path, n)
    written = RunFiles(path).chain(0).read()
    assert written.n >= n
    draws = max(60, written.n)
    # The planned chain is far longer, which does not change draws; only the batches of the
    # stationarity monitor are fractions of the planned length.
    again = pg.resume(path, model, draws=draws, **QUIET)
    whole = sample(model, make_step(model), **(KWARGS | {"draws": draws}))
    assert_same_trees(whole, again, but=["whitened_gradient"])
    np.testing.assert_array_equal(
        np.concatenate([again.posterior["b"][0]])[: max(0, written.n - 10)],
        written.values["b"][10:],
    )


@pytest.mark.slow
def test_concurrent_process_raises(run, model):
    code = (
        "import sys, time; from pathlib import Path; "
        "from pymc_geodesic.runs.process_control import acquire_lock; "
        "acquire_lock(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
    )
    release_lock(run)
    other = subprocess.Popen([sys.executable, "-c", code, run], stdout=subprocess.PIPE)
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(BlockingIOError, match="another process draws"):
            pg.resume(run, model, **QUIET)
    finally:
        other.kill()
        other.communicate()


@pytest.mark.slow
def test_two_processes(model, expected, tmp_path):
    path = tmp_path / "run"
    kwargs = {"cores": 2, "mp_ctx": "fork"}
    together = sample(model, make_step(model), trace=checkpoints(path, 0.0), **(KWARGS | kwargs))
    assert_same_trees(expected, together)
    for chain, n in ((0, 28), (1, 29)):  # existing checkpoints
        RunFiles(path).chain(chain).remove_after(n)
    again = pg.resume(path, model, **(QUIET | kwargs))
    assert_same_trees(expected, again)


def test_damaged_run_file_raises(run, model):
    path = run / "run.npz"
    path.write_bytes(path.read_bytes()[:100])
    for read in (pg.open_run, lambda path: pg.resume(path, model)):
        with pytest.raises(ValueError, match=r"run.npz cannot be read"):
            read(run)


def test_later_file_format_raises(run, model, monkeypatch):
    monkeypatch.setattr("pymc_geodesic.runs.reading.FORMAT", 0)
    with pytest.raises(ValueError, match=r"file format 2, and this version reads 0: install"):
        pg.resume(run, model)


def test_chain_without_its_folder_restarts(run, model, expected):
    shutil.rmtree(run / "chain-0")
    assert_same_trees(expected, pg.resume(run, model, **QUIET))


def test_damaged_start_raises(run, model):
    (run / "chain-1" / "start.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"start.npz cannot be read"):
        pg.resume(run, model, **QUIET)


def test_fewer_draws_than_exist_raise(run, model):
    with pytest.raises(ValueError, match=r"draws=5, but a chain of the run has 20 already"):
        pg.resume(run, model, draws=5)


def test_complete_run_is_read_with_all_groups(run, model):
    """Repeated calls return all groups of `pymc.sample`, including observed data."""
    groups = set(pg.resume(run, model, **QUIET).children)
    assert "observed_data" in groups
    assert not any(name.startswith("warmup") for name in groups)
    assert set(pg.resume(run, model, **QUIET).children) == groups
    kept = pg.resume(run, model, discard_tuned_samples=False, **QUIET)
    assert set(kept.children) >= groups | {"warmup_posterior"}


def test_both_checkpoints_damaged(run, model, expected):
    for path in (run / "chain-1").glob("state-*.npz"):
        path.write_bytes(path.read_bytes()[:50])
    with pytest.warns(UserWarning, match="An earlier state is taken"):
        again = pg.resume(run, model, **QUIET)
    assert_same_trees(expected, again)


def test_draws_after_the_last_checkpoint_are_kept_until_replaced(
    model, expected, tmp_path, monkeypatch
):
    """Also if the resumed run is stopped immediately."""
    path = tmp_path / "run"
    trace = checkpoints(path, 8)
    with monkeypatch.context() as patch:
        checkpoint_every(patch, 8)
        with pytest.raises(StoppedError):
            sample(model, make_step(model), trace=trace, callback=stop_after(22), **KWARGS)
    files = RunFiles(path).chain(0)
    there = files.read()
    state = files.last_checkpoint(there.n).n
    assert there.n - state > 2
    for n_more in (1, 2):
        with pytest.raises(StoppedError):
            pg.resume(path, model, callback=stop_after(state + n_more), **QUIET)
        np.testing.assert_array_equal(files.read().values["b"], there.values["b"])
    assert_same_trees(expected, pg.resume(path, model, **QUIET))


def test_incomplete_files(run, model, expected):
    (run / "chain-1" / "draws-000000012.npz.part").write_bytes(b"half")
    assert_same_trees(expected, pg.resume(run, model, **QUIET))
