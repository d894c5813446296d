"""Targets: their attributes as a plain dict, the host's target, and what a user typed."""

from __future__ import annotations

import difflib
import json
from typing import Any

from pruner_ms.errors import AbsentDeviceError, TargetError
from pruner_ms.hardware import host_cpu
from pruner_ms.tvm_compat.marks import is_marked
from pruner_ms.tvm_compat.paths import Target, get_global_func, plain
from pruner_ms.tvm_compat.threads import cores_here

_LEVELS = {"avx512-bf16": "x86-64-v4", "avx512": "x86-64-v4", "avx2": "x86-64-v3"}
"""LLVM's name for a vector extension, where it does not know the CPU itself."""

_EXAMPLE = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4}'


def attrs_of(target: Any) -> dict[str, object]:
    """A target's kind, tag and attributes as plain Python values.

    Parameters
    ----------
    target
        A TVM `Target`.
    """
    attributes: dict[str, object] = {str(k): plain(v) for k, v in dict(target.attrs).items()}
    attributes["kind"] = str(target.kind.name)
    if str(target.tag or ""):
        attributes["tag"] = str(target.tag)
    if is_marked(target):
        attributes["vector_math"] = True
    return attributes


def known_tags(prefix: str = "") -> list[str]:
    """Names of the target tags that this TVM knows, sorted."""
    listed = get_global_func("target.TargetTagListTags")()
    return sorted(str(name) for name in listed if str(name).startswith(prefix))


def host_target() -> dict[str, object]:
    """The configuration of this machine's CPU, for `Target(...)`.

    LLVM's own name of the CPU where TVM's LLVM knows it, else the level of the x86-64 baseline.
    """
    config: dict[str, object] = {"kind": "llvm", "num-cores": cores_here()}
    mcpu = _system_cpu() or _LEVELS.get(host_cpu().core.isa, "")
    if mcpu:
        config["mcpu"] = mcpu
    return config


def parse_target(text: str) -> Any:
    """The `Target` for what a user typed: JSON, a tag, a kind, "cpu" or "cuda".

    Raises
    ------
    TargetError
        The text names nothing that TVM knows, "cuda" without a device, or broken JSON.
    """
    wanted = text.strip()
    if wanted in ("cpu", "llvm"):
        return Target(host_target())
    if wanted == "cuda":
        return _cuda_device()
    if wanted.startswith("{"):
        return _from_json(wanted)
    if wanted not in known_tags():
        raise TargetError(_unknown(wanted))
    return _tagged(wanted)


def is_gpu(target: Any) -> bool:
    """Whether a target's programs need thread bindings."""
    return "gpu" in [str(key) for key in target.keys]


def with_attribute(target: Any, name: str, value: object) -> Any:
    """A copy of a target with one attribute changed; it keeps its tag where this TVM can."""
    config = {**_export(target), name: value}
    tag = str(target.tag or "")
    try:
        return Target({**config, "tag": tag} if tag else config)
    except ValueError:
        config.pop("tag", None)
        return Target(config)


def _system_cpu() -> str:
    """LLVM's name for this machine's CPU; empty when TVM cannot say or LLVM finds it generic."""
    name_of = get_global_func("target.llvm_get_system_cpu", True)
    is_valid = get_global_func("target.llvm_is_valid_cpu", True)
    triple_of = get_global_func("target.llvm_get_system_triple", True)
    if name_of is None or is_valid is None or triple_of is None:
        return ""
    name = str(name_of())
    return name if name != "generic" and bool(is_valid(name, str(triple_of()))) else ""


def _tagged(tag: str) -> Any:
    """A tag's target that remembers its tag; `Target(tag)` forgets it."""
    try:
        return Target({**_export(Target(tag)), "tag": tag})
    except ValueError:
        # a Relay-era TVM resolves tags only by name
        return Target(tag)


def _export(target: Any) -> dict[str, object]:
    exported = plain(target.export())
    return {str(k): v for k, v in exported.items()}


def _cuda_device() -> Any:
    try:
        return Target.from_device("cuda")
    except (ValueError, RuntimeError) as error:
        tags = ", ".join(t for t in _GPU_TAGS if t in set(known_tags()))
        raise AbsentDeviceError(
            f"no CUDA device was found ({str(error).splitlines()[0]}); name the GPU that the "
            f"kernels are for by its tag: {tags}"
        ) from error


_GPU_TAGS = (
    "nvidia/nvidia-t4",
    "nvidia/nvidia-v100",
    "nvidia/nvidia-a100",
    "nvidia/nvidia-h100",
    "nvidia/geforce-rtx-3090",
    "nvidia/geforce-rtx-4090",
)


def _from_json(text: str) -> Any:
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise TargetError(
            f"the target {text!r} is not valid JSON ({error}); write it like {_EXAMPLE}"
        ) from error
    if isinstance(config, dict) and config.get("kind") == "llvm":
        config.setdefault("num-cores", cores_here())
        _check_mcpu(config)
    try:
        return Target(config)
    except (ValueError, TypeError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        raise TargetError(
            f"TVM does not take the target {text!r}: {first} Write it like {_EXAMPLE}"
        ) from error


def _check_mcpu(config: dict[str, Any]) -> None:
    """Refuse a CPU that LLVM does not know: it would compile for it without a warning."""
    mcpu, is_valid = config.get("mcpu"), get_global_func("target.llvm_is_valid_cpu", True)
    if not mcpu or is_valid is None:
        return
    triple = str(config.get("mtriple") or get_global_func("target.llvm_get_system_triple")())
    if bool(is_valid(str(mcpu), triple)):
        return
    plain_target = Target({"kind": "llvm", "mtriple": triple})
    names = [str(n) for n in get_global_func("target.llvm_get_cpu_archlist")(plain_target)]
    close = difflib.get_close_matches(str(mcpu), names, n=4, cutoff=0.4)
    raise TargetError(
        f"LLVM knows no CPU {mcpu!r} for {triple}; use one of {', '.join(close or names[:6])}, ..."
    )


def _unknown(text: str) -> str:
    tags = known_tags()
    short = {tag.rsplit("/", 1)[-1].replace("nvidia-", ""): tag for tag in tags}
    close = difflib.get_close_matches(text.lower(), [*tags, *short], n=4, cutoff=0.5)
    named = list(dict.fromkeys(short.get(c, c) for c in close))
    hint = f"close tags: {', '.join(named)}; or " if named else ""
    return f"the target {text!r} is unknown; {hint}use cpu, cuda, a tag, or JSON like {_EXAMPLE}"


def device_type(target: Any) -> str:
    """Name of the devices that a target's programs run on, as TVM's runners take it."""
    kind = str(target.kind.name)
    return "cpu" if kind in ("llvm", "c") else kind
