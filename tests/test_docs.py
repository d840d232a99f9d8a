"""The documentation names files, sections and tests that exist."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PATH = re.compile(r"(?:[\w.-]+/)+(?:[\w.-]+)?|[\w-]+\.(?:py|md|svg|toml|lark)")
_TEST = re.compile(r"test_\w+")
# Everything that a path in the documentation may begin with; other words with a slash are no paths.
_TOP = {path.name for path in ROOT.iterdir()} - {".venv", ".git", "build"}


def by_name(page: Path) -> str:
    """The test id of a page."""
    return str(page.relative_to(ROOT))


@cache
def prose(page: Path) -> str:
    """The text of a page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def paths(page: Path) -> Iterator[str]:
    """The names in backticks that look like files or folders of this repository."""
    for name in _CODE.findall(prose(page)):
        if _PATH.fullmatch(name) and ("/" not in name or name.split("/")[0] in _TOP):
            yield name


@cache
def file_names() -> set[str]:
    """The names of all files, for pages that name a file without its folder."""
    folders = (ROOT / top for top in _TOP if not top.startswith("."))
    return {path.name for folder in folders for path in (folder, *folder.rglob("*"))}


def anchor(heading: str) -> str:
    """The anchor that Git hosts give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    missing = [
        name
        for name in paths(page)
        if not ((ROOT / name).exists() if "/" in name else name in file_names())
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_relative_link_leads_to_a_page_and_a_section(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if "://" in link:
            continue
        name, _, section = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if section:
            headings = {anchor(each) for each in _HEADING.findall(prose(target))}
            assert section in headings, f"{link}: {sorted(headings)}"


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    sources = all_tests()
    names = [name for name in _CODE.findall(prose(page)) if _TEST.fullmatch(name)]
    assert [name for name in names if f"def {name}(" not in sources] == []


@cache
def all_tests() -> str:
    """The source of all tests."""
    return "\n".join(path.read_text() for path in sorted(ROOT.glob("tests/**/test_*.py")))


def test_the_index_lists_every_page() -> None:
    index = ROOT / "docs/README.md"
    linked = {(index.parent / link).resolve() for link in _LINK.findall(index.read_text())}
    pages = set(ROOT.glob("docs/**/*.md")) - {index} - set(ROOT.glob("docs/decisions/*.md"))
    assert {by_name(page) for page in pages - linked} == set()
