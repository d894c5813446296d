"""`torch.compile(model, backend="pruner_ms")`: graphs tuned once, kept, and run by TVM.

torch finds the backend by its entry point. AOTAutograd first makes a pure function of a graph:
writes into inputs, and memory that results share, are handled by torch, around what TVM computes.
Parameters are inputs of that function, so that a library that is kept serves any weights.

Whatever goes wrong on the way, the graph stays with torch. Both compute the first call, and TVM
gets the later calls if the results agree. In this way, what was tuned for zeros, or kept by an
earlier process, is compared with torch on the user's own numbers.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_cache_dir
from torch._dynamo.backends.common import aot_autograd, fake_tensor_unsupported
from torch.utils.dlpack import from_dlpack

from pruner_ms.errors import AbsentDeviceError, ModelFileError, OptionError, PrunerError, first_line
from pruner_ms.files import strict_loads
from pruner_ms.integration import export, pipeline
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import Network, Reference
from pruner_ms.integration.result import ENDED
from pruner_ms.integration.torch import as_array, exported_program, outputs_of, relax_of
from pruner_ms.integration.verify import CHOSEN, chosen_alike
from pruner_ms.records.workdir import expanded
from pruner_ms.trials.checks import compare, compare_in_norm
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.tvm_compat.paths import module_key
from pruner_ms.tvm_compat.targets import parse_target

log = logging.getLogger(__name__)

Graph = Callable[..., Sequence[torch.Tensor]]

_NOT_FIELDS = ("events", "stop")
"""What `pruner_ms.tune` takes by name beside the fields of `TuneOptions`."""

_NOT_FOR_GRAPHS = ("dry_run", "shard", "work_dir", "shared", "shapes")
"""What makes no sense for a graph: it is to run, lies in `cache_dir`, and has its shapes."""


@dataclass(frozen=True)
class Wanted:
    """What a call of `torch.compile` asks for.

    Attributes
    ----------
    options
        Of `pruner_ms.tune`.
    fields
        The same, checked.
    folder
        Where graphs are kept.
    target
        A TVM `Target`; None: by the inputs' device.
    """

    options: Mapping[str, Any]
    fields: TuneOptions
    folder: Path
    target: Any = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Wanted:
        """What options ask for.

        Raises
        ------
        OptionError, TargetError, WorkDirError
            One cannot be used.
        """
        options = {"effort": "quick", **given}
        for name in _NOT_FOR_GRAPHS:
            if options.get(name):
                raise OptionError(f"{name}={options[name]!r} cannot be used with torch.compile")
        cache = options.pop("cache_dir", None) or user_cache_dir("pruner-ms")
        target = options.pop("target", None)
        fields = pipeline.options_of(
            {name: value for name, value in options.items() if name not in _NOT_FIELDS}
        )
        tvm_target = pipeline.target_of(target) if target else None
        if tvm_target is not None:
            fields.target_for(tvm_target)
        return cls(options, fields, expanded(str(cache)) / "torch", tvm_target)


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Graph:
    """Tune a graph that torch captured.

    A graph that TVM cannot take runs as it is, with one warning.

    Parameters
    ----------
    graph, example_inputs
        From torch.
    options
        Of `torch.compile(..., options={...})`: those of `pruner_ms.tune` (by default
        `effort="quick"`), `target` (by default the inputs' device) and `cache_dir` (by default in
        the user's cache folder).
    mode
        Of `torch.compile`; it means nothing here.

    Raises
    ------
    OptionError, TargetError, WorkDirError
        An option cannot be used.
    """
    try:
        wanted = Wanted.of(options or {})
    except AbsentDeviceError as error:  # the machine's fault, not the option's
        return _left(graph.forward, error)
    try:
        _require_inference(example_inputs)
        pure = aot_autograd(fw_compiler=partial(_compiled, wanted=wanted))
        return pure(graph, example_inputs)
    except Exception as error:  # torch's and TVM's reasons have no class in common
        return _left(graph.forward, error)


def _left(graph: Graph, error: Exception) -> Graph:
    """The graph as torch runs it, with a warning that names the reason."""
    log.info("a graph stays with torch", exc_info=error)
    why, kind = first_line(error), type(error).__name__
    if not (isinstance(error, PrunerError) or why.startswith(kind)):
        why = f"{kind}: {why}"
    why = why.replace("--work-dir", "cache_dir")  # the option that there is here
    warnings.warn(f"pruner_ms leaves a graph to torch: {why}", UserWarning, stacklevel=3)
    return graph


def _require_inference(inputs: Sequence[Any]) -> None:
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    shapes = [size for x in tensors for size in x.shape]
    if len(tensors) < len(inputs) or not all(isinstance(size, int) for size in shapes):
        raise ModelFileError("its shapes are open; compile it with dynamic=False")
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise ModelFileError("its gradients are recorded; call it under torch.no_grad()")


@fake_tensor_unsupported  # type: ignore[arg-type]
def _compiled(
    graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor], *, wanted: Wanted
) -> Graph:
    """A graph of AOTAutograd's, tuned or kept."""
    target = _target_of(inputs) if wanted.target is None else wanted.target
    _require_place(inputs, target)
    exported = exported_program(graph, inputs)
    mod = relax_of(exported)
    units = f"tensorcore={wanted.fields.tensorcore} allow_tf32={wanted.fields.allow_tf32}"
    units += f" vector_math={wanted.fields.vector_math}"
    text = f"{module_key(mod)} {target.export()} {export.versions()} {units}"
    key = hashlib.sha256(text.encode()).hexdigest()
    place = wanted.folder / key[:16]
    main = _kept(place / export.LIBRARY, key, target) if finished(place, wanted.fields) else None
    if main is None:
        network = Network(
            "graph",
            mod,
            model_hash=key,
            reference=Reference("torch", lambda arrays: outputs_of(graph, arrays)),
        )
        result = pipeline.tune(network, target, work_dir=place, **wanted.options)
        main = _main(result.executable, target)
    return OnTvm(graph, main)


def _target_of(inputs: Sequence[torch.Tensor]) -> Any:
    kinds = {x.device.type for x in inputs} or {"cpu"}
    if len(kinds) > 1 or not kinds <= {"cpu", "cuda"}:
        raise ModelFileError(f"its inputs are on {', '.join(sorted(kinds))}; cpu or cuda is needed")
    return parse_target(kinds.pop())


def _require_place(inputs: Sequence[torch.Tensor], target: Any) -> None:
    device = str(relax_paths.device_of(target))
    others = {f"{x.device.type}:{x.device.index or 0}" for x in inputs} - {device}
    if others:
        raise ModelFileError(
            f"its inputs are on {', '.join(sorted(others))}, and programs for {target.kind.name} "
            f"run on {device}"
        )


def finished(place: Path, wanted: TuneOptions) -> bool:
    """Whether an earlier run in a work-dir ended, and had at least the budget wanted now."""
    try:
        summary = strict_loads((place / "summary.json").read_bytes())
        if summary["status"] not in ENDED:
            return False
        budget = wanted.config(len(summary["tasks"])).budget
        if summary["trials"]["total"] >= budget.trials:
            return True
        had = summary["options"]
        limits = ((had["time"], budget.seconds), (had["patience"], budget.patience))
        enough = summary["trials"]["budget"] >= budget.trials
        return enough and all(_not_less(old, new) for old, new in limits)
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.debug("no finished run in %s: %r", place, error)
        return False


def _not_less(had: float | None, wanted: float | None) -> bool:
    """Whether an earlier limit is at least as loose as the one wanted now; None: no limit."""
    return had is None or (wanted is not None and had >= wanted)


def _kept(path: Path, key: str, target: Any) -> Any | None:
    """`main` of the library of an earlier run; None where it is damaged, or another graph's."""
    try:
        if export.read_metadata(path).get("model_hash") != key:
            return None
        return _main(relax_paths.load_module(str(path)), target)
    except Exception as error:  # whatever is wrong with it, it can be made anew
        log.info("the library at %s is made anew: %r", path, error)
        return None


def _main(library: Any, target: Any) -> Graph:
    """TVM's function, run on as many threads as the target has cores."""
    main = relax_paths.VirtualMachine(library, relax_paths.device_of(target))["main"]
    return partial(threads.caller_in_place(target), main)


@dataclass(frozen=True)
class Place:
    """Where a result of torch's lies, and as what.

    Attributes
    ----------
    plain
        Whether it is in row-major order, in memory of its own.
    memory, size_bytes
        Address of the memory that it shares with other results, and its size.
    size, stride, offset, dtype
        Of the tensor there.
    """

    plain: bool
    memory: int
    size_bytes: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype

    def within(self, memory: torch.Tensor) -> torch.Tensor:
        """The same place in other memory, given as its bytes."""
        return memory.view(self.dtype).as_strided(self.size, self.stride, self.offset)


def places_of(tensors: Sequence[torch.Tensor]) -> list[Place]:
    """Places of a graph's results."""
    memory = [tensor.untyped_storage() for tensor in tensors]
    count = Counter(one.data_ptr() for one in memory)
    return [
        Place(
            tensor.is_contiguous() and count[held.data_ptr()] == 1,
            held.data_ptr(),
            held.nbytes(),
            tuple(tensor.shape),
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.dtype,
        )
        for tensor, held in zip(tensors, memory, strict=True)
    ]


def placed(results: Sequence[torch.Tensor], places: Sequence[Place]) -> list[torch.Tensor]:
    """TVM's results as torch gives them: they share memory where torch's do.

    TVM's are in row-major order, and float32 where its importer does not keep to 16 bits.
    """
    memory: dict[int, torch.Tensor] = {}
    tensors = []
    for result, place in zip(results, places, strict=True):
        if place.plain and result.dtype == place.dtype:
            tensors.append(result)
            continue
        if place.memory not in memory:
            memory[place.memory] = result.new_empty(place.size_bytes, dtype=torch.uint8)
        tensors.append(place.within(memory[place.memory]).copy_(result))
    return tensors


_ALIGNED = 64
"""Bytes that TVM's programs take addresses of buffers to be multiples of."""


class OnTvm:
    """A graph without side effects that TVM runs, as long as it does so rightly.

    Parameters
    ----------
    graph
        The same for torch.
    main
        TVM's function.
    """

    def __init__(self, graph: Graph, main: Any) -> None:
        self._graph, self._main = graph, main
        self._places: list[Place] | None = None
        self._lock = threading.Lock()

    def __call__(self, *inputs: torch.Tensor) -> Sequence[torch.Tensor]:
        """Results for tensors of the shapes and types that it was compiled for."""
        if self._main is None:
            return self._graph(*inputs)
        if self._places is None:
            return self._first(inputs)
        try:
            return self._run(inputs, self._places)
        except Exception as error:  # TVM's errors have no class in common
            self._leave(error)
        return self._graph(*inputs)

    def _first(self, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """What torch computes; what it raises is the user's."""
        expected = self._graph(*inputs)
        try:
            places = places_of(expected)
            why = difference(self._run(inputs, places), expected)
            if why is not None:
                raise ModelFileError(f"TVM computes something else than torch: {why}")
            self._places = places
        except Exception as error:  # TVM's, and whatever cannot be compared
            self._leave(error)
        return expected

    def _leave(self, error: Exception) -> None:
        if self._main is not None:  # another thread may have been first
            self._main = None
            _left(self._graph, error)

    def _run(self, inputs: Sequence[torch.Tensor], places: Sequence[Place]) -> list[torch.Tensor]:
        given = [_handed(x) for x in inputs]
        with self._lock:  # TVM's virtual machine is for one thread at a time
            results = [from_dlpack(one) for one in self._main(*given)]
        # what TVM hands through, or gives twice, is memory of its own in torch
        taken = {x.data_ptr() for x in inputs}
        owned = []
        for result in results:
            owned.append(result.clone() if result.data_ptr() in taken else result)
            taken.add(result.data_ptr())
        return placed(owned, places)


def _handed(tensor: torch.Tensor) -> Any:
    """A tensor for TVM, without a copy where it lies as TVM's programs expect it."""
    held = tensor.detach().contiguous()
    if held.data_ptr() % _ALIGNED:
        held = held.clone()
    return relax_paths.from_dlpack(held)


def difference(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> str | None:
    """What is grossly wrong with results; None: nothing.

    They were compared element by element when the graph was tuned. Here, what comparisons choose
    (`CHOSEN`) should be the same; other numbers may differ by rounding, their own or that of
    numbers that become integers on the way.
    """
    references = [as_array(tensor) for tensor in expected]
    outputs, _ = chosen_alike([as_array(tensor) for tensor in got], references)
    for number, (out, ref) in enumerate(zip(outputs, references, strict=True)):
        failed = compare([out], [ref], 1)
        if failed is not None and str(ref.dtype) not in CHOSEN:
            failed = compare_in_norm([out], [ref], 1)
        if failed is not None:
            return failed.message.replace("output 0", f"output {number}")
    return None
