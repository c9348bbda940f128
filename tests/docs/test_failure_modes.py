"""Messages link to sections of the page on failure modes, and the sections exist."""

import ast
import re
import tomllib
from email.message import Message
from importlib import metadata
from pathlib import Path

import pytest

from pymc_geodesic import failure_modes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "failure_modes.md").read_text()
LABELS = re.findall(r"^\(([\w-]+)\)=$", PAGE, flags=re.MULTILINE)


def anchors(source: str) -> set[str]:
    """Anchors of ``see(message, anchor)`` and ``Diagnosis(anchor=...)``; "" for a missing one."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        named = {keyword.arg: keyword.value for keyword in node.keywords}
        match ast.unparse(node.func):
            case "see":
                anchor = node.args[1] if len(node.args) == 2 else None
            case "Diagnosis":
                anchor = named.get("anchor")
            case _:
                continue
        if isinstance(anchor, ast.Constant):
            found.add(anchor.value)
        elif anchor is None or ast.unparse(anchor).split(".")[-1] != "anchor":
            found.add("")
    return found


USED = {
    anchor
    for path in sorted((ROOT / "pymc_geodesic").rglob("*.py"))
    for anchor in anchors(path.read_text())
}


def test_every_anchor_of_a_message_is_on_the_page():
    assert len(USED) > 15
    assert sorted(USED - set(LABELS)) == []


def test_labels_are_there_once_and_before_a_heading():
    assert len(LABELS) == len(set(LABELS))
    assert len(re.findall(r"^\([\w-]+\)=\n#+ ", PAGE, flags=re.MULTILINE)) == len(LABELS)


@pytest.fixture
def addresses(monkeypatch):
    """Metadata as pyproject.toml makes them, whatever was installed before."""
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    message = Message()
    for name, url in urls.items():
        message["Project-URL"] = f"{name}, {url}"
    monkeypatch.setattr(metadata, "metadata", lambda name: {"pymc_geodesic": message}[name])
    failure_modes.documentation.cache_clear()
    yield urls
    failure_modes.documentation.cache_clear()


def test_a_message_ends_with_the_address_of_its_part(addresses):
    url = f"{addresses['Documentation']}failure_modes.html#funnel"
    assert addresses["Documentation"].endswith("/")
    assert failure_modes.see("it is a funnel", "funnel") == f"it is a funnel. See {url}"
    assert failure_modes.see("It is a funnel.", "funnel") == f"It is a funnel. See {url}"


def test_a_message_stays_as_it_is_without_an_address(monkeypatch):
    def none(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", none)
    failure_modes.documentation.cache_clear()
    assert failure_modes.see("it is a funnel", "funnel") == "it is a funnel"
    failure_modes.documentation.cache_clear()
