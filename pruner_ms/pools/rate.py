"""`pool rate`: drafts per second on one core, and one later search round beside stock's.

Nothing is built or measured, so that a CUDA target needs no GPU. The 128 records of the round have
made-up latencies, the draft's times a random factor: what a round costs does not depend on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pruner_ms.errors import NoValidScheduleError, OptionError, TargetError
from pruner_ms.hardware import HardwareSpec, hardware_for
from pruner_ms.pools.drafted import count_drafts
from pruner_ms.pools.machine import this_machine
from pruner_ms.pools.rounds import Round, our_round, records_for, stock_round
from pruner_ms.pools.spaces import Spaces, make_spaces
from pruner_ms.pools.workloads import DEFAULT, TENSORCORE, parse_workload
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import attrs_of, parse_target

_CUDA = {
    "kind": "cuda",
    "arch": "sm_80",
    "max_threads_per_block": 1024,
    "max_shared_memory_per_block": 49152,
    "thread_warp_size": 32,
}
TARGETS: dict[str, tuple[dict[str, Any], str]] = {
    "llvm": ({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}, DEFAULT),
    "cuda": (_CUDA, "cuda"),
    "cuda-tensorcore": (_CUDA, TENSORCORE),
}
"""Targets by short name, the same on every machine, and the generator of their design spaces."""


def rate(
    workload: str,
    target: str,
    drafts: int,
    *,
    rounds: bool = True,
    stock: bool = True,
    seed: int = 0,
    say: Callable[[str], None] = lambda _text: None,
) -> dict[str, Any]:
    """Measure; see the issue's keys, which come first.

    Parameters
    ----------
    workload
        A name of `workloads.WORKLOADS` or an operator's specification.
    target
        A name of `TARGETS`, or what `parse_target` takes.
    drafts
        Distinct drafts to score.
    rounds, stock
        Whether to time our round, and stock's.
    say
        Told in one sentence what is not closed-form or could not be timed.

    Raises
    ------
    OptionError, TargetError
        A parameter cannot be used.
    """
    if drafts < 1:
        raise OptionError(f"--drafts {drafts} cannot be used; give at least 1")
    spaces = _spaces(workload, target, seed)
    hardware = hardware_for(attrs_of(spaces.context.target), use_host=False)
    for sketch in spaces.space:
        if not sketch.closed:
            say(f"design space {sketch.index} has no closed form: {sketch.reason}")
    drafted = count_drafts(spaces, hardware, drafts, seed, say)
    ours, theirs = None, None
    if rounds:
        ours, theirs = _rounds(spaces, hardware, stock, seed, say)
    return {
        "workload": workload,
        "target": target,
        "drafts_per_second": round(drafted.count / drafted.seconds, 1),
        "round_seconds": None if ours is None else round(ours.seconds, 4),
        "stock_round_seconds": None if theirs is None else round(theirs.seconds, 4),
        "postproc_pass_share": None if ours is None else ours.pass_share,
        "peak_mb": round(drafted.peak / 1e6, 1),
        "machine": this_machine(),
        "drafts": drafted.count,
        "valid_drafts": drafted.valid,
        "drafted_by": drafted.by,
        "closed_spaces": f"{len(spaces.space.closed)} of {len(spaces.space)}",
        "drafts_per_cpu_second": round(drafted.count / drafted.cpu_seconds, 1),
        "warm_up_seconds": round(drafted.warm_up_seconds, 4),
        "round": None if ours is None else ours.facts(),
        "stock_round": None if theirs is None else theirs.facts(),
    }


def _spaces(workload: str, target: str, seed: int) -> Spaces:
    described = parse_workload(workload)
    if target in TARGETS:
        config, generator = TARGETS[target]
        found = Target(config)
    else:
        found, generator = parse_target(target), described.space
    try:
        return make_spaces(described.func(), found, generator, seed + 1)
    except (ValueError, RuntimeError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[-1][:200]
        raise TargetError(f"{workload} has no design space for {target}: {first}") from error


def _rounds(
    spaces: Spaces, hardware: HardwareSpec, stock: bool, seed: int, say: Callable[[str], None]
) -> tuple[Round | None, Round | None]:
    try:
        known = records_for(spaces, hardware, seed)
    except NoValidScheduleError as verdict:
        say(str(verdict))
        return None, None
    ours = our_round(spaces, hardware, known, seed, say)
    return ours, stock_round(spaces, known, seed) if stock else None
