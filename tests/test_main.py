"""The command ``python -m pymc_geodesic warm``."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from pymc_geodesic.__main__ import FAMILIES, main

COUNT = """
import sys
import numba.core.event as events
from pymc_geodesic.__main__ import FAMILIES

with events.install_recorder("numba:compile") as compiled:
    FAMILIES[sys.argv[1]]()
print(len(compiled.buffer))
"""


@pytest.fixture
def processes(monkeypatch):
    """Processes that the command starts, and the exit status of each family."""
    started, statuses = [], {}

    def run(command, env, check):
        started.append(command)
        assert env["OMP_NUM_THREADS"] == "1"
        return SimpleNamespace(returncode=statuses.get(command[-1], 0))

    monkeypatch.setattr("subprocess.run", run)
    return SimpleNamespace(started=started, statuses=statuses)


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_every_family_has_a_process_of_its_own(processes, capsys, jobs):
    assert main(["warm", "--jobs", jobs]) == 0
    assert sorted(command[-1] for command in processes.started) == sorted(FAMILIES)
    assert all(command[0] == sys.executable for command in processes.started)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == list(FAMILIES)


def test_only_what_is_named(processes):
    assert main(["warm", "topics", "sphere"]) == 0
    assert [command[-1] for command in processes.started] == ["topics", "sphere"]


def test_a_family_that_fails_is_named_and_the_others_go_on(processes, capsys):
    processes.statuses["sphere"] = 1
    assert main(["warm", "--jobs", "1"]) == 1
    assert len(processes.started) == len(FAMILIES)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines if "failed" in line] == ["sphere"]


@pytest.mark.parametrize("arguments", [["warm", "nothing"], [], ["warm", "--only", "nothing"]])
def test_unknown_arguments_raise(processes, capsys, arguments):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert processes.started == []
    if "nothing" in arguments:
        assert "topics" in capsys.readouterr().err


def test_what_runs_in_the_process_of_a_family(monkeypatch):
    ran = []
    monkeypatch.setitem(FAMILIES, "sphere", lambda: ran.append("sphere"))
    monkeypatch.setattr("logging.disable", ran.append)
    assert main(["warm", "--only", "sphere"]) == 0
    assert ran[1:] == ["sphere"]


@pytest.mark.slow
def test_a_family_that_was_warmed_compiles_nothing(tmp_path):
    """With an empty home and empty caches, as in a new container."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("XDG_", "PYTENSOR_", "NUMBA_"))
    }
    environment |= {
        "HOME": str(tmp_path),
        "NUMBA_CACHE_DIR": str(tmp_path / "numba"),
        "OMP_NUM_THREADS": "1",
    }

    def run(*arguments):
        command = [sys.executable, "-W", "ignore", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    assert run("-m", "pymc_geodesic", "warm", "support_vectors").startswith("support_vectors: comp")
    assert run("-c", COUNT, "support_vectors").splitlines()[-1] == "0"
