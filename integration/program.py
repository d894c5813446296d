"""What is tuned: a network or a set of kernels, behind one interface."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import OptionError, UnsupportedOperatorError, first_line, last_line
from pruner_ms.integration import verify
from pruner_ms.integration.graph.winograd import Sizes
from pruner_ms.integration.kernels import compiled
from pruner_ms.integration.onnx_file import TensorSpec
from pruner_ms.integration.onnx_model import LoadedModel, load_model
from pruner_ms.integration.open_shapes import closed, inputs_of, open_note
from pruner_ms.integration.options import Shapes, TuneOptions, parse_shard
from pruner_ms.integration.records import Best, replayed
from pruner_ms.integration.relax import (
    NOT_ASKED_FOR,
    Skipped,
    TaskInfo,
    chosen,
    compile_model,
    extract_tasks,
    lower,
    require_room,
    run_model,
    skip_reason,
)
from pruner_ms.integration.rounding import (
    SIGMOID_ERROR,
    divides_by_data,
    network_rounding,
    sigmoid_outputs,
)
from pruner_ms.integration.timing import REPEATS, Comparison, compare_timing
from pruner_ms.integration.verify import Check
from pruner_ms.session.parts import normalized
from pruner_ms.trials.checks import tolerance
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import IRModule, estimate_tir_flops, ms
from pruner_ms.tvm_compat.vector_math import called

log = logging.getLogger(__name__)

ANOTHER_SHARD = "of another shard"
"""Why a task is skipped."""

Outputs = tuple[list[npt.NDArray[Any]] | None, str]
"""What was computed, and an empty text; or None and why it was not."""

_Note = Callable[[str], object]
"""Told of what a user should read."""


_FOREIGN = 1e-4
"""Share by which another engine's float32 numbers may differ on top of TVM's own rounding: it
computes coordinates of interpolations, exponentials and powers in other ways. What is imported
wrong is off by more."""


@dataclass(frozen=True)
class Expected:
    """What a network makes of random inputs, as others compute it.

    Attributes
    ----------
    inputs
        Of the network.
    untuned, reference
        By the untuned network, and by the `Reference`.
    """

    inputs: list[npt.NDArray[Any]]
    untuned: Outputs
    reference: Outputs

    @property
    def finite(self) -> bool:
        """Whether nothing of it is NaN or infinite."""
        return all(verify.finite(arrays or ()) for arrays, _ in (self.untuned, self.reference))


@dataclass(frozen=True)
class Reference:
    """Another engine that computes a network.

    Attributes
    ----------
    name
        Of the engine, for messages: "onnxruntime", "torch".
    outputs
        Computes the network's outputs for some inputs.
    """

    name: str
    outputs: Callable[[verify.Arrays], Outputs]


@dataclass(frozen=True)
class Network:
    """A network as another framework gave it.

    Attributes
    ----------
    name
        Of the model.
    mod
        Relax module with `main`.
    notes
        Sentences that a user should read.
    model_hash
        What tells it from other models, weights included; None: unknown.
    reference
        Who else computes it.
    inputs, outputs
        Of `main`, where the framework has names of its own for them.
    file
        Path of the ONNX model that it is, and the SHA-256 of that file; None: it is none.
    """

    name: str
    mod: Any
    notes: tuple[str, ...] = ()
    model_hash: str | None = None
    reference: Reference | None = None
    inputs: tuple[TensorSpec, ...] | None = None
    outputs: tuple[TensorSpec, ...] = ()
    file: tuple[str, str] | None = None


@dataclass(frozen=True)
class Program:
    """A program with its tasks.

    Attributes
    ----------
    name
        Of the model, or of the first kernel.
    tasks, skipped
        What is tuned, and what is not.
    notes
        Sentences that a user should read.
    lowered
        The fused Relax module that is tuned; None: the program is a set of kernels.
    plain
        The fused Relax module as TVM makes it, nothing rewritten.
    kernels
        The module of the kernels as it was given; None: the program is a network.
    inputs, outputs
        Of the network; empty for kernels.
    model_hash
        What tells a model from others; None for modules and kernels.
    reference
        Who else computes the network.
    open_inputs
        Names of the network's inputs that have no fixed shape: with any, it cannot be run here.
    unsafe
        Why the network is not run on random inputs; empty: it is.
    every
        All tasks, those that are not asked for, or of another shard, among them.
    file
        Path of the ONNX model, and the SHA-256 of that file; None: it is none.
    network, rewrites
        What was lowered, and how it was rewritten before; None: kernels.
    """

    name: str
    tasks: tuple[TaskInfo, ...]
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...] = ()
    lowered: Any = None
    plain: Any = None
    kernels: Any = None
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    model_hash: str | None = None
    reference: Reference | None = None
    open_inputs: tuple[str, ...] = ()
    unsafe: str = ""
    every: tuple[TaskInfo, ...] = ()
    file: tuple[str, str] | None = None
    network: Network | None = None
    rewrites: tuple[str, ...] = ()
    _untuned: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def untuned(self, target: Any, note: _Note = log.warning) -> Any:
        """The executable without tuned schedules, compiled once; see `tuned`."""
        name = str(target)
        if name not in self._untuned and self.lowered is not None:
            self._untuned[name] = compile_model(self.plain, target)
        elif name not in self._untuned:
            self._untuned[name] = compiled(self.kernels, {}, called(target), note)
        return self._untuned[name]

    def tuned(self, target: Any, best: Best, note: _Note = log.warning) -> Any:
        """The executable with the best schedules: a network's, or a module with all kernels.

        `note` is told of kernels that are not in it.
        """
        if self.lowered is not None:
            return compile_model(self.lowered, target, best)
        records = {task.name: best.records.get(task.hash) for task in self.tasks}
        scheduled = {name: replayed(one) for name, one in records.items() if one is not None}
        return compiled(self.kernels, scheduled, target, note)

    def sample(self, seed: int, positive: bool = False) -> list[npt.NDArray[Any]]:
        """Random inputs of the network."""
        return verify.random_inputs(self.inputs, np.random.default_rng(seed), positive)

    def compare(
        self, before: Any, after: Any, target: Any, seed: int, repeats: int = REPEATS
    ) -> Comparison:
        """Both executables of the network timed in turns; see `timing.compare_timing`."""
        return compare_timing(before, after, target, self.sample(seed), repeats)

    def expected(self, before: Any, target: Any, seed: int) -> Expected:
        """What the network should compute.

        Inputs are positive where others give NaN or infinity: a variance may be among them.

        Parameters
        ----------
        before
            The untuned executable; None: there is none.
        target
            A TVM `Target` whose device is here.
        seed
            Of the inputs.
        """
        expected = self._expected(before, target, seed, False)
        return expected if expected.finite else self._expected(before, target, seed, True)

    def _expected(self, before: Any, target: Any, seed: int, positive: bool) -> Expected:
        inputs = self.sample(seed, positive)

        def untuned() -> Outputs:
            return run_model(before, target, inputs), ""

        def reference() -> Outputs:
            return (None, "") if self.reference is None else self.reference.outputs(inputs)

        missing = "the untuned network does not compile"
        untuned_outputs = (
            (None, missing) if before is None else _tried(untuned, "the untuned network")
        )
        other = "" if self.reference is None else self.reference.name
        return Expected(inputs, untuned_outputs, _tried(reference, other))

    def check(
        self,
        expected: Expected,
        after: Any,
        target: Any,
        allow_tf32: bool = False,
        before: Any = None,
    ) -> list[Check]:
        """An executable against the untuned network, and against the reference if there is one.

        Parameters
        ----------
        expected
            What it should compute.
        after
            The executable; None: the untuned network is compared with the reference.
        target, allow_tf32
            See `verify.compare_modules`.
        before
            The untuned executable, which is asked again where something differs.
        """
        compare = self._comparisons(expected, after, target, allow_tf32)
        checks = [one() for one in compare]
        who = self.reference.name if self.reference and expected.reference[0] is not None else ""
        checks = _agreed(checks, who)
        if all(check.ok for check in checks) or before is None or expected.untuned[0] is None:
            return checks
        more = self._unsure(expected, before, target)
        pairs = zip(checks, compare, strict=True)
        return _agreed([check if check.ok else again(**more) for check, again in pairs], who)

    def _comparisons(
        self, expected: Expected, after: Any, target: Any, allow_tf32: bool
    ) -> list[Callable[..., Check]]:
        """The comparisons of `check`, as functions that take what `_unsure` returns, or nothing."""
        outputs, missing = expected.untuned
        if after is not None:
            outputs = run_model(after, target, expected.inputs)
        tasks = self.every or self.tasks  # tasks that are not tuned round differing numbers, too
        length = verify.network_length(tasks)
        own = network_rounding(tasks, self.lowered, target, allow_tf32)
        foreign = replace(own, truncation=own.truncation + _FOREIGN)
        named = "untuned" if after is None else "tuned"
        others = [] if after is None else [(expected.untuned, "untuned", own)]
        if self.reference is not None:
            others.append((expected.reference, self.reference.name, foreign))
        compare: list[Callable[..., Check]] = []
        for (theirs, why), who, rounding in others:
            name = f"network, {named} and {who}"
            if theirs is None or outputs is None:
                compare.append(partial(Check, name, True, f"not compared: {why or missing}"))
                continue
            given = (theirs, outputs, length, name, allow_tf32, rounding)
            compare.append(partial(verify.verify_network, *given))
        return compare

    def _unsure(self, expected: Expected, before: Any, target: Any) -> dict[str, Any]:
        """What else is to be known before an executable is called wrong: see `verify_network`."""
        first, inputs = expected.untuned[0] or [], expected.inputs
        length = verify.network_length(self.every or self.tasks)
        again = run_model(before, target, inputs, twice=True)

        def nudge(number: int) -> verify.Arrays:
            rng = np.random.default_rng(number)
            return run_model(before, target, verify.nudged(inputs, length, rng))

        def draw(number: int) -> verify.Arrays:
            return run_model(before, target, self.sample(number))

        sizes = verify.sizes_by_runs(first, length, nudge, draw)
        if self.network is not None:
            least = SIGMOID_ERROR / tolerance("float32", length)
            ends = sigmoid_outputs(self.network.mod)
            sizes = [np.maximum(one, least * end) for one, end in zip(sizes, ends, strict=True)]
        return {"undefined": verify.unequal(first, again), "sizes": sizes}


def _agreed(checks: list[Check], who: str) -> list[Check]:
    """Comparisons with the untuned network and with another engine, of which the latter decides.

    If both are right by themselves, TVM's plain loops round more.

    Parameters
    ----------
    who
        Name of the engine that the last comparison is with; empty: there is none.
    """
    if not who or len(checks) < 2 or checks[0].ok or not checks[1].ok:
        return checks
    first = replace(checks[0], ok=True, message=f"{checks[0].message}, but {who} agrees")
    return [first, *checks[1:]]


def _tried(compute: Callable[[], Outputs], name: str) -> Outputs:
    """What a reference computes, or the reason why it does not."""
    try:
        return compute()
    except Exception as error:  # of any class; a failed reference is no fault of the tuned program
        log.info("%s does not run", name, exc_info=error)
        return None, f"{name} does not run ({last_line(error)})"


def load(
    model: Any,
    target: Any,
    options: TuneOptions,
    shapes: Shapes | None,
    rewrites: Sequence[str] | None = None,
) -> Program:
    """The program that a user means.

    Parameters
    ----------
    model
        Path or name of an ONNX model, a `Network`, a Relax IRModule, an IRModule of PrimFuncs, a
        PrimFunc.
    target
        A TVM `Target`.
    options
        `seed` and `ops` are used here.
    shapes
        Of inputs with open dimensions, of a file or of a Relax module. What stays open in a module
        is not tuned.
    rewrites
        Of a network, see `relax.lower`; None: those of the options.

    Raises
    ------
    ModelFileError, OptionError
        The model or an option cannot be used.
    """
    rewrites = options.rewrites() if rewrites is None else rewrites
    if isinstance(model, str | Path):
        model = _from_file(load_model(str(model), dict(shapes or {}), options.seed))
        return _network(model, target, options, rewrites)
    if isinstance(model, Network):
        network = replace(model, mod=closed(model.mod, shapes))
        return _network(network, target, options, rewrites)
    if isinstance(model, relax_paths.PrimFunc):
        model = normalized(model)
    if not isinstance(model, IRModule):
        raise OptionError(
            f"a {type(model).__name__} cannot be tuned; give a path, a name, an IRModule, "
            "or a PrimFunc"
        )
    functions = list(model.functions.values())
    if functions and all(isinstance(f, relax_paths.PrimFunc) for f in functions):
        if shapes:
            raise OptionError("kernels have no inputs to give shapes to; make them of fixed shapes")
        return _kernels(model, options)
    return _network(Network("model", closed(model, shapes)), target, options, rewrites)


def _from_file(loaded: LoadedModel) -> Network:
    reference = Reference("onnxruntime", partial(verify.onnxruntime_outputs, loaded))
    return Network(
        loaded.name,
        loaded.mod,
        loaded.notes,
        loaded.model_hash,
        reference,
        loaded.inputs,
        loaded.outputs,
        (str(loaded.path.resolve()), loaded.file_hash),
    )


_DIVIDES = (
    "it divides integers by integers that it is given or computes, and a zero among random ones "
    "would end the process"
)


def variant(program: Program, target: Any, options: TuneOptions, sizes: Sizes) -> Program:
    """A network's program with other algorithms for some convolutions."""
    if program.network is None:
        raise ValueError(f"{program.name} is no network")
    return _network(program.network, target, options, program.rewrites, sizes)


def _rewritten(
    network: Network, target: Any, plain: Any, rewrites: Sequence[str], sizes: Sizes | None
) -> tuple[Any, tuple[str, ...]]:
    """The fused module that is tuned, and a note where it could not be rewritten.

    The last rewrites build upon the first ones, so they are left out one after another.
    """
    reason = ""
    plainer = [name for name in rewrites if name != "simplified"]
    tries = [names[:count] for names in (rewrites, plainer) for count in range(len(names), 0, -1)]
    for names in tries:
        try:
            mod = lower(network.mod, target, rewrites=names, sizes=sizes)
        except Exception as error:  # TVM raises of any class, and unrewritten it is tuned as well
            log.info("%s is not rewritten by %s", network.name, names, exc_info=True)
            reason = reason or first_line(error)
            continue
        missing = ", ".join(name for name in rewrites if name not in names)
        return mod, (f"the network is rewritten without {missing}: {reason}",) if missing else ()
    note = f"the network is tuned as it is, not rewritten: {reason}"
    return plain, (note,) if rewrites else ()


def _network(
    network: Network,
    target: Any,
    options: TuneOptions,
    rewrites: Sequence[str],
    sizes: Sizes | None = None,
) -> Program:
    require_room(network.mod, network.name)
    try:
        plain = lower(network.mod, target, rewrites=())
        lowered, noted = _rewritten(network, target, plain, rewrites, sizes)
    except Exception as error:
        # TVM raises of any class for what it cannot write as loops
        log.info("%s cannot be lowered", network.name, exc_info=True)
        raise UnsupportedOperatorError(
            f"TVM cannot lower {network.name}: {first_line(error)}; export it with another opset, "
            "or without that operator"
        ) from error
    functions = (f for f in lowered.functions.values() if isinstance(f, relax_paths.PrimFunc))
    unsafe = _DIVIDES if any(map(divides_by_data, functions)) else ""
    extracted = extract_tasks(lowered, target, options.ops)
    tasks, others = sharded(extracted.tasks, options.shard)
    inputs = network.inputs
    still_open: tuple[str, ...] = ()
    if inputs is None:
        inputs, still_open = inputs_of(network.mod)
    return Program(
        network.name,
        tasks,
        (*extracted.skipped, *others),
        (*network.notes, *noted, *map(open_note, still_open)),
        lowered,
        plain,
        inputs=() if still_open else inputs,
        outputs=network.outputs,
        model_hash=network.model_hash,
        reference=network.reference,
        open_inputs=still_open,
        unsafe=unsafe,
        every=extracted.every,
        file=network.file,
        network=network,
        rewrites=tuple(rewrites) if lowered is not plain else (),
    )


def _kernels(mod: Any, options: TuneOptions) -> Program:
    tasks: list[TaskInfo] = []
    skipped: list[Skipped] = []
    for var, func in mod.functions.items():
        name = str(var.name_hint)
        private = func.attrs is None or "global_symbol" not in func.attrs  # cannot be called
        public = func.with_attr("global_symbol", "main") if private else func
        one = normalized(IRModule({"main": public}))
        reason = skip_reason(one)
        if reason is not None:
            skipped.append(Skipped(name, 1, reason))
            continue
        flops = float(estimate_tir_flops(one))
        tasks.append(TaskInfo(name, 1, flops, one, str(ms.utils.shash2hex(one))))
    every = tuple(tasks)
    if options.ops and tasks:
        tasks, others = chosen(tasks, options.ops)
        skipped += [Skipped(t.name, t.weight, NOT_ASKED_FOR) for t in others]
    tasks.sort(key=lambda t: -t.flops)
    name = tasks[0].name if tasks else "kernels"
    mine, elsewhere = sharded(tasks, options.shard)
    return Program(name, mine, (*skipped, *elsewhere), kernels=mod, every=every)


_NAMED = 3
"""Functions that a sentence names."""


def nothing_of(program: Program) -> str:
    """Why a program has no task."""
    if any(one.reason == ANOTHER_SHARD for one in program.skipped):
        count = sum(one.reason == ANOTHER_SHARD for one in program.skipped)
        return f"the {count} tasks are those of other shards; use at most {count} parts"
    reasons: dict[str, list[str]] = {}
    for one in program.skipped:
        reasons.setdefault(one.reason, []).append(one.name)
    said = []
    for reason, names in reasons.items():
        more = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
        said.append(f"{', '.join(names[:_NAMED])}{more}: {reason}")
    return "; ".join(said) or "no function of the model needs a schedule"


def sharded(
    tasks: Sequence[TaskInfo], shard: str | None
) -> tuple[tuple[TaskInfo, ...], tuple[Skipped, ...]]:
    """The tasks of one part, and the others; each, heaviest first, goes to the lightest part."""
    number, parts = parse_shard(shard)
    load = [0.0] * parts
    mine: list[TaskInfo] = []
    others: list[TaskInfo] = []
    for task in sorted(tasks, key=lambda t: (-t.flops * t.weight, t.hash)):
        place = load.index(min(load))
        # a task without operations takes its trials all the same
        load[place] += max(task.flops * task.weight, 1.0)
        (mine if place == number else others).append(task)
    return tuple(mine), tuple(Skipped(t.name, t.weight, ANOTHER_SHARD) for t in others)
