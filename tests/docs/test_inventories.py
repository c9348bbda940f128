"""The list of names of other projects, and what the pages and docstrings link to."""

import importlib.util
import re
import zlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
specification = importlib.util.spec_from_file_location(
    "inventories", DOCS / "_extensions" / "inventories.py"
)
inventories = importlib.util.module_from_spec(specification)
specification.loader.exec_module(inventories)

NAMES = inventories.read_names(DOCS / "inventories.txt")
KNOWN = {line.split(" ")[0] for _, lines in NAMES.values() for line in lines}
ROLE = re.compile(r"\{(?:py:)?(?:class|func|meth|mod|data|obj)\}`(?:[^`<]*<)?~?([\w.]+)>?`")
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("notebooks/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_roles_that_name_another_project_are_on_the_list(page):
    others = [n for n in ROLE.findall(page.read_text()) if n.split(".")[0] in NAMES]
    assert [name for name in others if name not in KNOWN] == []


def test_an_inventory_holds_its_lines(tmp_path):
    source = tmp_path / "names.txt"
    source.write_text("# a word\n\n[one] https://one.org/\npy:class one.Two api#one.Two A title\n")
    mapping = inventories.write_inventories(source, tmp_path / "made")
    address, path = mapping["one"]
    assert address == "https://one.org/"
    header, body = Path(path).read_bytes().split(b"zlib.\n")
    assert header.startswith(b"# Sphinx inventory version 2\n# Project: one\n# Version: \n")
    assert zlib.decompress(body).decode() == "one.Two py:class 1 api#one.Two A title\n"


def test_addresses_are_folders_and_names_are_there_once():
    for address, lines in NAMES.values():
        assert re.fullmatch(r"https://\S+/", address)
        assert len({line.split(" ")[0] for line in lines}) == len(lines)
