"""Ways in: each takes the name of an input and gives an `Answer`, or raises."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

import pruner_ms
from benchmarks.zoo import onnx_graphs
from benchmarks.zoo.judge import TRACEBACK, Answer, Arrays, Nothing, difference, sentence
from benchmarks.zoo.program import Program
from benchmarks.zoo.programs import PROGRAMS
from benchmarks.zoo.tools import TRIALS, Tools
from pruner_ms.errors import PrunerError
from pruner_ms.integration.records import replayed
from pruner_ms.integration.relax import leaves
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule, as_tensor, build, ms
from pruner_ms.types import valid_latency

Run = Callable[[str, Tools], Answer]
Stock = Callable[[str, Tools], str | None]


@dataclass(frozen=True)
class Way:
    """One way in.

    Attributes
    ----------
    inputs
        "program", "onnx" or "torch".
    title
        What people call.
    run
        Tunes an input of a name.
    stock
        What stock MetaSchedule says of it; None: it takes it.
    untuned
        What is wrong with TVM's results before tuning; None: nothing.
    every
        One input of so many goes this way.
    """

    inputs: str
    title: str
    run: Run
    stock: Stock
    untuned: Stock
    every: int = 1


# programs


def _case(name: str, tools: Tools) -> tuple[Program, Any, Arrays, Arrays]:
    """A program, its PrimFunc, its arguments and what they are afterwards."""
    program = PROGRAMS[name]
    func = program.make()
    buffers = relax_paths.buffers_of(func)
    shapes = [relax_paths.buffer_shape(b) for b in buffers or ()]
    if buffers is None or any(shape is None for shape in shapes):
        return program, func, [], []
    rng = np.random.default_rng(tools.seed)
    specs = [(shape, str(b.dtype)) for shape, b in zip(shapes, buffers, strict=True)]
    arrays = program.arrays(specs, rng)  # type: ignore[arg-type]
    return program, func, arrays, program.expected(arrays)


def _called(program: Program, function: Any, arrays: Arrays) -> list[Any]:
    """What a compiled program leaves in what it writes."""
    tensors: list[Any] = [as_tensor(a) for a in arrays]
    if program.equal is not None:
        one, other = program.equal
        tensors[other] = tensors[one]
    function(*tensors)
    return [np.asarray(tensors[i].numpy()) for i in program.written(len(tensors))]


def _only(library: Any, mod: Any) -> Any:
    """The function of a library of one."""
    (func,) = mod.functions.values()
    symbol = func.attrs["global_symbol"] if func.attrs and "global_symbol" in func.attrs else "main"
    return library[str(symbol)]


def _by_name(name: str, tools: Tools, **parts: Any) -> Answer:
    program, func, arrays, expected = _case(name, tools)
    place = str(tools.place())
    parts = parts or tools.named(name)
    database = ms.tune_tir(func, tools.target, place, **parts)
    return Answer(_called(program, _best(database, func, tools), arrays), expected)


def _best(database: Any, func: Any, tools: Tools) -> Any:
    """A function compiled with the best record of a database.

    `compile_tir` does not look up the record of a program without blocks: it is replayed.
    """
    records = [r for r in database.get_all_tuning_records() if valid_latency(r.run_secs)]
    if not records:
        raise Nothing("no record of a run")
    schedule = ms.tir_integration.compile_tir(database, func, tools.target)
    best = min(records, key=lambda record: valid_latency(record.run_secs))
    mod = replayed(best) if schedule is None else schedule.mod
    return _only(build(mod, target=tools.target), mod)


def _stock_says(run: Callable[..., Answer]) -> Stock:
    """What stock says where `run` tunes with its search; None if it takes an input either way."""

    def says(name: str, tools: Tools) -> str | None:
        said = ""
        for parts in tools.stock(name):
            try:
                run(name, tools, **parts)
            except Exception as error:  # TVM raises anything; it is stock's answer
                said = sentence(error)
            else:
                return None
        return said

    return says


def _untuned(name: str, tools: Tools) -> str | None:
    try:
        program, func, arrays, expected = _case(name, tools)
        mod = IRModule({"main": func.with_attr("global_symbol", "main")})
        return difference(_called(program, build(mod, tools.target)["main"], arrays), expected)
    except Exception as error:  # TVM raises anything; it is TVM's answer
        return sentence(error)


def _library(result: Any) -> Any:
    if result.library is None or not Path(result.library).exists():
        raise Nothing("no library after the tuning")
    return relax_paths.load_module(str(result.library))


def _left(result: Any) -> str:
    """Why a run tuned nothing; empty: it did."""
    if result.best:
        return ""
    said = [*result.failures.values(), *(s.reason for s in result.program.skipped), *result.notes]
    return "; ".join(dict.fromkeys(map(str, said))) or "it does not say why"


def _kernel(name: str, tools: Tools) -> Answer:
    program, func, arrays, expected = _case(name, tools)
    result = pruner_ms.tune(func, "cpu", work_dir=tools.place(), **tools.options(name))
    ((place, _),) = result.program.kernels.functions.items()
    function = _library(result)[str(place.name_hint)]
    return Answer(_called(program, function, arrays), expected, _left(result))


TOGETHER = 6
"""Programs of one module."""


def _neighbours(name: str) -> list[str]:
    names = [n for n, p in PROGRAMS.items() if p.equal is None]
    at = list(PROGRAMS).index(name)
    return [names[(at + 37 * i) % len(names)] for i in range(TOGETHER)]


def _module(name: str, tools: Tools) -> Answer:
    """Several programs in one module: the fault of one must not end the others."""
    cases = {f"{i} {n}": _case(n, tools) for i, n in enumerate(_neighbours(name))}
    cases = {n: case for n, case in cases.items() if case[2]}
    mod = IRModule({n: func.with_attr("global_symbol", n) for n, (_, func, _, _) in cases.items()})
    options = {**tools.options(name), "trials": TRIALS * len(cases)}
    result = pruner_ms.tune(mod, "cpu", work_dir=tools.place(), **options)
    library = _library(result)
    outputs, right = [], []
    for n, (program, _, arrays, expected) in cases.items():
        outputs += _called(program, library[n], arrays)
        right += expected
    return Answer(outputs, right, _left(result))


def _module_untuned(name: str, tools: Tools) -> str | None:
    said = [_untuned(n, tools) for n in _neighbours(name) if _case(n, tools)[2]]
    return next((text for text in said if text is not None), None)


def _network_around(func: Any, program: Program, arrays: Arrays) -> Any:
    """A Relax module that calls a program, and an operator of Relax beside it."""
    from tvm import relax

    written = program.written(len(arrays))
    kinds = [relax.TensorType(a.shape, str(a.dtype)) for a in arrays]
    parameters = [relax.Var(f"p{i}", k) for i, k in enumerate(kinds) if i not in written]
    results = [kinds[i] for i in written]
    other = relax.Var("other", relax.TensorType(OTHER, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [*parameters, other]):
        with builder.dataflow():
            place = builder.add_func(func.without_attr("global_symbol"), "program")
            kind = results if len(results) > 1 else results[0]
            call = builder.emit(relax.call_tir(place, parameters, kind))
            outputs = (
                [builder.emit(call[i]) for i in range(len(results))] if results[1:] else [call]
            )
            out = builder.emit_output(relax.Tuple([*outputs, builder.emit(relax.op.exp(other))]))
        builder.emit_func_output(out)
    return builder.get()


OTHER = (3, 4)
"""Shape of what the operator beside a program has."""


def _network_case(name: str, tools: Tools) -> tuple[Any, Arrays, Arrays]:
    program, func, arrays, expected = _case(name, tools)
    written = program.written(len(arrays))
    if not arrays or program.updates or written != list(range(len(arrays)))[-len(written) :]:
        raise pruner_ms.errors.OptionError("call_tir takes functions of fixed shapes, results last")
    other = np.random.default_rng(tools.seed).standard_normal(OTHER).astype("float32")
    inputs = [*(a for i, a in enumerate(arrays) if i not in written), other]
    return _network_around(func, program, arrays), inputs, [*expected, np.exp(other)]


def _call_tir(name: str, tools: Tools) -> Answer:
    mod, inputs, right = _network_case(name, tools)
    return _tuned_module(name, tools, mod, inputs, right)


def _call_tir_untuned(name: str, tools: Tools) -> str | None:
    return _module_as_it_is(lambda: _network_case(name, tools), tools)


def _script(name: str, tools: Tools) -> Answer:
    """A user's script, unchanged, under `pruner-ms run`."""
    program, func, arrays, expected = _case(name, tools)
    place = tools.place()
    lines = [
        "import tvm",
        "from benchmarks.zoo.programs import PROGRAMS",
        "from tvm.s_tir import meta_schedule as ms",
        'target = tvm.target.Target({"kind": "llvm", "num-cores": 2})',
        f"ms.tune_tir(PROGRAMS[{name!r}].make(), target, 'work', max_trials_global={TRIALS})",
    ]
    (place / "script.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    _command(["run", "script.py"], place)
    with tools.target:
        database = ms.database.JSONDatabase(work_dir=str(place / "work"))
    return Answer(_called(program, _best(database, func, tools), arrays), expected)


class Refused(PrunerError):  # noqa: N818  a verdict
    """What the command said in one sentence."""


def _command(words: Sequence[str], folder: Path) -> None:
    """Run `pruner-ms`; exit codes that say something are its sentence."""
    done = subprocess.run(
        [sys.executable, "-m", "pruner_ms", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if line.strip()] or [""]
    if TRACEBACK in done.stderr or done.returncode not in (0, 1, 3, 4, 5):
        raise RuntimeError(f"exit code {done.returncode}: {said[-1]}")
    if done.returncode in (3, 4):
        raise Nothing(said[-1])
    if done.returncode:
        raise Refused(next((s for s in reversed(said) if s.startswith("error: ")), said[-1]))


# graphs of ONNX


def _executed(library: Any, arrays: Arrays) -> list[Any]:
    """What a network's library computes here."""
    import tvm

    main = relax_paths.VirtualMachine(library, tvm.cpu())["main"]
    return [np.asarray(leaf.numpy()) for leaf in leaves(main(*map(as_tensor, arrays)))]


def _onnx(name: str, tools: Tools) -> Answer:
    graph = onnx_graphs.read(tools.graphs, name)
    options = {**tools.options(name), "shapes": graph.open_shapes()}
    result = pruner_ms.tune(graph.path, "cpu", work_dir=tools.place(), **options)
    if len(result.program.inputs) != len(graph.inputs):
        raise RuntimeError(
            f"{len(result.program.inputs)} inputs, the graph has {len(graph.inputs)}"
        )
    return Answer(_executed(_library(result), graph.inputs), graph.outputs, _left(result))


def _onnx_command(name: str, tools: Tools) -> Answer:
    graph = onnx_graphs.read(tools.graphs, name)
    place = tools.place()
    words = ["tune", str(graph.path), "--trials", str(TRIALS), "--effort", "quick"]
    for key, shape in graph.open_shapes().items():
        words += ["--shape", f"{key}:{'x'.join(map(str, shape))}"]
    _command([*words, "--cost-model", "none", "--work-dir", "run"], place)
    summary = json.loads((place / "run" / "summary.json").read_text())
    if not summary["library"]:
        raise Nothing("no library after the tuning")
    library = relax_paths.load_module(str(place / "run" / "model.so"))
    reason = "" if any(t["best_s"] for t in summary["tasks"]) else "; ".join(summary["notes"])
    return Answer(_executed(library, graph.inputs), graph.outputs, reason)


def _imported(name: str, tools: Tools) -> tuple[Any, Arrays, Arrays]:
    """An ONNX graph as TVM's own importer has it, and what is computed."""
    import onnx

    graph = onnx_graphs.read(tools.graphs, name)
    mod = relax_paths.from_onnx(onnx.load(str(graph.path)))
    mod = relax_paths.sequential(relax_paths.inference_passes())(mod)
    return mod, graph.inputs, graph.outputs


def _tuned_module(name: str, tools: Tools, mod: Any, inputs: Arrays, right: Arrays) -> Answer:
    result = pruner_ms.tune(mod, "cpu", work_dir=tools.place(), **tools.options(name))
    return Answer(_executed(_library(result), inputs), right, _left(result))


def _module_as_it_is(case: Callable[[], tuple[Any, Arrays, Arrays]], tools: Tools) -> str | None:
    """What is wrong with a Relax module that TVM compiles without tuning."""
    from tvm import relax

    try:
        mod, inputs, right = case()
        with tools.target:
            library = relax.build(relax.get_pipeline("zero")(mod), tools.target)
        return difference(_executed(library, inputs), right)
    except Exception as error:  # TVM raises anything; it is TVM's answer
        return sentence(error)


def _onnx_untuned(name: str, tools: Tools) -> str | None:
    return _module_as_it_is(lambda: _imported(name, tools), tools)


def _relax(name: str, tools: Tools) -> Answer:
    return _tuned_module(name, tools, *_imported(name, tools))


def _relax_by_name(name: str, tools: Tools, **parts: Any) -> Answer:
    from tvm import relax

    mod, inputs, right = _imported(name, tools)
    with tools.target:
        fused = relax.get_pipeline("zero")(mod)
    parts = parts or tools.named(name)
    tasks = ms.relax_integration.extract_tasks(fused, tools.target, {})
    if not tasks:
        return Answer(_executed(relax.build(fused, tools.target), inputs), right, "no task")
    tune = ms.relax_integration.tune_relax
    database = tune(fused, {}, tools.target, str(tools.place()), **parts)
    if not len(database):
        raise Nothing("no record")
    library = ms.relax_integration.compile_relax(database, fused, tools.target, {})
    return Answer(_executed(library, inputs), right)


def _passes(name: str, tools: Tools, **stock: Any) -> Answer:
    """TVM's passes, under our names as defaults; with any parts of stock's, as they are."""
    from tvm import relax

    mod, inputs, right = _imported(name, tools)
    place = str(tools.place())
    parts = {**tools.parts(name), "cost_model": "random"}
    with nullcontext() if stock else pruner_ms.defaults(**parts), tools.target:
        fused = relax.get_pipeline("zero")(mod)
        tuned = relax.transform.MetaScheduleTuneIRMod({}, place, TRIALS)(fused)
        applied = relax.transform.MetaScheduleApplyDatabase(place)(tuned)
        library = relax.build(applied, tools.target)
    return Answer(_executed(library, inputs), right)


# graphs of torch


def _seeded(name: str, tools: Tools) -> tuple[Any, tuple[Any, ...]]:
    import torch

    from benchmarks.zoo.torch_graphs import TORCH_GRAPHS

    graph = TORCH_GRAPHS[name]
    torch.manual_seed(tools.seed)
    return graph.make(), graph.inputs()


def _tensors(value: Any) -> list[Any]:
    """The tensors among what a function returns, and its other values, as arrays."""
    import torch
    from torch.utils._pytree import tree_leaves

    from pruner_ms.integration.inputs import numpy_dtype

    arrays = []
    for leaf in tree_leaves(value):
        if not isinstance(leaf, torch.Tensor):
            arrays.append(np.frombuffer(repr(leaf).encode(), "uint8"))
            continue
        held = leaf.detach().resolve_conj().resolve_neg().to_dense().contiguous().cpu()
        dtype = numpy_dtype(str(held.dtype).removeprefix("torch."))
        bits = {1: torch.int8, 2: torch.int16}
        own = dtype.isbuiltin == 1
        array = held.numpy() if own else held.view(bits[held.element_size()]).numpy().view(dtype)
        arrays.append(np.array(array))
    return arrays


def _eager(name: str, tools: Tools, calls: int = 1) -> list[Any]:
    """What torch computes, and what its inputs are afterwards."""
    import torch

    with torch.no_grad():
        what, inputs = _seeded(name, tools)
        tensors = []
        for _ in range(calls):
            torch.manual_seed(tools.seed)
            tensors += _tensors((what(*inputs), inputs))
        return tensors


def _torch_compile(name: str, tools: Tools) -> Answer:
    import torch

    expected = _eager(name, tools, calls=2)
    torch._dynamo.reset()
    options = {**tools.options(name), "cache_dir": str(tools.place())}
    with torch.no_grad(), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        what, inputs = _seeded(name, tools)
        fast = torch.compile(what, backend="pruner_ms", options=options)
        tensors = []
        for _ in range(2):
            torch.manual_seed(tools.seed)
            tensors += _tensors((fast(*inputs), inputs))
    said = [str(w.message) for w in heard if "pruner_ms" in str(w.message)]
    return Answer(tensors, expected, "; ".join(dict.fromkeys(said)))


def _torch_tune(name: str, tools: Tools) -> Answer:
    import torch

    class Function(torch.nn.Module):
        def forward(self, *inputs: Any) -> Any:
            return what(*inputs)

    from pruner_ms.integration import torch as ours

    what, inputs = _seeded(name, tools)
    module = what if isinstance(what, torch.nn.Module) else Function()
    place = tools.place()
    result = ours.tune(module, list(inputs), "cpu", work_dir=place, **tools.options(name))
    with torch.no_grad():
        expected = _tensors(module.eval()(*inputs))
    arrays = [np.ascontiguousarray(a) for a in _tensors(inputs)]
    return Answer(_executed(_library(result), arrays), expected, _left(result))


def _torch_untuned(name: str, tools: Tools) -> str | None:
    def case() -> tuple[Any, Arrays, Arrays]:
        import torch

        class Function(torch.nn.Module):
            def forward(self, *inputs: Any) -> Any:
                return what(*inputs)

        what, inputs = _seeded(name, tools)
        module = (what if isinstance(what, torch.nn.Module) else Function()).eval()
        with torch.no_grad():
            exported = torch.export.export(module, inputs, strict=False).run_decompositions()
            mod = relax_paths.from_exported(exported, unwrap_unit_return_tuple=True)
            return mod, _tensors(inputs), _tensors(module(*inputs))

    return _module_as_it_is(case, tools)


def _takes_it(name: str, tools: Tools) -> str | None:
    """torch takes all of its graphs."""
    del name, tools
    return None


WAYS: Mapping[str, Way] = MappingProxyType(
    {
        "tune_tir": Way(
            "program",
            '`ms.tune_tir(..., strategy="pruner")`',
            _by_name,
            _stock_says(_by_name),
            _untuned,
        ),
        "kernel": Way("program", "`pruner_ms.tune(PrimFunc)`", _kernel, _untuned, _untuned),
        "module": Way(
            "program",
            f"`pruner_ms.tune(IRModule)` of {TOGETHER} programs",
            _module,
            _module_untuned,
            _module_untuned,
            8,
        ),
        "call_tir": Way(
            "program",
            "`pruner_ms.tune(Relax module)` with `call_tir` of a program",
            _call_tir,
            _call_tir_untuned,
            _call_tir_untuned,
            2,
        ),
        "script": Way(
            "program", "`pruner-ms run script.py`", _script, _stock_says(_by_name), _untuned, 24
        ),
        "onnx": Way("onnx", "`pruner_ms.tune(ONNX file)`", _onnx, _onnx_untuned, _onnx_untuned),
        "command": Way(
            "onnx", "`pruner-ms tune FILE`", _onnx_command, _onnx_untuned, _onnx_untuned, 40
        ),
        "relax": Way(
            "onnx", "`pruner_ms.tune(Relax module)`", _relax, _onnx_untuned, _onnx_untuned, 12
        ),
        "tune_relax": Way(
            "onnx",
            '`ms.relax_integration.tune_relax(..., strategy="pruner")`',
            _relax_by_name,
            _stock_says(_relax_by_name),
            _onnx_untuned,
            6,
        ),
        "passes": Way(
            "onnx",
            "`MetaScheduleTuneIRMod` under `pruner_ms.defaults`",
            _passes,
            _stock_says(_passes),
            _onnx_untuned,
            24,
        ),
        "torch_compile": Way(
            "torch",
            '`torch.compile(backend="pruner_ms")`',
            _torch_compile,
            _takes_it,
            _takes_it,
        ),
        "torch_tune": Way(
            "torch",
            "`pruner_ms.integration.torch.tune`",
            _torch_tune,
            _torch_untuned,
            _torch_untuned,
            3,
        ),
    }
)
"""Way in by name."""
