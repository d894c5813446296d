"""`torch.compile(model, backend="pruner_ms")`: graphs tuned once, kept, and run by TVM.

torch finds the backend by its entry point. Parameters are inputs of a graph, so that what is kept
serves any weights; nothing is copied between torch and TVM.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from platformdirs import user_cache_dir
from torch._dynamo.backends.common import fake_tensor_unsupported
from torch.utils.dlpack import from_dlpack

from pruner_ms.errors import ModelFileError, NothingToTuneError, OptionError, PrunerError
from pruner_ms.integration import export, pipeline
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import Network, Reference
from pruner_ms.integration.result import NO_GAIN
from pruner_ms.integration.torch import exported_program, outputs_of, relax_of
from pruner_ms.session.files import strict_loads
from pruner_ms.tvm_compat import relax_paths, threads
from pruner_ms.tvm_compat.paths import module_key
from pruner_ms.tvm_compat.targets import parse_target

log = logging.getLogger(__name__)

Graph = Callable[..., Any]

_NOT_OPTIONS = ("shapes", "events", "stop")
"""What `pruner_ms.tune` takes by name beside the fields of `TuneOptions`."""

_WITHOUT_LIBRARY = ("dry_run", "shard", "work_dir")
"""What makes no sense for a graph: it is to run, and lies in `cache_dir`."""


@fake_tensor_unsupported  # type: ignore[arg-type]
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
        `preset="quick"`), `target` (by default the inputs' device) and `cache_dir` (by default in
        the user's cache folder).
    mode
        Of `torch.compile`; it means nothing here.

    Raises
    ------
    OptionError, TargetError
        An option cannot be used.
    """
    chosen = {"preset": "quick", **(options or {})}
    for name in _WITHOUT_LIBRARY:
        if chosen.get(name):
            raise OptionError(f"{name}={chosen[name]!r} cannot be used with torch.compile")
    cache = Path(str(chosen.pop("cache_dir", "") or user_cache_dir("pruner-ms")))
    target = chosen.pop("target", None)
    found = pipeline.target_of(target) if target else None
    try:
        _require_inference(example_inputs)
        found = _target_of(example_inputs) if found is None else found
        return _tuned(graph, example_inputs, found, cache / "torch", chosen)
    except NothingToTuneError as error:  # not the options' fault
        return _left(graph, error)
    except OptionError:
        raise
    except PrunerError as error:
        return _left(graph, error)


def _left(graph: torch.fx.GraphModule, error: PrunerError) -> Graph:
    """The graph as torch runs it, with a warning that names the reason."""
    warnings.warn(f"pruner_ms leaves a graph to torch: {error}", UserWarning, stacklevel=3)
    return graph.forward


def _require_inference(inputs: Sequence[Any]) -> None:
    if not all(isinstance(x, torch.Tensor) for x in inputs):
        raise ModelFileError("its shapes are open; compile it with dynamic=False")
    if torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        raise ModelFileError("its gradients are recorded; call it under torch.no_grad()")


def _target_of(inputs: Sequence[torch.Tensor]) -> Any:
    kinds = {x.device.type for x in inputs} or {"cpu"}
    if len(kinds) > 1 or not kinds <= {"cpu", "cuda"}:
        raise ModelFileError(f"its inputs are on {', '.join(sorted(kinds))}; cpu or cuda is needed")
    return parse_target(kinds.pop())


def _tuned(
    graph: torch.fx.GraphModule,
    inputs: Sequence[torch.Tensor],
    target: Any,
    folder: Path,
    options: Mapping[str, Any],
) -> Graph:
    exported = exported_program(graph, inputs)
    if not all(isinstance(name, str) for name in exported.graph_signature.user_outputs):
        raise ModelFileError("it returns something else than tensors")
    mod = relax_of(exported)
    given = {name: value for name, value in options.items() if name not in _NOT_OPTIONS}
    chosen = pipeline.options_of(given)
    units = f"tensorcore={chosen.tensorcore} allow_tf32={chosen.allow_tf32}"
    units += f" vector_math={chosen.vector_math}"
    text = f"{module_key(mod)} {target.export()} {export.versions()} {units}"
    key = hashlib.sha256(text.encode()).hexdigest()
    place = folder / key[:16]
    library = _kept(place / export.LIBRARY, key) if finished(place, chosen) else None
    if library is None:
        network = Network(
            "graph",
            mod,
            model_hash=key,
            reference=Reference("torch", lambda arrays: outputs_of(graph, arrays)),
        )
        library = pipeline.tune(network, target, work_dir=place, **options).executable
    return _runnable(library, target)


def finished(place: Path, wanted: TuneOptions) -> bool:
    """Whether an earlier run in a work-dir ended, and had at least the budget wanted now."""
    try:
        summary = strict_loads((place / "summary.json").read_bytes())
        if summary["status"] not in ("complete", NO_GAIN):
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
    """Whether a limit was not tighter than another; None: there is none."""
    return had is None or (wanted is not None and had >= wanted)


def _kept(path: Path, key: str) -> Any | None:
    """The library of an earlier run."""
    try:
        if export.read_metadata(path).get("model_hash") != key:
            return None
        return relax_paths.load_module(str(path))
    except (ModelFileError, OSError, RuntimeError) as error:
        log.debug("no library at %s: %s", path, error)
        return None


def _runnable(library: Any, target: Any) -> Graph:
    main = relax_paths.VirtualMachine(library, relax_paths.device_of(target))["main"]
    call = threads.caller_in_place(target)

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        given = [relax_paths.from_dlpack(x.detach().contiguous()) for x in inputs]
        return [from_dlpack(output) for output in call(main, *given)]

    return run
