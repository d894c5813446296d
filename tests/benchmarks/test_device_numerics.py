"""Numerics on a device: kernels that ran, that failed, and that there was no time for."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import device_numerics
from tests.support import device_products as products

WORKER = """
import json, sys, time
for file in sys.argv[1:]:
    if file == "breaks.so":
        print(json.dumps({"file": file, "error": "misaligned address"}), flush=True)
        sys.exit(0)
    if file == "dies.so":
        sys.exit("killed by a signal, say")
    if file == "waits.so":
        time.sleep(60)
    print(json.dumps({"file": file, "worst": 2.0 if file == "wrong.so" else 0.5}), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Kernels of which a made-up worker says what it is told by their names."""
    files = ["right.so", "breaks.so", "dies.so", "wrong.so", "other.so"]
    cases = [{"name": "half", "row": "", "file": file, "arrays": []} for file in files]
    (tmp_path / "0-index.json").write_text(json.dumps(cases))
    script = tmp_path / "worker.py"
    script.write_text(textwrap.dedent(WORKER))
    real = device_numerics.subprocess.Popen

    def started(command: list[str], **options: Any) -> Any:
        return real([command[0], str(script), *command[5:]], **options)

    monkeypatch.setattr(device_numerics.subprocess, "Popen", started)
    return tmp_path


def rows_of(output: Path) -> dict[str, dict[str, Any]]:
    return {row["file"]: row for row in json.loads(output.read_text())["rows"]}


@pytest.mark.parametrize("processes", [1, 3])
def test_a_kernel_that_breaks_its_process_costs_no_other(folder: Path, processes: int) -> None:
    output = folder / "figures.json"
    assert device_numerics.run(folder, output, processes, 60.0) == 3
    rows = rows_of(output)
    assert len(rows) == 5
    assert rows["right.so"]["worst"] == rows["other.so"]["worst"] == 0.5
    assert rows["breaks.so"]["error"] == "misaligned address"
    assert "signal" in rows["dies.so"]["error"]
    table = json.loads(output.read_text())
    assert (table["built"], table["kernels"], table["wrong"]) == (5, 5, 3)


def test_what_there_was_no_time_for_is_judged_the_next_time(folder: Path) -> None:
    index = folder / "0-index.json"
    cases = json.loads(index.read_text())
    slow = [
        {**case, "file": name} for case, name in zip(cases, ["right.so", "waits.so"], strict=False)
    ]
    index.write_text(json.dumps(slow))
    output = folder / "figures.json"
    device_numerics.run(folder, output, 2, 3.0)
    assert set(rows_of(output)) == {"right.so"}
    index.write_text(json.dumps([*slow[:1], {**slow[1], "file": "other.so"}]))
    device_numerics.run(folder, output, 2, 30.0)
    assert set(rows_of(output)) == {"right.so", "other.so"}


def test_a_wrong_product_exceeds_what_its_instruction_may_err() -> None:
    rng = np.random.default_rng(0)
    arrays = products.arguments("half", rng)
    exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    row = "mma_m16n8k16_f16f16f32"
    assert products.judged("half", row, arrays, exact) == 0.0
    assert products.judged("half", row, arrays, exact.astype(np.float32).astype(np.float64)) < 1
    swapped = exact.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert products.judged("half", row, arrays, swapped) > 1
    turned = products.arguments("by columns", rng)
    assert products.judged("by columns", row, turned, turned[0].astype(float) @ turned[1].T) < 1e-6
