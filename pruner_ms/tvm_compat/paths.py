"""Names of TVM under which every other module finds them, whatever the version calls them.

Importing this module imports TVM. Supported: 0.25-0.27 (`tvm.s_tir.meta_schedule`); the branches
for `tvm.meta_schedule` (0.12-0.23) are the ones a Relay-era build takes.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from pruner_ms.tvm_compat.ffi import register_error_class  # noqa: F401
from pruner_ms.tvm_compat.ffi_pairs import require_tvm
from pruner_ms.tvm_compat.marks import VECTOR_MATH, is_marked

require_tvm()

import tvm  # noqa: E402  only after the pair of versions has been judged
from tvm import te as te  # noqa: E402


def _first(*candidates: str) -> Any:
    """The first of several `module:attribute` (or bare module) paths that exists."""
    for candidate in candidates:
        module, _, attribute = candidate.partition(":")
        try:
            namespace = import_module(module)
        except ImportError:
            continue
        if not attribute:
            return namespace
        if hasattr(namespace, attribute):
            return getattr(namespace, attribute)
    raise ImportError(f"this TVM ({tvm.__version__}) has none of {', '.join(candidates)}")


VERSION: str = str(tvm.__version__)
"""Version string of the TVM in this process."""

ms: Any = _first("tvm.s_tir.meta_schedule", "tvm.meta_schedule")
MS_NAME: str = ms.__name__
IS_S_TIR: bool = MS_NAME == "tvm.s_tir.meta_schedule"
"""True from 0.24 on: `get_sblock`, `tirx.*` attributes, `tvm.s_tir`."""

tir: Any = _first("tvm.tirx", "tvm.tir")
Schedule: Any = _first("tvm.s_tir:Schedule", "tvm.tir:Schedule")
Trace: Any = _first("tvm.s_tir.schedule:Trace", "tvm.tir.schedule:Trace")
Instruction: Any = _first("tvm.s_tir.schedule:Instruction", "tvm.tir.schedule:Instruction")
InternalError: Any = _first("tvm.error:InternalError", "tvm.error:TVMError")
ScheduleError: Any = _first("tvm.s_tir.schedule:ScheduleError", "tvm.tir.schedule:ScheduleError")
schedule_analysis: Any = _first("tvm.s_tir.schedule.analysis", "tvm.tir.schedule.analysis")
schedule_transform: Any = _first("tvm.s_tir.schedule.transform", "tvm.tir.schedule.transform")
IndexMap: Any = _first("tvm.tirx:IndexMap", "tvm.tir:IndexMap")
derived_object: Any = _first(
    "tvm.ir.utils:derived_object",
    "tvm.s_tir.meta_schedule.utils:derived_object",
    "tvm.meta_schedule.utils:derived_object",
)
IRModule: Any = tvm.IRModule
Target: Any = tvm.target.Target
save_json: Any = tvm.ir.save_json
load_json: Any = tvm.ir.load_json
load_own_json: Any = _first("tvm.ir.base:from_json_graph_str", "tvm.ir:load_json")
"""`load_json` of what this TVM wrote: it need not be brought up to date, which takes longest."""
runtime: Any = tvm.runtime
PassContext: Any = tvm.transform.PassContext
estimate_tir_flops: Any = _first(
    "tvm.s_tir.analysis:estimate_tir_flops",
    "tvm.tirx.analysis:estimate_tir_flops",
    "tvm.tir.analysis:estimate_tir_flops",
)
topi: Any = _first("tvm.topi")
tar: Any = _first("tvm.support.tar:tar", "tvm.contrib.tar:tar")
nvcc: Any = _first("tvm.support.nvcc", "tvm.contrib.nvcc")
build: Any = _first("tvm.driver:build", "tvm:build")
te_workload: Any = _first(
    "tvm.s_tir.meta_schedule.testing.te_workload", "tvm.meta_schedule.testing.te_workload"
)
register_global_func: Any = _first("tvm_ffi:register_global_func", "tvm._ffi:register_func")
TensorIntrin: Any = _first("tvm.s_tir:TensorIntrin", "tvm.tir:TensorIntrin")
as_tensor: Any = _first("tvm.runtime:tensor", "tvm.runtime.ndarray:array")
get_global_func: Any = _first("tvm_ffi:get_global_func", "tvm:get_global_func")
ARRAY = "ffi.Array" if IS_S_TIR else "runtime.Array"
"""Global function that makes an array of its arguments."""
STRING = None if IS_S_TIR else "runtime.String"
"""Global function that makes a string that an array takes; None: it takes Python's."""
structural_equal: Any = _first("tvm_ffi:structural_equal", "tvm.ir:structural_equal")

MeasureCandidate: Any = _first(
    MS_NAME + ":MeasureCandidate", MS_NAME + ".search_strategy:MeasureCandidate"
)
ArgInfo: Any = _first(MS_NAME + ".arg_info:ArgInfo")
TuneContext: Any = ms.TuneContext
local_runner: Any = _first(MS_NAME + ".runner.local_runner")
RULE_PREFIX = MS_NAME.removeprefix("tvm.")
"""Prefix of the global functions that schedule blocks of a name: `<prefix>.<target>.<name>`."""
GLOBAL_PREFIX = f"tvm.{RULE_PREFIX}"
"""Prefix of the global functions that C++ passes call: `<prefix>.tune_relax`."""


def cuda_intrinsics() -> Any:
    """The module that makes tensor intrinsics for CUDA; importing it registers TVM's own."""
    return _first("tvm.s_tir.tensor_intrin.cuda", "tvm.tir.tensor_intrin.cuda")


def stock_mlp_trainer() -> Any:
    """The class that trains MetaSchedule's torch model; importing it imports torch."""
    return _first(MS_NAME + ".cost_model.mlp_model:SegmentSumMLPTrainer")


BLOCK_KIND = "SBlock" if IS_S_TIR else "Block"
GET_BLOCK = "GetSBlock" if IS_S_TIR else "GetBlock"


def as_int(value: Any) -> int:
    """An int out of an int or an IntImm (attributes are the one or the other by version)."""
    return int(getattr(value, "value", value))


def plain(value: Any) -> Any:
    """A JSON-like TVM value (arrays, IntImm, strings) as plain Python."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "value"):
        return value.value
    if hasattr(value, "items"):
        return {str(k): plain(v) for k, v in value.items()}
    return [plain(v) for v in value]


def block_of(block_realize: Any) -> Any:
    """The block under a block-realize node."""
    return block_realize.block


def iter_type_name(iter_var: Any) -> str:
    """Type of a block iteration variable: "S" data parallel, "R" reduction, "O" others."""
    return {0: "S", 2: "R"}.get(int(iter_var.iter_type), "O")


def region_buffer(region: Any) -> Any:
    """The buffer of a read or write region (`source` from 0.27 on, `buffer` before)."""
    return region.source if hasattr(region, "source") else region.buffer


_NOT_THE_DEVICE = ("host", "tag", "keys")
"""Attributes of a target that do not change which programs are good on it, but for the key
`marks.VECTOR_MATH`."""


def target_key(target: Any) -> str:
    """What a target says about the device, as canonical JSON; equal for interchangeable targets."""
    exported = plain(target.export())
    attributes = {k: v for k, v in exported.items() if k not in _NOT_THE_DEVICE}
    if is_marked(exported):
        attributes["keys"] = ["cpu", VECTOR_MATH]
    return json.dumps(attributes, sort_keys=True, separators=(",", ":"), default=str)


def module_key(mod: Any) -> str:
    """Structural hash of a module as hexadecimal text: the same in every process."""
    return str(ms.utils.shash2hex(mod))


def task_key(mod: Any, target: Any) -> str:
    """Name of a task in models and caches: structural hash of its module, and its target."""
    return f"{module_key(mod)}@{target_key(target)}"


def target_of_key(key: str) -> Any:
    """The target in a `task_key`.

    Raises
    ------
    ValueError
        The key is not one.
    """
    return Target(json.loads(key.partition("@")[2]))


def prim_func(mod: Any) -> Any:
    """The one function of a module (`main` if there are several)."""
    funcs = list(mod.functions.items())
    named = {str(var.name_hint): func for var, func in funcs}
    return named["main"] if "main" in named else funcs[0][1]


def buffer_names(func: Any) -> dict[Any, str]:
    """Names of the buffers that are arguments of a function, made different from each other."""
    mapped = hasattr(func, "buffer_map")
    names: dict[Any, str] = {}
    for param in func.params:
        buffer = func.buffer_map[param] if mapped else param
        same = sum(other.split("'")[0] == str(buffer.name) for other in names.values())
        names[buffer] = str(buffer.name) + "'" * same
    return names


def open_parameters(func: Any) -> list[str]:
    """Names of a function's parameters that have no fixed shape: scalars are among them."""
    mapped = func.buffer_map if hasattr(func, "buffer_map") else None
    names = []
    for param in func.params:
        buffer = param if mapped is None else mapped.get(param)
        shape = getattr(buffer, "shape", None)
        if shape is None or any(not hasattr(dim, "value") for dim in shape):
            names.append(str(getattr(param, "name", "") or param.name_hint))
    return names


def has_vector_form(op: Any) -> bool:
    """Whether VectorizeLoop can call an operator for all lanes of a vector at once."""
    return hasattr(op, "get_attr") and bool(op.get_attr("TVectorizable"))


def release_of(version: str) -> tuple[int, int]:
    """The first two numbers of a version: (0, 27) of "0.27.0.post1"."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


PADDED_PERIODS: bool = release_of(VERSION) >= (0, 26)
"""Whether DetectIterMap sees through what repeats within a vector when the last vector is padded;
0.25 does not, and RewriteLayout leaves such an argument as it is."""

MODULAR_BOUNDS: bool = release_of(VERSION) >= (0, 22)
"""Whether the bounds of `x % c` use what x is a multiple of (tvm `arith/const_int_bound.cc`, 0.22):
without, buffers that threads fill together are larger where digits do not divide each other."""

REUSES_DYNAMIC: bool = IS_S_TIR
"""Whether StorageRewrite reuses dynamic shared memory; 0.17 leaves all of it to
MergeSharedMemoryAllocations. Nothing in between was looked at."""

FREE_BUFFERS = "layout_free_placeholders"
"""Annotation of a block: buffers of it, none of them an argument, that may get another layout."""


LAYOUT_FREE = "layout_free_buffers"
"""Attribute of a PrimFunc: numbers of its parameters that may get another layout."""


def free_parameters(func: Any) -> list[int]:
    """Numbers of the parameters of a function whose layout RewriteLayout may change."""
    attrs = func.attrs
    if attrs is None or LAYOUT_FREE not in attrs:
        return []
    return [as_int(i) for i in attrs[LAYOUT_FREE]]


def is_users_postproc(postproc: Any) -> bool:
    """Whether a postprocessor is written in Python; TVM's own are C++."""
    return isinstance(postproc, ms.postproc.PyPostproc._tvm_metadata["cls"])


def module_pass(function: Any, name: str) -> Any:
    """A module pass out of a function of the module and the pass context."""
    return tvm.transform.module_pass(function, opt_level=0, name=name)


def connect_tracker(host: str, port: int) -> Any:
    """A session with TVM's RPC tracker (tvm `rpc/client.py`)."""
    return import_module("tvm.rpc").connect_tracker(host, port)
