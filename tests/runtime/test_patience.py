import logging
import time

from pymc_geodesic.runtime import patience


def messages_of(seconds, caplog, monkeypatch, times=1):
    monkeypatch.setattr(patience, "_NOTICE", patience._Notice())
    caplog.set_level(logging.INFO, logger="pymc")
    caplog.clear()
    for _ in range(times):
        with patience.report_long_compilation(seconds):
            time.sleep(0.2)
    return [record.message for record in caplog.records if record.name == "pymc"]


def test_what_takes_long_is_announced_once(caplog, monkeypatch):
    assert messages_of(0.01, caplog, monkeypatch, times=2) == [patience.MESSAGE]


def test_what_is_quick_is_not(caplog, monkeypatch):
    assert messages_of(60.0, caplog, monkeypatch) == []
