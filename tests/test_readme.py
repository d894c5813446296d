"""Every code block of README.md is run.

An HTML comment before a block, `<!-- test: A => B -->`, scales it down: text A becomes B, in the
block that follows only. A block in another language than bash or python must be `text`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"(?:<!-- test: (?P<old>[^\n]+?) => (?P<new>[^\n]+?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One code block, scaled down as its comment says."""

    language: str
    code: str
    title: str


def _blocks(text: str) -> list[Block]:
    found = []
    for match in BLOCK.finditer(text):
        code = match["code"]
        if match["old"]:
            assert match["old"] in code, f"nothing to replace: {match['old']}"
            code = code.replace(match["old"], match["new"])
        first = code.strip().splitlines()[0]
        found.append(Block(match["language"], code, f"{match['language']}: {first[:40]}"))
    return found


README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = _blocks(README)
COMMANDS = {"bash": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}


def test_no_block_escapes():
    assert len(BLOCKS) * 2 == len(re.findall("^```", README, re.MULTILINE))
    assert README.count("<!-- test:") == sum("=>" in m[0] for m in BLOCK.finditer(README))
    assert {b.language for b in BLOCKS} <= {*COMMANDS, "text"}
    assert sum(b.language == "bash" for b in BLOCKS) >= 2
    assert sum(b.language == "python" for b in BLOCKS) >= 3


def test_a_comment_changes_the_next_block_only():
    text = "<!-- test: 64 => 4 -->\n```python\nn = 64\n```\n\n```python\nn = 64\n```\n"
    assert [b.code for b in _blocks(text)] == ["n = 4\n", "n = 64\n"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "block", [b for b in BLOCKS if b.language in COMMANDS], ids=lambda b: b.title
)
def test_a_block_runs(block, tmp_path):
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
