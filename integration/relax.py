"""From a Relax module to tasks, and from a database back to an executable, through one lowering.

MetaSchedule finds a record by the structure of the fused PrimFunc. Tasks are extracted from the
very module that is compiled later, so that records match; the untuned baseline is the network as
TVM makes it (GPU: with TVM's default schedules).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import ModelFileError, OptionError
from pruner_ms.integration.graph.joining import is_mark, joined, parts_in_place
from pruner_ms.integration.graph.layout import channels_last
from pruner_ms.integration.graph.packing import marked, packed
from pruner_ms.integration.graph.partition import partitioned
from pruner_ms.integration.graph.products import as_products
from pruner_ms.integration.graph.simplify import simplified
from pruner_ms.integration.graph.spreading import spread_apart
from pruner_ms.integration.graph.views import results_as_views
from pruner_ms.integration.graph.winograd import Sizes, with_winograd
from pruner_ms.integration.inputs import numpy_dtype
from pruner_ms.integration.records import Best, replayed
from pruner_ms.search.cpu_space import lanes_of
from pruner_ms.trials.limits import machine_memory
from pruner_ms.trials.prefetch import prefetched
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.tvm_compat.passes import config_for, uses_tensor_instructions
from pruner_ms.tvm_compat.paths import (
    IRModule,
    PassContext,
    Target,
    build,
    estimate_tir_flops,
    module_key,
    save_json,
)
from pruner_ms.tvm_compat.targets import is_gpu, parse_target
from pruner_ms.tvm_compat.tensor_builds import as_built
from pruner_ms.tvm_compat.vector_math import called

log = logging.getLogger(__name__)

NOT_ASKED_FOR = "not one of the operators asked for"
"""Why a task is skipped that `ops` does not name."""

_LOWERED = "pruner_ms.lowered"

REWRITES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "simplified": simplified,
        "layouts": channels_last,
        "winograd": with_winograd,
        "joining": parts_in_place,
        "products": as_products,
        "spreading": spread_apart,
    }
)
"""What a Relax module of operators is rewritten by for CPUs, in this order."""


def usable(names: Sequence[str]) -> bool:
    """Whether rewrites go together: names in order, and the later ones only after the layouts."""
    ordered = list(names) == [name for name in REWRITES if name in names]
    return ordered and ("layouts" in names or not {*names} - {"simplified"})


@dataclass(frozen=True)
class TaskInfo:
    """A task of a network.

    Attributes
    ----------
    name
        TVM's name of the fused function.
    weight
        How often the network calls it.
    flops
        Arithmetic operations of one call, as TVM counts them.
    mod
        Module with the PrimFunc `main`, without a schedule.
    hash
        Structural hash of `mod`, in hexadecimal.
    """

    name: str
    weight: int
    flops: float
    mod: Any
    hash: str


@dataclass(frozen=True)
class Skipped:
    """A function of a network that is not tuned, and why."""

    name: str
    weight: int
    reason: str


@dataclass(frozen=True)
class Extracted:
    """The tasks of a network, the heaviest first, and what was left out.

    Attributes
    ----------
    tasks
        Those that are asked for.
    skipped
        The others, and what is no task.
    every
        All tasks, asked for or not.
    """

    tasks: tuple[TaskInfo, ...]
    skipped: tuple[Skipped, ...]
    every: tuple[TaskInfo, ...]


def lower(
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None = None,
    rewrites: Sequence[str] = tuple(REWRITES),
    sizes: Sizes | None = None,
) -> Any:
    """Fuse a Relax module into PrimFuncs without schedules; a lowered module is returned as it is.

    MetaSchedule tunes the result, and `apply_database` makes of it what is built.

    Parameters
    ----------
    mod
        Relax module with `main`.
    target
        A TVM `Target`, or text that stands for one.
    params
        Values of parameters of `main`, made constants first.
    rewrites
        How it is rewritten for CPUs before: names in `REWRITES`, in their order. With any,
        constants may get the layout that a schedule reads them in.
    sizes
        Of winograd, for convolutions for which its estimate does not decide.
    """
    if mod.attrs is not None and _LOWERED in mod.attrs:
        return mod
    names = [rewrites] if isinstance(rewrites, str) else list(rewrites)
    if not usable(names):
        raise OptionError(
            f"rewrites={rewrites!r} cannot be used; give some of {', '.join(REWRITES)} in this "
            "order, layouts among them"
        )
    target = target if isinstance(target, Target) else parse_target(str(target))
    if params:
        mod = relax_paths.bind_params(mod, params)
    names = [] if is_gpu(target) else names
    with target, PassContext(opt_level=3):
        lanes = lanes_of(target)
        more = {
            "layouts": ("simplified" in names,),
            "winograd": (sizes, lanes),
            "products": (lanes,),
        }
        for name in names:
            mod = REWRITES[name](mod, *more.get(name, ()))
        fused = relax_paths.sequential(relax_paths.fuse_passes(target))(mod)
        fused = partitioned(fused) if "joining" in names else fused
    return (marked(fused) if names else fused).with_attr(_LOWERED, 1)


def require_room(mod: Any, name: str) -> None:
    """Refuse a network with a tensor that this machine has no memory for.

    Parameters
    ----------
    mod
        Relax module.
    name
        Of the network, for the message.

    Raises
    ------
    ModelFileError
        Naming the largest tensor.
    """
    room = machine_memory()
    for kind in relax_paths.tensor_types(mod):
        shape = relax_paths.static_shape(kind)
        size = 0 if shape is None else math.prod(shape) * numpy_dtype(str(kind.dtype)).itemsize
        if size > room:
            raise ModelFileError(
                f"{name} computes a tensor of shape {shape}, {size / 1e9:,.0f} GB, and this "
                f"machine has {room / 1e9:,.0f} GB of memory; give its inputs smaller shapes"
            )


def extract_tasks(mod: Any, target: Any, ops: Sequence[str] | None = None) -> Extracted:
    """The tasks of a Relax module.

    Parameters
    ----------
    mod
        Relax module, lowered or not.
    target
        A TVM `Target`.
    ops
        Parts of the names of the tasks wanted ("conv2d"); None: all.

    Raises
    ------
    OptionError
        One of `ops` is part of no task's name.
    """
    extracted = relax_paths.extract(lower(mod, target), target)
    tasks: list[TaskInfo] = []
    skipped: list[Skipped] = []
    for task in extracted:
        name, weight, body = str(task.task_name), int(task.weight), task.dispatched[0]
        reason = skip_reason(body)
        if reason is not None:
            skipped.append(Skipped(name, weight, reason))
            continue
        flops = float(estimate_tir_flops(body))
        tasks.append(TaskInfo(name, weight, flops, body, module_key(body)))
    every = tuple(tasks)
    if ops and tasks:
        tasks, others = chosen(tasks, ops)
        skipped += [Skipped(t.name, t.weight, NOT_ASKED_FOR) for t in others]
    tasks.sort(key=lambda t: -t.flops * t.weight)
    return Extracted(tuple(tasks), tuple(skipped), every)


def skip_reason(mod: Any) -> str | None:
    """Why a task's module cannot or need not be tuned; None: it is to be tuned."""
    for func in mod.functions.values():
        attrs = func.attrs
        if is_mark(func):
            return "its parts are written into place, which costs nothing at run time"
        if attrs is not None and relax_paths.SCHEDULED_ATTR in attrs:
            return "it already has a schedule"
        buffers = relax_paths.buffers_of(func)
        if buffers is None:
            return "it takes scalars; MetaSchedule measures functions of buffers"
        if any(relax_paths.buffer_shape(buffer) is None for buffer in buffers):
            return "its shape is open; give the model fixed input shapes"
        if relax_paths.only_reshapes(func):
            return "it only reshapes, which costs nothing at run time"
    return None


def chosen(tasks: Sequence[TaskInfo], ops: Sequence[str]) -> tuple[list[TaskInfo], list[TaskInfo]]:
    """The tasks whose names hold one of `ops`, and the others.

    Raises
    ------
    OptionError
        One of `ops` is part of no task's name.
    """
    for op in ops:
        if not any(op in task.name for task in tasks):
            names = ", ".join(sorted(task.name for task in tasks))
            raise OptionError(
                f"--ops names {op!r}, which is part of no task's name; tasks: {names}"
            )
    wanted = [t for t in tasks if any(op in t.name for op in ops)]
    return wanted, [t for t in tasks if t not in wanted]


def apply_database(lowered: Any, database: Any, target: Any) -> Any:
    """Give a lowered module a database's schedules, and what they ask for at compile time.

    Constants are copied into the layouts that the schedules chose, kernels prefetch them, and parts
    of a concatenation get one memory.

    Parameters
    ----------
    lowered
        What `lower` made.
    database
        MetaSchedule `Database`.
    target
        A TVM `Target`.

    Returns
    -------
    IRModule
        For `relax.build`.
    """
    with target, PassContext(opt_level=3), database:
        scheduled = packed(relax_paths.apply_database_pass()(lowered))
        return joined(prefetched(scheduled, target))


def compile_model(
    mod: Any,
    target: Any,
    best: Best | None = None,
    params: Mapping[str, Any] | None = None,
) -> Any:
    """Compile a Relax module, with the schedules of a database or without any.

    Parameters
    ----------
    mod
        Relax module, lowered or not.
    target
        A TVM `Target`.
    best
        Schedules to apply (`records.best_records`); None compiles the untuned baseline, in which
        exp is called (`tvm_compat.vector_math`).
    params
        Values of parameters of `main`, made constants.
    """
    target = target if best is not None else called(target)
    lowered = lower(mod, target, params)
    if best is not None and best.count:
        lowered = apply_database(lowered, best.database, target)
        lowered = lowered if is_gpu(target) else results_as_views(lowered)
    else:
        lowered = joined(lowered)
    with target, PassContext(opt_level=3):
        scheduled = relax_paths.sequential(relax_paths.default_schedule(target))(lowered)
    finish = relax_paths.sequential(relax_paths.finish_passes(target))
    config = pass_config(scheduled, target)
    with target, PassContext(opt_level=3, config=config):
        return relax_paths.relax_build(as_built(scheduled, target, config), target, finish)


def build_task(mod: Any, target: Any, record: Any | None = None) -> Any:
    """Compile one task's module: with a record's schedule, or as the untuned network has it.

    Parameters
    ----------
    mod
        Module of one PrimFunc.
    target
        A TVM `Target`.
    record
        A MetaSchedule `TuningRecord` of this module; None: no schedule (GPU: TVM's default one),
        and exp is called (`tvm_compat.vector_math`).
    """
    if record is not None:
        scheduled = replayed(record)
    else:
        target = called(target)
        with target, PassContext(opt_level=3):
            scheduled = relax_paths.sequential(relax_paths.default_schedule(target))(mod)
    return build_scheduled(scheduled, target)


def build_scheduled(mod: Any, target: Any) -> Any:
    """Compile a module of PrimFuncs that need no further schedule."""
    config = pass_config(mod, target)
    with target, PassContext(opt_level=3, config=config):
        return build(as_built(mod, target, config), target=target)


def pass_config(mod: Any, target: Any) -> dict[str, Any]:
    """What this TVM needs in the pass context to compile a module for a target."""
    plain = config_for(target, tensorized=False)
    if config_for(target, tensorized=True) == plain:
        return plain
    funcs = {v: f for v, f in mod.functions.items() if isinstance(f, relax_paths.PrimFunc)}
    return config_for(target, uses_tensor_instructions(save_json(IRModule(funcs))))


def run_model(
    executable: Any, target: Any, inputs: Sequence[npt.NDArray[Any]], twice: bool = False
) -> list[npt.NDArray[Any]]:
    """Run `main` on the target's first device; its outputs as arrays.

    Parameters
    ----------
    executable, target, inputs
        See `bound`.
    twice
        Whether to return a second run's outputs; the first run's are kept, so it gets other memory.
    """
    main, arrays = bound(executable, target, inputs)
    call = threads.caller(target)
    results = [call(main, *arrays) for _ in range(1 + twice)]
    return [np.asarray(leaf.numpy()) for leaf in leaves(results[-1])]


def leaves(value: Any) -> list[Any]:
    """The tensors of what a network returns, those of tuples in tuples in their order.

    What is no tensor, such as a shape, is left out.
    """
    if hasattr(value, "numpy"):
        return [value]
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else ()
    return [leaf for field in several for leaf in leaves(field)]


def bound(
    executable: Any, target: Any, inputs: Sequence[npt.NDArray[Any]]
) -> tuple[Any, list[Any]]:
    """`main` of an executable on the target's device, and the inputs there."""
    device = relax_paths.device_of(target)
    machine = relax_paths.VirtualMachine(executable, device)
    return machine["main"], [relax_paths.to_device(array, device) for array in inputs]
