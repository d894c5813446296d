"""Every code block of README.md and of the pages in `docs` is run.

A block in another language than bash or python must be `text`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.documents import BLOCK, COMMANDS, blocks_of

ROOT = Path(__file__).parents[1]
TEXTS = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
}
BLOCKS = {name: blocks_of(text) for name, text in TEXTS.items()}
WANTED = {
    "README": {"bash": 2, "python": 3},
    "tensorcores": {"bash": 1, "python": 1},
    **{key: {} for key in ("benchmarks", "constants", "glossary", "networks", "versions")},
    "script": {"bash": 1},
    "pools": {"bash": 2},
    "weights": {"bash": 1},
}
OLD_TVM = ("relay",)
"""Pages for a TVM with Relay; all others are for 0.25 and later."""
ALWAYS = "pruner-ms tune squeezenet"
"""In the main job; of the other blocks some are drawn."""
RUN = [
    pytest.param(
        name,
        block,
        id=f"{name}: {block.title}",
        marks=() if ALWAYS in block.code else pytest.mark.heavy,
    )
    for name, blocks in BLOCKS.items()
    for block in blocks
    if block.language in COMMANDS
]


@pytest.mark.parametrize("name", TEXTS)
def test_no_block_escapes(name):
    text, blocks = TEXTS[name], BLOCKS[name]
    assert len(blocks) * 2 == len(re.findall("^```", text, re.MULTILINE))
    assert text.count("<!-- test:") == sum("=>" in m[0] for m in BLOCK.finditer(text))
    languages = [block.language for block in blocks]
    assert {*languages} <= {*COMMANDS, "text"}
    wanted = WANTED.get(name, {"python": 1})
    assert all(languages.count(language) >= count for language, count in wanted.items())


def test_there_is_a_page_for_every_way_in():
    ways = {"tune_tir", "relax", "relay", "onnx", "torch", "script", "rpc"}
    others = {"benchmarks", "constants", "glossary", "networks", "pools", "tensorcores"}
    others |= {"versions", "weights"}
    assert {*TEXTS} - {"README"} == ways | others
    assert all(f"docs/{name}.md" in TEXTS["README"] for name in TEXTS if name != "README")


def test_a_comment_changes_the_next_block_only():
    text = "<!-- test: 64 => 4 -->\n```python\nn = 64\n```\n\n```python\nn = 64\n```\n"
    assert [b.code for b in blocks_of(text)] == ["n = 4\n", "n = 64\n"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "block"), RUN)
def test_a_block_runs(name, block, tmp_path):
    if (name in OLD_TVM) != (importlib.util.find_spec("tvm.relay") is not None):
        pytest.skip("the page is for another TVM")
    scripts = Path(sys.executable).parent
    done = subprocess.run(
        [*COMMANDS[block.language], block.code],
        cwd=tmp_path,
        env=os.environ | {"PATH": f"{scripts}:{os.environ['PATH']}", "ROOT": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    text = done.stdout[-2000:] + done.stderr[-4000:]
    if done.returncode and "needs torch" in text and importlib.util.find_spec("torch") is None:
        pytest.skip("the block asks for a cost model of ours, and torch was left out")
    assert done.returncode == 0, text
