"""Kill tests of `benchmarks.kills`."""

import os

import pytest

from benchmarks import kills
from benchmarks.kill_cases import CASES
from pymc_geodesic.runs.reading import RunFiles
from tests.runs.stopped import interpreted_runs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not os.path.isdir("/proc"), reason="needs /proc to find processes"),
]
SHORT = {"tune": 300, "draws": 700}


@pytest.mark.parametrize("names", [["SGGMC", "SSGLD"], ["SGGMC, batches=", "SCIR with NUTS"]])
def test_resumed_runs_have_the_same_draws(names, tmp_path, monkeypatch):
    for name in names:
        monkeypatch.setitem(CASES, name, CASES[name]._replace(**SHORT))
    with interpreted_runs():
        found = kills.all_kills(4, 0, 3, names, tmp_path, {"mode": "FAST_COMPILE"})
    assert len(found) == 4
    assert [kill.differences for kill in found] == [[]] * 4
    assert all(sum(kill.reported) > 0 for kill in found)


def test_different_draws_after_a_kill_are_detected(tmp_path, monkeypatch):
    """A run that resumes from its initial state."""
    monkeypatch.setitem(CASES, "SSGLD", CASES["SSGLD"]._replace(**SHORT))
    replay = RunFiles.replay

    def forgetful(self, chain):
        found = replay(self, chain)
        return found and found._replace(
            checkpoint=found.checkpoint._replace(state=found.start.state)
        )

    monkeypatch.setattr(RunFiles, "replay", forgetful)
    with interpreted_runs():
        found = kills.all_kills(1, 0, 3, ["SSGLD"], tmp_path, {"mode": "FAST_COMPILE"})
    assert found[0].differences
