"""TVM's own tests that tune, under `pruner-ms run` with our names as defaults.

    python -m benchmarks.tvm_tests --tag v0.26.0 --out benchmarks/results/tvm_tests.json

The files are checked out of TVM's repository at a release's tag into a temporary folder; give the
tag of the TVM that is installed (`--repository` names a copy that is nearer). They name no
strategy, so that ours searches; the line that `pruner-ms run` ends with counts what it had
measured. Tests that upstream always skips run, too (`tests.support.unskip`).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import fingerprint

FILES = (
    "tests/python/relax/test_meta_schedule_relax_integration.py",
    "tests/python/relax/test_transform_meta_schedule_tuning.py",
    "tests/python/relax/test_transform_meta_schedule_apply_database.py",
    "tests/python/s_tir/meta_schedule/test_meta_schedule_tune_tir.py",
)
TALLY = re.compile(
    r"(?P<calls>\d+) tuning calls, (?P<tasks>\d+) tasks; our search tuned (?P<ours>\d+) of them "
    r"and measured (?P<measured>\d+) candidates \((?P<failed>\d+) failed\)"
)
OUTCOME = re.compile(r"(\d+) (passed|failed|skipped|error)")


def checked_out(repository: str, tag: str, folder: Path) -> str:
    """Put the files of a tag into a folder; its commit."""
    git = ["git", "-C", str(folder)]
    subprocess.run([*git, "init", "--quiet"], check=True)
    fetch = ["fetch", "--quiet", "--depth", "1", repository, f"refs/tags/{tag}"]
    subprocess.run([*git, *fetch], check=True)
    subprocess.run([*git, "checkout", "--quiet", "FETCH_HEAD", "--", *FILES], check=True)
    commit = [*git, "rev-parse", "FETCH_HEAD^{commit}"]
    return subprocess.run(commit, check=True, capture_output=True, text=True).stdout.strip()


def run(folder: Path, name: str) -> dict[str, Any]:
    """Run one file; what came of its tests, and what our search did."""
    command = [sys.executable, "-m", "pruner_ms", "run", "-m", "pytest", "-rsf", "-q"]
    done = subprocess.run(
        [
            *command,
            "-p",
            "tests.support.unskip",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:logging",
            name,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    outcomes: dict[str, Any] = {word: int(count) for count, word in OUTCOME.findall(done.stdout)}
    tally = TALLY.search(done.stderr)
    outcomes["search"] = {k: int(v) for k, v in tally.groupdict().items()} if tally else None
    outcomes["skips"] = re.findall(r"SKIPPED .*?: (.*)", done.stdout)
    if done.returncode:
        said = re.findall(r"^(?:E  |FAILED).*", done.stdout, re.MULTILINE)
        outcomes["said"] = [line.replace(sys.prefix, "") for line in said[-8:]]
    return outcomes


def main() -> None:
    """Run every file, write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", required=True)
    parser.add_argument("--repository", default="https://github.com/apache/tvm")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    import tvm

    with tempfile.TemporaryDirectory() as root:
        commit = checked_out(options.repository, options.tag, Path(root))
        files = {}
        for name in FILES:
            files[name] = run(Path(root), name)
            print(name, json.dumps(files[name]), flush=True)
    about = {"tag": options.tag, "commit": commit, "tvm": str(tvm.__version__)}
    results = json.loads(options.out.read_text()) if options.out.exists() else {"runs": []}
    results["runs"] = [one for one in results["runs"] if one["tag"] != options.tag]
    results["runs"].append({**about, "machine": fingerprint(), "files": files})
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
