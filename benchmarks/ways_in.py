"""Every way in on every TVM: the programs of `docs`, run in the environments of `make matrix`.

    make matrix relay-env
    python -m benchmarks.ways_in --out benchmarks/results/ways_in.json

Each cell is all programs of a page, scaled down as in the tests, each in a process and a folder of
its own. `.venv-relay` has TVM 0.17; there the programs are read in the words of that time
(`tests.support.documents`). The table goes to `docs/versions.md`, between two comments.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

from benchmarks.machine import command_line, fingerprint
from tests.support.documents import COMMANDS, CodeBlock, blocks_of

ROOT = Path(__file__).parents[1]
VERSIONS = {"0.17": ".venv-relay", "0.25": ".venv-0.25", "0.26": ".venv-0.26", "0.27": ".venv"}
PAGES = {
    "tune_tir": "`tune_tir`",
    "relax": "Relax: functions, passes, pipeline",
    "relay": "Relay",
    "onnx": "ONNX file",
    "torch": "torch module, `torch.compile`",
    "script": "unchanged script",
    "rpc": "RPC servers",
}
ABSENT = {
    ("relay", "0.25"): "removed from TVM",
    ("relay", "0.26"): "removed from TVM",
    ("relay", "0.27"): "removed from TVM",
    ("onnx", "0.17"): "through Relay",
    ("torch", "0.17"): "through Relay",
}
"""Cells that are not run, and why."""
SECONDS = 900
BEGIN, END = "<!-- ways in -->\n", "<!-- end of ways in -->\n"


def cell(page: str, block: CodeBlock, version: str) -> str:
    """Run one block; "ok", or the last line of what it said."""
    scripts = ROOT / VERSIONS[version] / "bin"
    old = version == "0.17" and page != "relay"
    code = (block.for_old_tvm() if old else block).code
    python = (str(scripts / "python"), "-c")
    env = {
        **os.environ,
        "PATH": f"{scripts}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "ROOT": str(ROOT),
    }
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*(python if block.language == "python" else COMMANDS[block.language]), code],
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"not done within {SECONDS} s"
    if done.returncode == 0:
        return "ok"
    return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200]


def table(cells: dict[str, dict[str, str]]) -> str:
    """The table of the page."""
    lines = [f"| | {' | '.join(VERSIONS)} |", f"|---|{'---|' * len(VERSIONS)}"]
    for page, title in PAGES.items():
        words = [
            {"ok": "yes"}.get(cells[page].get(v, "-"), cells[page].get(v, "-")) for v in VERSIONS
        ]
        lines.append(f"| [{title}]({page}.md) | {' | '.join(words)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the cells, write the results and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", choices=PAGES, help="these pages again")
    options = parser.parse_args()
    old = json.loads(options.out.read_text())["cells"] if options.out.exists() else {}
    cells: dict[str, dict[str, str]] = {}
    for page in PAGES:
        if page in old and options.only and page not in options.only:
            cells[page] = old[page]
            continue
        blocks = [
            block
            for block in blocks_of((ROOT / "docs" / f"{page}.md").read_text())
            if block.language in ("python", "bash")
        ]
        cells[page] = {}
        for version in VERSIONS:
            absent = ABSENT.get((page, version))
            said = [] if absent else [cell(page, block, version) for block in blocks]
            cells[page][version] = absent or next((text for text in said if text != "ok"), "ok")
            print(page, version, cells[page][version], flush=True)
    about = {"machine": fingerprint(), "command": command_line()}
    options.out.write_text(json.dumps({**about, "cells": cells}, indent=1) + "\n")
    page_of_versions = ROOT / "docs" / "versions.md"
    text = page_of_versions.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    page_of_versions.write_text(
        head + BEGIN + table(cells) + END + rest.split(END)[1], encoding="utf-8"
    )


if __name__ == "__main__":
    main()
