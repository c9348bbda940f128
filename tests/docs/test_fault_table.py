"""Each fault that the page of long runs lists is made to happen by the test it names."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def faults():
    """Fault, what is seen, what is kept, and the test."""
    page = (ROOT / "docs" / "long_runs.md").read_text()
    table = page.split("| What happens |", 1)[1].split("\n\n", 1)[0]
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()[2:]]
    return [row for row in rows if not row[0].startswith("**")]


def test_every_fault_has_its_test():
    written = "\n".join(
        path.read_text() for folder in ("runs", "distributed")
        for path in (ROOT / "tests" / folder).glob("test_*.py")
    )  # fmt: skip
    tests = set(re.findall(r"^def (test_\w+)", written, re.MULTILINE))
    missing = [fault for fault, *_, test in faults() if test.strip("`") not in tests]
    assert not missing


def test_every_fault_says_what_is_seen_and_kept():
    assert len(faults()) >= 25
    assert all(len(row) == 4 and all(row) for row in faults())
