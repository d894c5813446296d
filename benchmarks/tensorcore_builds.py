"""TensorCore candidates as nvcc builds them, beside what the draft said: no GPU needed.

Of every design of `space="tensorcore"` some candidates that a search would build are built for each
architecture; half of them are the draft's best, half are drawn. Kept of each: whether it was
built, in how many seconds and from how many kilobytes of CUDA, the compiler's registers, spills and
shared memory (`ptxas -v`), what the draft said of these, and which instructions the code has.
`agreement` sums up how far the two agree. A run goes on where it was stopped.

    python -m benchmarks.tensorcore_builds --rows 20 --workloads gemm:1024x1024x1024:f16,...
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.machine import command_line, fingerprint
from benchmarks.race.specs import workload_of
from pruner_ms.config import SearchConfig
from pruner_ms.draft import draft
from pruner_ms.draft.gpu.occupancy import Launch, register_limit, registers_of
from pruner_ms.draft.nest import nest_of
from pruner_ms.hardware import gpus, hardware_for
from pruner_ms.symbolic.space import Sketch, decision_space
from pruner_ms.types import IntArray
from tests.support.designs import design_of, is_split
from tests.support.no_driver import again

RESULTS = Path(__file__).parent / "results" / "tensorcore_builds.json"
SPACE = "tensorcore"
WORKLOADS = "gemm:1024x1024x1024:f16,conv2d:1x28x28x128x128x3:s1:p1:f16"
ARCHS: Mapping[str, int] = {
    name: gpus.ARCHS[name].block_kib * gpus.KIB for name in ("sm_80", "sm_90")
}
"""Architectures, and the shared memory that a block may ask for."""

PATIENCE = 60.0
"""Seconds after which a compiler is given up, and the candidate counts as one that does not build;
MetaSchedule's builder waits for 30 in all."""

SPILLED = 256
"""Bytes from which on a kernel counts as one that spills."""

MOST_REGISTERS = 255
"""Of a thread, where a run does not say how many its block leaves it."""

ALIGNMENT = 64
"""Bytes of shared memory by which buffers may be set apart."""

DRAWN = 4096
"""Rows of a design of which candidates are taken."""

CODE: Mapping[str, str] = {
    "product": r"wmma\.mma|\bmma\.sync",
    "load": r"wmma\.load|ldmatrix",
    "copy": r"cp\.async\.c[ag]",
}
"""What is looked for in PTX."""

_REPORT: Mapping[str, str] = {
    "registers": r"Used (\d+) registers",
    "spilled_bytes": r"(\d+) bytes spill stores",
    "static_shared": r"(\d+) bytes smem",
}
"""What `ptxas -v` says."""

NVCC_FLAGS = (
    "-O3",
    "-U__CUDA_NO_HALF_OPERATORS__",
    "-U__CUDA_NO_HALF_CONVERSIONS__",
    "-U__CUDA_NO_BFLOAT16_OPERATORS__",
    "-U__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-U__CUDA_NO_BFLOAT162_OPERATORS__",
    "-U__CUDA_NO_BFLOAT162_CONVERSIONS__",
    "--expt-relaxed-constexpr",
    "--expt-extended-lambda",
    "--use_fast_math",
)
PTXAS_FLAGS = ("-v", "--register-usage-level=10", "--warn-on-local-memory-usage")
"""What TVM 0.27 compiles with (its `support/nvcc.py`)."""


class Compiler:
    """Compiles for TVM, and keeps what the compiler said of the last program."""

    def __init__(self, arch: str) -> None:
        self.arch, self.said = arch, ""
        self.ptx, self.kilobytes = "", 0.0

    def __call__(self, code: str, *_: Any) -> bytes:
        """The binary of a program."""
        with tempfile.TemporaryDirectory() as folder:
            source, ptx, binary = (Path(folder) / name for name in ("a.cu", "a.ptx", "a.cubin"))
            source.write_text(code)
            self.kilobytes = len(code) / 1e3
            arch = f"-arch={self.arch}"
            _run("nvcc", "-ptx", *NVCC_FLAGS, arch, "-o", ptx, source)
            self.ptx = ptx.read_text()
            self.said = _run("ptxas", *PTXAS_FLAGS, arch, "-o", binary, ptx)
            return binary.read_bytes()


def _run(*command: Any) -> str:
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return done.stderr


def candidates(
    sketch: Sketch, hardware: Any, count: int, rng: np.random.Generator
) -> tuple[IntArray, dict[str, list[float]]]:
    """Rows that a search may build, half of them the draft's best, and what it says of them."""
    rows = sketch.sample(DRAWN, rng)
    program = sketch.program(rows)
    estimates = draft(program, hardware, compile_limit=SearchConfig().build_limit("gpu"))
    valid = np.flatnonzero(estimates.valid & program.supported)
    best = valid[np.argsort(estimates.latency[valid])][: count // 2]
    others = np.setdiff1d(valid, best)
    drawn = rng.permutation(others)[: count - len(best)]
    chosen = np.concatenate([best, drawn])
    if program.gpu is None:
        return rows[chosen], {}
    launch = Launch.of(program.gpu, hardware.sm.warp)
    nests = [nest_of(statement, program) for statement in program.statements]
    registers = registers_of(nests, launch, program.buffers, hardware.sm.warp)
    said = {
        "registers": np.broadcast_to(registers, (DRAWN,)),
        "limit": np.broadcast_to(register_limit(launch, hardware.sm), (DRAWN,)),
        "shared": program.gpu.shared,
        "latency": estimates.latency,
        "seconds": estimates.compile_seconds,
    }
    return rows[chosen], {name: np.asarray(v)[chosen].tolist() for name, v in said.items()}


def built(schedule: Any, target: Any, compiler: Compiler) -> dict[str, Any]:
    """What comes of a build."""
    from pruner_ms.tvm_compat.operand_names import told_apart
    from pruner_ms.tvm_compat.passes import config_for, drop_layout_rewrite
    from pruner_ms.tvm_compat.paths import PassContext, build

    start = time.perf_counter()
    compiler.kilobytes = 0.0
    try:
        with target, PassContext(config=config_for(target, True)):
            build(told_apart(drop_layout_rewrite(schedule.mod)), target=target)
    except Exception as error:  # the compiler's and TVM's errors have no class of their own
        return {"error": str(error).strip()[-300:]}
    if not compiler.kilobytes:
        raise RuntimeError("TVM built a kernel without asking the compiler: no CUDA runtime here")
    report: dict[str, Any] = {"seconds": round(time.perf_counter() - start, 2)}
    report["kilobytes"] = round(compiler.kilobytes, 1)
    for name, pattern in _REPORT.items():
        report[name] = max((int(n) for n in re.findall(pattern, compiler.said)), default=0)
    report["code"] = [name for name, pattern in CODE.items() if re.search(pattern, compiler.ptx)]
    return report


def target_of(arch: str) -> Any:
    """The TVM `Target` of an architecture, with all shared memory that a block can ask for."""
    from pruner_ms.tvm_compat.paths import Target

    return Target(
        {
            "kind": "cuda",
            "arch": arch,
            "max_threads_per_block": 1024,
            "max_shared_memory_per_block": ARCHS[arch],
            "thread_warp_size": 32,
        }
    )


def look(
    workload: str, arch: str, count: int, seed: int, wanted: str = "", space: str = SPACE
) -> dict[str, Any]:
    """All designs of a space for a workload on an architecture whose name has a text in it."""
    from pruner_ms.tvm_compat.paths import TuneContext, register_global_func
    from pruner_ms.tvm_compat.targets import attrs_of

    compiler = Compiler(arch)
    register_global_func("tvm_callback_cuda_compile", compiler, override=True)
    target = target_of(arch)
    hardware = hardware_for(attrs_of(target), use_host=False)
    context = TuneContext(
        workload_of(workload).func(),
        target=target,
        space_generator=space,
        search_strategy=None,
        num_threads=1,
        rand_state=seed,
    )
    designs = list(context.generate_design_space())
    sketches = decision_space(designs, context.mod, target)
    postprocs = list(context.space_generator.postprocs)
    entries = []
    for sketch, design in zip(sketches, designs, strict=True):
        if wanted not in named(design.trace):
            continue
        rows, said = candidates(sketch, hardware, count, np.random.default_rng(seed))
        entry: dict[str, Any] = {"design": named(design.trace), "drafted": said, "built": []}
        for row in rows:
            schedule = sketch.replay(row)
            schedule.enter_postproc()
            if all(postproc.apply(schedule) for postproc in postprocs):
                entry["built"].append(built(schedule, target, compiler))
            else:
                entry["built"].append({"error": "refused by a postprocessor"})
        entries.append(entry)
        good = sum("error" not in each for each in entry["built"])
        print(f"{workload} {arch} {entry['design']}: {good} of {len(rows)} built", flush=True)
    asked = {"workload": workload, "arch": arch, "rows": count, "seed": seed, "wanted": wanted}
    return {**asked, "space": space, "designs": entries}


def named(trace: Any) -> str:
    """The instruction of a design, how far its copies run ahead, and whether sums are split."""
    instruction, ahead = design_of(trace)
    more = " in parts" * is_split(trace)
    return (instruction or "CUDA cores") + (f" ahead {ahead}" if ahead else "") + more


def agreement(runs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """By family of designs, how far the compiler's reports are what the draft had said.

    `built` of `asked`; rank correlation of registers; of kernels that spill `SPILLED` bytes or more
    and of those that spill nothing, the share that the draft gave more registers than there are;
    of kernels with shared memory of a fixed size, the share with as much as was said, but for what
    aligns it.
    """
    families = {}
    for family in ("mma", "wmma", "CUDA"):
        designs = [d for run in runs for d in run["designs"] if d["design"].startswith(family)]
        pairs = [
            ({name: values[i] for name, values in d["drafted"].items()}, one)
            for d in designs
            for i, one in enumerate(d["built"])
        ]
        good = [(said, one) for said, one in pairs if "error" not in one]
        if len(good) > 1:
            families[family] = {"asked": len(pairs), "built": len(good), **_agreeing(good)}
    return families


def _agreeing(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, Any]]]) -> dict[str, float]:
    """What `agreement` says of kernels that were built."""
    said = np.array([s["registers"] for s, _ in pairs])
    beyond = said > np.array([s.get("limit", MOST_REGISTERS) for s, _ in pairs])
    spilled = np.array([one["spilled_bytes"] for _, one in pairs])
    used = [one["registers"] for _, one in pairs]
    shared = [(s["shared"], one["static_shared"]) for s, one in pairs if one["static_shared"]]
    shares = {
        "spilling_foreseen": beyond[spilled >= SPILLED],
        "spilling_imagined": beyond[spilled == 0],
        "shared_alike": np.array([0 <= b - a < ALIGNMENT for a, b in shared]),
    }
    return {
        "registers_rank": round(float(spearmanr(said, used).statistic), 3),
        "spilling": int((spilled >= SPILLED).sum()),
        **{name: round(float(x.mean()), 3) for name, x in shares.items() if len(x)},
    }


def _key(run: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a run was asked for."""
    names = ("workload", "arch", "rows", "seed")
    return (*(run[name] for name in names), run.get("wanted", ""), run.get("space", SPACE))


def main(arguments: Sequence[str] | None = None) -> None:
    """Build what is not in the file yet; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workloads", default=WORKLOADS)
    parser.add_argument("--archs", default=",".join(ARCHS))
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--designs", default="", help="those with this in their name")
    parser.add_argument("--space", default=SPACE, help="tensorcore-tf32: float32 products, too")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    if (status := again("benchmarks.tensorcore_builds")) is not None:
        raise SystemExit(status)
    runs = json.loads(args.output.read_text())["runs"] if args.output.exists() else []
    for workload in re.split(r",(?=[a-z])", args.workloads):
        for arch in args.archs.split(","):
            key = (workload, arch, args.rows, args.seed, args.designs, args.space)
            if any(key == _key(run) for run in runs):
                continue
            runs.append(look(*key))
            about = {"machine": fingerprint(), "command": command_line()}
            written = {**about, "agreement": agreement(runs), "runs": runs}
            args.output.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
