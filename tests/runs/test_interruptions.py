"""Runs that are interrupted: signals, killed processes, full disks, damaged rows."""

import errno
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pymc as pm
import pytest

import pymc_geodesic as pg
from pymc_geodesic.runs import chain_files
from pymc_geodesic.runs.chain_files import ChainFiles, DrawBuffer
from pymc_geodesic.runs.process_control import TERMINATED, exit_on_sigterm, release_lock
from pymc_geodesic.runs.reading import RunFiles
from tests.grids import slow
from tests.runs.stopped import QUIET, assert_same_trees, checkpoints, interpreted_runs
from tests.runs.test_faults import KWARGS, make_model, make_step
from tests.steps.runs import INTERPRETED, sample

SCRIPT = """
import sys
from tests.runs.stopped import checkpoints, interpreted_runs
from tests.runs.test_faults import KWARGS, make_model, make_step, sample
path, cores = sys.argv[1:]
with interpreted_runs():
    model = make_model()
    sample(
        model, make_step(model), trace=checkpoints(path, 0.02), mp_ctx="fork",
        **(KWARGS | {"draws": 1_000_000, "cores": int(cores)}),
    )
"""


@pytest.fixture(autouse=True)
def interpreted():
    with interpreted_runs():
        yield


@pytest.fixture(scope="module")
def model():
    return make_model()


@pytest.fixture(scope="module")
def expected(model):
    with interpreted_runs():
        return sample(model, make_step(model), **KWARGS)


@pytest.fixture
def start(tmp_path):
    """Start runs in other processes, which are terminated after the test."""
    started = []

    def begin(cores):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SCRIPT, tmp_path / "run", str(cores)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        for chain in range(cores):
            while process.poll() is None and not list(
                (tmp_path / "run").glob(f"chain-{chain}/state-*.npz")
            ):
                time.sleep(0.02)
        assert process.poll() is None, process.stderr.read()
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def children(process):
    """Return the processes of the chains."""
    found = []
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                with open(f"/proc/{folder}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == process.pid:
                found.append(int(folder))
    return found


def is_alive(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def check_goes_on(path, model, chains=2):
    """Compare the draws on disk, and of the resumed run, with an uninterrupted run."""
    written = [RunFiles(path).chain(chain).read() for chain in range(chains)]
    draws = max(30, *(draws.n for draws in written))
    again = pg.resume(path, model, draws=draws, **QUIET)
    once = sample(model, make_step(model), **(KWARGS | {"draws": draws}))
    # a running mean that depends on the planned number of draws, a million at first
    assert_same_trees(once, again, but={"whitened_gradient"})
    assert written[0].n > 0
    for chain, each in enumerate(written):
        if not each.n:
            continue  # the chain had not started
        kept = each.values["b"][KWARGS["tune"] :]
        np.testing.assert_array_equal(again.posterior["b"][chain, : len(kept)], kept)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to find processes")
@pytest.mark.parametrize("cores", [slow(1), 2])
def test_sigterm_of_the_main_process(start, model, tmp_path, cores):
    process = start(cores)
    process.send_signal(signal.SIGTERM)
    _, message = process.communicate(timeout=120)
    assert process.returncode == TERMINATED
    assert (
        message.count("Stopped by SIGTERM; draws are kept. Resume with pymc_geodesic.resume(") == 1
    )
    check_goes_on(tmp_path / "run", model)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to find processes")
def test_sigterm_of_a_chain_process(start, model, tmp_path):
    process = start(2)
    os.kill(children(process)[0], signal.SIGTERM)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "The draws so far are kept in" in message
    assert "Resume with pymc_geodesic.resume(" in message
    check_goes_on(tmp_path / "run", model)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to find processes")
def test_killed_chain_process(start, model, tmp_path):
    process = start(2)
    os.kill(children(process)[-1], signal.SIGKILL)
    _, message = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Resume with pymc_geodesic.resume(" in message
    check_goes_on(tmp_path / "run", model)


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to find processes")
def test_killed_main_process(start, model, tmp_path):
    process = start(2)
    workers = children(process)
    process.kill()
    process.wait()
    deadline = time.monotonic() + 120
    while any(map(is_alive, workers)):
        assert time.monotonic() < deadline, "processes of chains are left"
        time.sleep(0.02)
    check_goes_on(tmp_path / "run", model)


@pytest.mark.slow
def test_lost_signal_exception_is_raised_at_the_next_draw(model, tmp_path):
    """As for a signal while C code calls Python."""

    def lose(trace, draw):
        if draw.draw_idx == 12 and not lost:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(10.0)
            except SystemExit:
                lost.append(draw)

    lost = []
    path = tmp_path / "run"
    with pytest.raises(SystemExit) as caught:
        sample(model, make_step(model), trace=checkpoints(path), callback=lose, **KWARGS)
    assert lost
    assert caught.value.code == TERMINATED
    check_goes_on(path, model)


def full_disk(monkeypatch, after, error=errno.ENOSPC):
    """Simulate a disk with space for some files."""
    n_written = []
    write = chain_files.write_tree

    def write_until_full(path, value):
        if path.name.startswith("draws"):
            n_written.append(path)
        if len(n_written) > after:
            raise OSError(error, os.strerror(error), str(path))
        write(path, value)

    monkeypatch.setattr(chain_files, "write_tree", write_until_full)


@pytest.mark.parametrize("error", [errno.ENOSPC, slow(errno.EROFS), slow(errno.EIO)])
def test_full_disk(model, expected, tmp_path, monkeypatch, error):
    path = tmp_path / "run"
    with monkeypatch.context() as patch:
        full_disk(patch, 13, error)
        with pytest.raises(
            OSError, match=r"chain 0 cannot be written.*last checkpoint are"
        ) as caught:
            sample(model, make_step(model), trace=checkpoints(path, 0.0), **KWARGS)
        assert caught.value.errno == error
        assert any("pymc_geodesic.resume" in note for note in caught.value.__notes__)
    assert RunFiles(path).chain(0).read().n == 13
    assert not list(path.rglob("*.part"))
    assert_same_trees(expected, pg.resume(path, model, **QUIET))


def test_folder_removed_during_sampling(model, tmp_path):
    path = tmp_path / "run"

    def remove(trace, draw):
        if draw.draw_idx == 12:
            (path / "chain-0").rename(tmp_path / "elsewhere")

    trace = checkpoints(path, 0.0)
    with pytest.raises(FileNotFoundError, match="chain 0 cannot be written, No such file"):
        sample(model, make_step(model), trace=trace, callback=remove, **KWARGS)
    assert ChainFiles(tmp_path / "elsewhere").read().n == 13


def test_interruption_during_a_write(model, expected, tmp_path, monkeypatch):
    """A partially written draw is discarded."""
    path = tmp_path / "run"
    append, left = DrawBuffer.append, iter(range(10**9))

    class Interrupted(dict):
        def __getitem__(self, name):
            if name == list(self)[2]:
                raise KeyboardInterrupt
            return super().__getitem__(name)

    def interrupted(self, values, stats):
        if next(left) == 10:
            stats = [Interrupted(each) for each in stats]
        append(self, values, stats)

    with monkeypatch.context() as patch:
        patch.setattr(DrawBuffer, "append", interrupted)
        with pytest.warns(UserWarning, match="stopped after 10 of"):
            sample(model, make_step(model), trace=checkpoints(path, 1e6), **KWARGS)
    assert RunFiles(path).chain(0).read().n == 10
    assert_same_trees(expected, pg.resume(path, model, **QUIET))


def test_error_during_sampling_has_a_note_on_the_draws(model, tmp_path):
    def fail(trace, draw):
        if draw.draw_idx == 20:
            raise RuntimeError("of the user")

    path = tmp_path / "run"
    with pytest.raises(RuntimeError, match="of the user") as caught:
        sample(model, make_step(model), trace=checkpoints(path), callback=fail, **KWARGS)
    (note,) = caught.value.__notes__
    assert note.startswith(f"The draws so far are kept in {path}. Resume with")
    assert RunFiles(path).chain(0).read().n == 21
    release_lock(path)


def test_unrelated_errors_have_no_note(model, tmp_path):
    error = RuntimeError("before")
    try:
        raise error
    except RuntimeError:
        sample(model, make_step(model), trace=checkpoints(tmp_path / "run"), **KWARGS)
    assert not hasattr(error, "__notes__")


class Blocks:
    """Blocks of rows, one of which differs at the first pass."""

    def __init__(self, damage, at=40):
        self.rows = np.random.default_rng(1).normal(size=(40, 2))
        self.damage, self.at, self.seen = damage, at, 0

    def __iter__(self):
        for block in self.rows.reshape(5, 8, 2):
            self.seen += 1
            yield ((self.damage if self.seen == self.at else lambda rows: rows)(block),)


def with_nan(rows):
    return np.where(np.arange(2) == 1, np.nan, rows)


def gone(rows):
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "part-3.parquet")


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (with_nan, ValueError, "yields NaN for 'x' in block 4"),
        (gone, FileNotFoundError, "part-3.parquet"),
        (lambda rows: rows[:, :1], ValueError, "x"),
    ],
    ids=["NaN", "gone", "narrow"],
)
def test_data_that_change_during_sampling_raise(damage, error, message, tmp_path):
    with pm.Model() as model:
        rows = pm.Data("x", np.zeros((8, 2)))
        b = pm.Normal("b", 0.0, 1.0, shape=2)
        pm.Normal("seen", b, 1.0, observed=rows)

    def step(blocks):
        return pg.SGGMC(
            model=model,
            compile_kwargs=INTERPRETED,
            minibatch=["x"],
            batches=blocks,
            total_size=40,
            step_size=0.01,
            friction=1.0,
            n_steps=2,
        )

    path = tmp_path / "run"
    kwargs = KWARGS | {"chains": 1}
    with pytest.raises(error, match=message) as caught:
        sample(model, step(Blocks(damage)), trace=checkpoints(path, 0.0), **kwargs)
    assert any("pymc_geodesic.resume" in note for note in caught.value.__notes__)
    assert 0 < RunFiles(path).chain(0).read().n < 30
    again = pg.resume(path, model, step=step(Blocks(damage, at=-1)), **QUIET)
    assert_same_trees(sample(model, step(Blocks(damage, at=-1)), **kwargs), again)


def test_signal_handler_is_restored(model, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    sample(model, make_step(model), trace=checkpoints(tmp_path / "run"), **KWARGS)
    assert signal.getsignal(signal.SIGTERM) is before


def test_signal_after_a_run_calls_the_previous_handler(tmp_path):
    seen = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        trace = checkpoints(tmp_path)
        exit_on_sigterm(trace, tmp_path)
        del trace
        os.kill(os.getpid(), signal.SIGTERM)
        assert seen == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_path_of_a_file_raises(model, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="file"):
        sample(model, make_step(model), trace=checkpoints(path), **KWARGS)
    assert path.read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="holds no run"):
        pg.open_run(path)
