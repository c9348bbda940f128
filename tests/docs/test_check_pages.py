"""What `make docs` finds in the pages that it has written."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "check_pages.py"
specification = importlib.util.spec_from_file_location("check_pages", SCRIPT)
check_pages = importlib.util.module_from_spec(specification)
specification.loader.exec_module(check_pages)

GOOD = """<html><head><link rel="stylesheet" href="look.css?v=1"><script src="own.js"></script>
<link rel="next" href="other.html"></head><body id="top">
<a href="other.html#part-%C3%A9">there</a> <a href="#top">up</a> <a href="other.html">all of it</a>
<a href="https://example.org/elsewhere">a link, which is not loaded</a> <a href="mailto:a@b">m</a>
<span class="math notranslate">\\(\\text{some words here} \\operatorname{ess} \\alpha x\\)</span>
</body></html>"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "look.css").write_text("")
    (tmp_path / "own.js").write_text("")
    (tmp_path / "other.html").write_text('<h1 id="part-é">x</h1>')
    (tmp_path / "index.html").write_text(GOOD)
    return tmp_path


def test_good_pages_have_no_fault(folder):
    assert check_pages.faults(folder) == []


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('<a href="gone.html">x</a>', "no such file"),
        ('<a href="other.html#gone">x</a>', "no such part"),
        ('<a href="#gone">x</a>', "no such part"),
        ('<img src="gone.png">', "no such file"),
        ('<script src="https://example.org/a.js"></script>', "another server"),
        ('<link rel="stylesheet" href="//example.org/a.css">', "another server"),
        ("<span class='math x'>\\(and the words between x\\)</span>", "words in a formula"),
    ],
)
def test_a_fault_is_found(folder, content, fault):
    (folder / "bad.html").write_text(content)
    (found,) = check_pages.faults(folder)
    assert found.startswith("bad.html")
    assert fault in found


def test_a_page_in_a_folder_is_found_from_there(folder):
    (folder / "sub").mkdir()
    (folder / "sub" / "index.html").write_text('<a href="../other.html">x</a><a href="../">y</a>')
    assert check_pages.faults(folder) == []
