"""Code blocks of pages, as they are run.

An HTML comment before a block, `<!-- test: A => B -->`, scales it down: text A becomes B, in the
block that follows only.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

BLOCK = re.compile(
    r"(?:<!-- test: (?P<old>[^\n]+?) => (?P<new>[^\n]+?) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

COMMANDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"bash": ("bash", "-euo", "pipefail", "-c"), "python": (sys.executable, "-c")}
)
"""What runs a block of a language; others are only read."""

OLD_WORDS = (
    ("tvm.s_tir.meta_schedule", "tvm.meta_schedule"),
    ("from tvm.s_tir import", "from tvm import"),
    ("tvm.runtime.tensor(", "tvm.nd.array("),
    ("tvm.compile(", "tvm.build("),
)
"""What a program says to TVM from 0.24 on, and up to 0.19."""


@dataclass(frozen=True)
class CodeBlock:
    """One code block, scaled down as its comment says."""

    language: str
    code: str
    title: str

    def for_old_tvm(self) -> CodeBlock:
        """The same in the words of TVM up to 0.19."""
        code = self.code
        for new, old in OLD_WORDS:
            code = code.replace(new, old)
        return replace(self, code=code)


def blocks_of(text: str) -> list[CodeBlock]:
    """The code blocks of a page.

    Raises
    ------
    ValueError
        A comment names a text that is not in its block.
    """
    blocks = []
    for match in BLOCK.finditer(text):
        code = match["code"]
        if match["old"]:
            if match["old"] not in code:
                raise ValueError(f"nothing to replace: {match['old']}")
            code = code.replace(match["old"], match["new"])
        first = code.strip().splitlines()[0]
        blocks.append(CodeBlock(match["language"], code, f"{match['language']}: {first[:40]}"))
    return blocks
