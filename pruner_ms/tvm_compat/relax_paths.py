"""Names of Relax and of its front ends, whatever the version calls them; importing imports TVM.

Pass lists come from the target's own pipeline (tvm `relax/pipeline.py`). Its dispatcher names
functions that some back ends do not export (`dataflow_lower_passes` of `llvm` and `cuda` in 0.25 to
0.27), so the lists are read from the back end's module, and the generic ones serve all others.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import tvm
from tvm import relax

from pruner_ms.tvm_compat.paths import IS_S_TIR, _first, ms, te
from pruner_ms.tvm_compat.rewriting import with_functions
from pruner_ms.tvm_compat.targets import device_type, is_gpu
from pruner_ms.tvm_compat.torch_products import converters
from pruner_ms.tvm_compat.untuned import default_pass

CALL_ERRORS = (RuntimeError, ValueError, TypeError, AttributeError, KeyError, IndexError)
"""What TVM raises, by version and place, for a program or a record that it does not take."""

RELAX: Any = relax
"""The module: operators, passes, mutators."""

VirtualMachine: Any = relax.VirtualMachine
Tuple: Any = relax.Tuple
Var: Any = relax.Var
PrimFunc: Any = _first("tvm.tirx:PrimFunc", "tvm.tir:PrimFunc")
load_module: Any = tvm.runtime.load_module

SCHEDULED_ATTR = "tirx.is_scheduled" if IS_S_TIR else "tir.is_scheduled"
"""Attribute of a PrimFunc that already has a schedule."""

_BACKENDS = {"llvm": "cpu_generic", "cuda": "cuda", "rocm": "rocm"}


def from_onnx(model: Any) -> Any:
    """The Relax module of an ONNX model, weights as constants (tvm `relax/frontend/onnx`)."""
    front = import_module("tvm.relax.frontend.onnx.onnx_frontend")
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    importer = front.ONNXGraphImporter({}, "float32")
    try:
        return importer.from_onnx(model.graph, opset)
    except BaseException:
        # its builder would warn on stderr of every block that is not ended when it is freed
        with suppress(*CALL_ERRORS):
            while True:
                importer.bb._end_block()
        raise


def from_exported(program: Any, **options: bool) -> Any:
    """The Relax module of torch's exported program (tvm `relax/frontend/torch`)."""
    front = import_module("tvm.relax.frontend.torch")
    return front.from_exported_program(program, custom_convert_map=converters(), **options)


def from_dlpack(tensor: Any) -> Any:
    """Another framework's tensor as TVM's, without a copy."""
    make = getattr(tvm.runtime, "from_dlpack", None) or tvm.nd.from_dlpack
    return make(tensor)


def onnx_converters() -> Mapping[str, Any]:
    """Operators that the ONNX importer knows, with their converters (None: built into it)."""
    module = import_module("tvm.relax.frontend.onnx.onnx_frontend")
    return {"If": None, "Constant": None, **module._get_convert_map()}


def _backend(target: Any) -> ModuleType:
    other = "gpu_generic" if is_gpu(target) else "cpu_generic"
    name = _BACKENDS.get(str(target.kind.name), other)
    return import_module(f"tvm.relax.backend.{name}.pipeline")


def inference_passes() -> list[Any]:
    """Passes that leave only what inference needs."""
    return [relax.transform.DecomposeOpsForInference(), relax.transform.CanonicalizeBindings()]


def fuse_passes(target: Any) -> list[Any]:
    """From Relax operators to fused PrimFuncs without a schedule: what tasks are extracted from."""
    return [
        *_backend(target).library_dispatch_passes(target),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        _given_patterns(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]


PATTERN = "pruner_ms.pattern"
"""Attribute of a PrimFunc: how TVM is to fuse it, in the place of what TVM sees in it."""

ELEMENTWISE, INJECTIVE, FUSED_WITH_ELEMENTWISE, OPAQUE = 0, 2, 4, 8
"""Values of it (`OpPatternKind` in relax/op_attr_types.h)."""


def _given_patterns() -> Any:
    """The pass that says to FuseOps what `PATTERN` says."""

    def change(mod: Any, _context: Any) -> Any:
        functions = {
            var: func.with_attr("op_pattern", int(func.attrs[PATTERN])).without_attr(PATTERN)
            for var, func in mod.functions.items()
            if isinstance(func, PrimFunc) and func.attrs is not None and PATTERN in func.attrs
        }
        return with_functions(mod, functions)

    return tvm.transform.module_pass(change, opt_level=0, name="GivenPatterns")


def finish_passes(target: Any) -> list[Any]:
    """From scheduled PrimFuncs to what the virtual machine's code generator takes."""
    backend = _backend(target)
    return [*backend.dataflow_lower_passes(target), *backend.finalize_passes(target)]


def default_schedule(target: Any) -> list[Any]:
    """What gives unscheduled PrimFuncs thread bindings; nothing where none are needed."""
    return [default_pass()] if is_gpu(target) else []


def apply_database_pass() -> Any:
    """Put the schedules of the current database into a module's PrimFuncs."""
    return relax.transform.MetaScheduleApplyDatabase()


def bind_params(mod: Any, params: Mapping[str, Any]) -> Any:
    """Make parameters of `main` constants."""
    return relax.transform.BindParams("main", dict(params))(mod)


def sequential(passes: list[Any]) -> Any:
    """Passes as one pass."""
    return tvm.transform.Sequential(passes)


def relax_build(mod: Any, target: Any, pipeline: Any) -> Any:
    """The virtual machine's executable of a module, through the passes given."""
    return relax.build(mod, target=target, relax_pipeline=pipeline)


def extract(mod: Any, target: Any) -> list[Any]:
    """MetaSchedule's tasks of a fused module."""
    return list(ms.relax_integration.extract_tasks(mod, target))


def only_reshapes(func: Any) -> bool:
    """Whether a PrimFunc only copies to another shape: the virtual machine takes a view instead."""
    shapes = [buffer_shape(buffer) for buffer in buffers_of(func) or ()]
    elements = [math.prod(shape) for shape in shapes if shape is not None]
    if len(elements) != 2 or elements[0] != elements[1]:
        return False  # TVM's analysis does not look whether all of the result is written
    try:
        return bool(relax.analysis.has_reshape_pattern(func))
    except Exception:  # it asks for a body of one block, and ends where there is none
        return False


def device_of(target: Any) -> Any:
    """The first device of a target's kind."""
    return tvm.device(device_type(target), 0)


def device_present(target: Any) -> bool:
    """Whether programs for this target can run on this machine."""
    try:
        return bool(device_of(target).exist)
    except CALL_ERRORS:
        return False


def to_device(array: Any, device: Any) -> Any:
    """A numpy array as a tensor on a device."""
    make = getattr(tvm.runtime, "tensor", None) or tvm.nd.array
    return make(array, device)


def result_type(func: Any) -> Any:
    """What a Relax function returns (`ret_ty` from 0.27 on, `ret_struct_info` before)."""
    return func.ret_ty if hasattr(func, "ret_ty") else func.ret_struct_info


def inputs_of(func: Any) -> list[tuple[str, Any]]:
    """Name and type of each parameter of a Relax function (`ty` from 0.26 on)."""
    return [
        (
            str(getattr(param, "name", None) or param.name_hint),
            type_of(param),
        )
        for param in func.params
    ]


def tensor_types(mod: Any) -> list[Any]:
    """Types of the tensors that `main` takes and binds to names, at its top level."""
    func = mod["main"]
    bound = [binding.var for block in func.body.blocks for binding in block.bindings]
    kinds = map(type_of, (*func.params, *bound))
    return [kind for kind in kinds if hasattr(kind, "dtype")]


def static_shape(kind: Any) -> tuple[int, ...] | None:
    """Shape of a tensor type, None when it is open or the type is no tensor."""
    dims = getattr(getattr(kind, "shape", None), "values", None)
    if dims is None or any(not hasattr(d, "value") for d in dims):
        return None
    return tuple(int(d.value) for d in dims)


def dimensions(kind: Any) -> list[Any] | None:
    """Dimensions of a tensor type, an int each or what stands for it; None where unknown."""
    dims = getattr(getattr(kind, "shape", None), "values", None)
    if dims is None:
        return None
    return [int(dim.value) if hasattr(dim, "value") else dim for dim in dims]


def is_variable(dim: Any) -> bool:
    """Whether a dimension is a variable, not a number and not computed of others."""
    return type(dim).__name__ in ("Var", "SizeVar")


def bind_shapes(mod: Any, sizes: Mapping[Any, int]) -> Any:
    """Give open dimensions of `main` (variables) their sizes."""
    if not sizes:
        return mod
    return relax.transform.BindSymbolicVars(dict(sizes), "main")(mod)


def buffers_of(func: Any) -> list[Any] | None:
    """The buffers that a PrimFunc takes, None if it takes something else too.

    Before 0.26 a parameter is a handle with a buffer in `buffer_map`; since then it is the buffer.
    """
    if hasattr(func, "buffer_map"):
        buffers = [dict(func.buffer_map).get(p) for p in func.params]
    else:
        buffers = [p if hasattr(p, "shape") else None for p in func.params]
    return None if any(b is None for b in buffers) else buffers


def buffer_shape(buffer: Any) -> tuple[int, ...] | None:
    """Shape of a buffer, None when a dimension is open."""
    if any(not hasattr(dim, "value") for dim in buffer.shape):
        return None
    return tuple(int(dim.value) for dim in buffer.shape)


PREPACK = "_weight_prepack"
"""End of the name of what `split_layout_rewrite` makes of a copy into another layout."""


def split_layout_rewrite() -> Any:
    """The pass that makes functions of their own of blocks that copy into another layout."""
    return relax.transform.SplitLayoutRewritePreproc()


def tir_calls(func: Any) -> list[Any]:
    """Calls of PrimFuncs (`call_tir`) in a Relax function."""
    calls: list[Any] = []

    def visit(node: Any) -> None:
        if is_tir_call(node):
            calls.append(node)

    relax.analysis.post_order_visit(func, visit)
    return calls


def is_tir_call(node: Any) -> bool:
    """Whether an expression calls a PrimFunc."""
    return isinstance(node, relax.Call) and str(getattr(node.op, "name", "")) == "relax.call_tir"


def callee(call: Any) -> Any:
    """The name of the PrimFunc that is called."""
    return call.args[0]


def tir_arguments(call: Any) -> list[Any]:
    """What a PrimFunc is called with, without its results."""
    given = call.args[1]
    return list(given.fields) if isinstance(given, relax.Tuple) else [given]


_CONSTANTS = ("Constant", "GenericConst")


def constant_shape(expr: Any) -> tuple[int, ...] | None:
    """Shape of a constant; None: the expression is none."""
    if type(expr).__name__ not in _CONSTANTS:
        return None
    return tuple(int(size) for size in _data(expr).shape)


def constant_array(expr: Any) -> Any:
    """A constant as a numpy array (`value` from 0.27 on, `data` before)."""
    return _data(expr).numpy()


def _data(expr: Any) -> Any:
    return expr.value if hasattr(expr, "value") else expr.data


def type_of(expr: Any) -> Any:
    """Type of a Relax expression (`ty` from 0.26 on)."""
    return expr.ty if hasattr(expr, "ty") else expr.struct_info


def is_tensor(expr: Any) -> bool:
    """Whether a Relax expression is a tensor, of any shape."""
    return hasattr(type_of(expr), "ndim") and hasattr(type_of(expr), "dtype")


def shape_of(expr: Any) -> tuple[int, ...] | None:
    """Shape of a tensor expression; None: it is open, or the expression is no tensor."""
    return static_shape(type_of(expr))


def prim_value(expr: Any) -> int:
    """The number in a Relax expression of one."""
    return int(getattr(expr, "value", expr))


def called_with(call: Any, args: list[Any]) -> Any:
    """A call of an operator with other operands, its attributes as they were."""
    types = getattr(call, "ty_args", None) or getattr(call, "sinfo_args", None)
    return relax.Call(call.op, args, call.attrs, list(types or ()))


def call_tir(
    builder: Any, func: Any, name: str, args: list[Any], call: Any, order: tuple[int, ...]
) -> Any:
    """A call of a PrimFunc that is new in a builder's module.

    Parameters
    ----------
    builder
        A `relax.BlockBuilder`.
    func, name, args
        What is called, and with what.
    call
        The call that it replaces; the result is the same, with its axes in another order.
    order
        The axes in their order.
    """
    kind = type_of(call)
    shape = static_shape(kind) or ()
    result = tensor_type([shape[axis] for axis in order], kind.dtype)
    return relax.call_tir(builder.add_func(func, name), args, result)


def function_of(tensors: Sequence[Any], pattern: int) -> Any:
    """A PrimFunc that a Relax module can have, of tensors of TE, the result last.

    Parameters
    ----------
    pattern
        How it is fused: see `PATTERN`.
    """
    func = te.create_prim_func(list(tensors), "int64")  # as the shapes of Relax are
    return func.without_attr("global_symbol").with_attr(PATTERN, pattern)


tensor_type: Any = _first("tvm.relax:TensorStructInfo", "tvm.relax:TensorType")
"""The type of tensors of a shape and a dtype."""


def constant(array: Any) -> Any:
    """A numpy array as a Relax constant."""
    return relax.const(array, str(array.dtype))


def in_dataflow(mod: Any) -> Any:
    """A module whose bindings without effects stand in dataflow blocks."""
    return relax.transform.ConvertToDataflow()(mod)


def rebuilt(mod: Any, mutator: Any, tidy: bool = True) -> Any:
    """A module with `main` as a mutator makes it.

    Parameters
    ----------
    mod
        Relax module.
    mutator
        A `relax.PyExprMutator` of that module.
    tidy
        Whether second names go, and what nothing needs any more.
    """
    main = mod.get_global_var("main")
    mutator.builder_.update_func(main, mutator.visit_expr(mod[main]))
    passes = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()]
    made = with_functions(mod, dict(mutator.builder_.get().functions))
    return sequential(passes)(made) if tidy else made


@relax.expr_functor.mutator
class _Replacing(relax.PyExprMutator):
    """Puts other expressions in the place of calls."""

    def __init__(self, mod: Any, replacement: Callable[[Any, Any], Any | None]) -> None:
        super().__init__(mod)
        self._replacement = replacement

    def visit_call_(self, call: Any) -> Any:
        call = self.builder_.normalize(self.visit_expr_post_order(call))
        other = self._replacement(call, self.builder_)
        return call if other is None else other


def bound_values(func: Any) -> dict[Any, Any]:
    """What each variable of a Relax function is bound to, in order."""
    return {one.var: one.value for block in func.body.blocks for one in block.bindings}


def readers_of(values: Mapping[Any, Any]) -> Counter[Any]:
    """How many of some bound values read each variable."""
    return Counter(var for value in values.values() for var in relax.analysis.free_vars(value))


def remap(mutator: Any, old: Any, new: Any) -> None:
    """Let a mutator put a variable in another's place (up to 0.26, by its `vid`)."""
    mutator.set_var_remap(getattr(old, "vid", old), new)


@relax.expr_functor.mutator
class _Rebinding(relax.PyExprMutator):
    """Binds certain variables to other expressions."""

    def __init__(self, mod: Any, values: Mapping[Any, Callable[[Any], Any]]) -> None:
        super().__init__(mod)
        self._values = values

    def visit_var_binding_(self, binding: Any) -> None:
        var = binding.var
        if var not in self._values:
            super().visit_var_binding_(binding)
            return
        value = self.builder_.normalize(self._values[var](self))
        inner = isinstance(var, relax.DataflowVar)
        emit = self.builder_.emit if inner else self.builder_.emit_output
        remap(self, var, emit(value))


def rebound(mod: Any, values: Mapping[Any, Callable[[Any], Any]], tidy: bool = True) -> Any:
    """A module in which variables of `main` are bound to other expressions.

    Parameters
    ----------
    mod
        Relax module.
    values
        For each variable, in dataflow blocks, a function that makes the expression from the
        mutator: its `builder_` is the `relax.BlockBuilder` of the new module, and its `visit_expr`
        takes expressions of the old one.
    tidy
        As in `rebuilt`.
    """
    return rebuilt(mod, _Rebinding(mod, values), tidy) if values else mod


def replace_bound(mod: Any, chosen: Set[Any], replacement: Callable[[Any, Any], Any]) -> Any:
    """As `rebound`, for variables that are bound to calls; `replacement` as in `replace_calls`."""
    values = bound_values(mod["main"])

    def value(var: Any, mutator: Any) -> Any:
        call = mutator.builder_.normalize(mutator.visit_expr(values[var]))
        return replacement(call, mutator.builder_)

    return rebound(mod, {var: partial(value, var) for var in chosen})


def replace_calls(mod: Any, replacement: Callable[[Any, Any], Any | None]) -> Any:
    """A module with other expressions in the place of calls in `main`.

    Functions that nothing calls afterwards are removed.

    Parameters
    ----------
    mod
        Relax module.
    replacement
        Takes a call and the `relax.BlockBuilder` of the new module, to which it may add functions
        and bindings; returns the other expression, or None for a call that stays.
    """
    return rebuilt(mod, _Replacing(mod, replacement))
