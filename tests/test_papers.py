"""What the pages for contributors name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/glossary.md")
PLACES = (
    *(ROOT, ROOT / "pruner_ms", ROOT / "integration" / "graph", ROOT / "tests" / "support"),
    *(ROOT / "pruner_ms").iterdir(),
)
FILE = re.compile(r"[\w./-]+\.(?:py|md|toml|txt|cff)\b")
COMMAND = re.compile(r"make ([a-z-]+)")


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    for name in FILE.findall((ROOT / page).read_text()):
        places = (*PLACES, (ROOT / page).parent)
        assert "X" in name or any((place / name).exists() for place in places), f"{page}: {name}"


LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
PUBLIC = (ROOT / "README.md", *ROOT.glob("docs/*.md"), *(ROOT / page for page in PAGES))


@pytest.mark.parametrize("page", PUBLIC, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for file, anchor in LINK.findall(prose):
        target = (page.parent / file) if file else page
        assert target.exists(), file
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
            assert anchor in anchors, f"{file}#{anchor}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_that_a_page_names_are_targets_of_the_makefile(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in COMMAND.findall((ROOT / page).read_text()):
        assert re.search(rf"^{name}:", makefile, re.MULTILINE), f"{page}: make {name}"


def test_the_version_is_the_same_everywhere() -> None:
    (version,) = re.findall(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.M)
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
