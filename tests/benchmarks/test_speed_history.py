"""History of speed: slower operations are flagged, measurements under load are not."""

import json

import pytest

from benchmarks import measured_speed, speed_history
from benchmarks.speed_history import BEFORE, history, quickest, report, slower


def entry(ratio, *, lower=None, name="draw", date="2026-01-01", processor="one"):
    figures = {"ratio": ratio, "lower": ratio if lower is None else lower, "upper": ratio}
    return {
        "commit": "0123456789",
        "date": date,
        "subject": "words",
        "processor": processor,
        "figures": {name: figures},
    }


def test_operations_that_take_20_percent_longer_are_flagged():
    before = [entry(1.0), entry(5.0), entry(1.0)]
    (message,) = slower(entry(1.3), before)
    assert message == "draw: 1.30 times as long (1.3 after 1)"
    assert slower(entry(1.19), before) == slower(entry(0.5), before) == []


def test_uncertain_or_new_ratios_are_not_flagged():
    assert slower(entry(1.3, lower=1.1), [entry(1.0)]) == []
    assert slower(entry(1.3, name="other"), [entry(1.0)]) == []


def test_measurements_under_load_are_ignored():
    quiet, disturbed = entry(1.0, lower=0.9), entry(1.6, lower=1.5)
    for turns in ([quiet, disturbed], [disturbed, quiet]):
        assert quickest(turns) == quiet
    assert slower(quickest([disturbed, disturbed]), [quiet])


def test_exit_status_of_the_report(capsys):
    assert report([], entry(1.0)) == 0
    assert report(["draw: 1.30 times"], entry(1.0)) == 1
    assert "draw: 1.30 times" in capsys.readouterr().out


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Return a function that stores entries in a temporary folder."""
    monkeypatch.setattr(speed_history, "HISTORY", tmp_path)

    def keep(*entries):
        for i, each in enumerate(entries):
            each["date"] = f"2026-01-{i + 1:02d}T00:00:00"
            each["commit"] = f"{i:010d}"
            speed_history.keep(each)

    return keep


def test_entries_are_sorted_by_date(kept):
    kept(*[entry(float(i + 1)) for i in range(12)])
    assert [each["figures"]["draw"]["ratio"] for each in history()] == [*range(1, 13)]


@pytest.mark.parametrize(("newest", "status"), [("one", 1), ("another", 0)])
def test_newest_entry_is_compared_with_entries_of_its_processor(kept, newest, status):
    mine = [entry(9.0)] + [entry(1.0)] * BEFORE
    others = [entry(2.0, processor="another") for _ in range(BEFORE)]
    kept(*map(dict, mine), *others, entry(2.0, processor=newest))
    assert speed_history.main(["check"]) == status


def test_new_processor_is_compared_with_all_entries(kept):
    kept(*[entry(1.0) for _ in range(3)], entry(1.5, processor="new"))
    assert speed_history.main(["check"]) == 1


def test_stored_history_is_valid():
    entries = history()
    assert len(entries) > 2
    for each in entries:
        assert len(each["commit"]) == 40
        for figures in each["figures"].values():
            assert 0 < figures["lower"] <= figures["ratio"] <= figures["upper"]
    json.dumps(entries)


def test_ratios_are_computed_within_a_round(monkeypatch):
    """With a simulated clock of a machine that becomes slower."""
    clock, speed = [0.0], [1.0]
    monkeypatch.setattr(measured_speed, "process_time", lambda: clock[0])

    def work(seconds):
        def run():
            speed[0] *= 1.0001
            clock[0] += seconds * speed[0]

        return run

    found = measured_speed.ratios(work(0.003), work(0.001), rounds=5)
    assert found == pytest.approx([3.0] * 5, rel=1e-3)
    assert clock[0] > 5 * 3 * measured_speed.TURN
