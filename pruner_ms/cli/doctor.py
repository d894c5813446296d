"""`pruner-ms doctor`: whether this environment can tune, and what it is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pruner_ms.errors import EnvironmentFault


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    place: Annotated[
        Path, typer.Option("--work-dir", help="Where work-dirs are to be made.")
    ] = Path(),
    rpc: Annotated[
        str | None, typer.Option(help="List the servers of an RPC tracker: HOST:PORT/KEY.")
    ] = None,
) -> None:
    """Check versions, target, compilers and write access, and tune a 64x64x64 product."""
    facts = examine(place, rpc=rpc)
    if as_json:
        sys.stdout.write(json.dumps(facts, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(lines(facts)) + "\n")
    if not facts["can_tune"]:
        raise typer.Exit(EnvironmentFault.exit_code)


def examine(
    place: Path,
    read: Callable[[str], str | None] | None = None,
    seconds: float = 300.0,
    rpc: str | None = None,
) -> dict[str, Any]:
    """Every finding, as plain values.

    Parameters
    ----------
    place
        Where work-dirs are to be made.
    read
        Reads a package's version; another function in tests.
    seconds
        How long the self-test may take.
    rpc
        Tracker and key to look at.
    """
    from pruner_ms.cli import checks

    reader = read or checks.read_version
    judged = checks.pair(reader)
    # first, because tuning measures the CPU
    tested = checks.self_test(judged, seconds)
    facts: dict[str, Any] = {
        "versions": checks.versions(reader),
        "pair": asdict(judged),
        "cpu": checks.cpu(),
        "cuda": checks.cuda(),
        "write": checks.writing(place),
        "self_test": tested,
        "rpc": checks.tracker(rpc) if rpc is not None else None,
    }
    facts["problems"] = checks.problems(facts)
    facts["can_tune"] = not facts["problems"]
    return facts


def lines(facts: Mapping[str, Any]) -> list[str]:
    """The findings as text."""
    installed = facts["versions"]
    cpu, cuda, write, test = facts["cpu"], facts["cuda"], facts["write"], facts["self_test"]
    named = ", ".join(f"{name} {value}" for name, value in installed.items() if value)
    absent = ", ".join(name for name, value in installed.items() if not value)
    rows = [("versions", named), ("not installed", absent or "-"), ("pair", _pair(facts))]
    rows.append(("CPU", cpu.get("error") or _cpu(cpu)))
    if "error" not in cpu:
        rows.append(("CPU measured", _measured(cpu["measured"])))
    rows.append(("CUDA", f"nvcc {cuda['nvcc'] or 'not found'}; GPU {_devices(cuda)}"))
    rows.append(("CUDA code", _compiler(cuda)))
    if facts["rpc"] is not None:
        rows += [("RPC", text) for text in _servers(facts["rpc"])]
    rows.append(("work-dir", f"{write['place']}: {_written(write)}"))
    if "target" in test:
        rows.append(("target", json.dumps(test["target"])))
    if "threads" in test:
        rows.append(("threads", _threads(test["threads"])))
    rows.append(("self-test", _tested(test)))
    text = [f"{name:<14} {value}" for name, value in rows]
    return text + [f"PROBLEM: {problem}" for problem in facts["problems"]]


def _pair(facts: Mapping[str, Any]) -> str:
    return f"{facts['pair']['verdict']}: {facts['pair']['message']}"


def _cpu(cpu: Mapping[str, Any]) -> str:
    caches = " / ".join(f"{size} KiB" for size in cpu["caches_kib"])
    return (
        f"{cpu['name']}, {cpu['cores']} cores, {cpu['vector']} ({cpu['vector_bits']} bit vectors), "
        f"caches {caches}"
    )


def _measured(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return "not yet; the first tuning for this machine does"
    caches = " / ".join(f"{rate:g}" for rate in figures["cache_gb_per_s"])
    one, every = figures["memory_gb_per_s"]
    return (
        f"{figures['gflops_per_core']:g} GFLOP/s a core ({figures['clock_ghz']} GHz), "
        f"caches {caches} GB/s, memory {one:g} GB/s a core and {every:g} in all"
    )


def _devices(cuda: Mapping[str, Any]) -> str:
    return "; ".join(cuda["devices"]) or "none"


def _compiler(cuda: Mapping[str, Any]) -> str:
    compiler = cuda["compiler"]
    return (
        f"compiled by {compiler}"
        if compiler
        else "nothing here compiles it (nvcc, or cuda-bindings)"
    )


def _servers(rpc: Mapping[str, Any]) -> list[str]:
    if rpc["error"] is not None:
        return [str(rpc["error"])]
    return [
        f"{key}: {one['free']} of {len(one['places'])} free ({', '.join(one['places'])}), "
        f"{one['waiting']} waiting"
        for key, one in rpc["servers"].items()
    ]


def _written(write: Mapping[str, Any]) -> str:
    return f"writable, {write['free_gb']} GB free" if write["ok"] else str(write["error"])


def _threads(counts: Mapping[str, int]) -> str:
    """On how many threads programs are measured, and what must be done to run them so."""
    used, tvm = counts["used"], counts["tvm"]
    text = f"{used} of {counts['processors']} processors, as the target has cores"
    if tvm == used:
        return f"{text}; TVM by itself takes as many"
    return f"{text}; TVM by itself takes {tvm}: run what was tuned with TVM_NUM_THREADS={used}"


def _tested(test: Mapping[str, Any]) -> str:
    if not test["ok"]:
        return f"failed at stage {test['stage']}: {test['error']}"
    best = test["best_s"] * 1e6
    return f"passed: {test['trials']} trials in {test['seconds']:.0f} s, best {best:.1f} us"
