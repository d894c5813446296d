"""A run's library beside the engines that a user has: the same model and threads, in turns.

Each engine is a process of its own that waits until it is asked: TVM with the library; for an ONNX
model, onnxruntime and OpenVINO (told to compute in float32, which it otherwise need not do);
for a torch module, torch with and without its compiler. Asked in turns, from the first to the last
and back, each runs the model for a third of a second, so that other load on the machine slows all
of them down alike.

`python -m pruner_ms.integration.engines` is one such process.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from pruner_ms.errors import OptionError, first_line
from pruner_ms.integration.export import LIBRARY, read_metadata
from pruner_ms.integration.inputs import numpy_dtype
from pruner_ms.integration.onnx_file import file_hash

Arrays = list[npt.NDArray[Any]]
Run = Callable[[], Arrays]

TURNS = 7
_TURN_SECONDS, _REST_SECONDS = 0.3, 0.05
_FEWEST_RUNS, _WARM_RUNS = 3, 5
_PATIENCE_SECONDS = 300.0
"""For one answer: an engine may compile a network for minutes."""

OURS = "pruner-ms"

_ONE_MESSAGE = 2**31 - 2**20
"""Bytes that protobuf puts into one message at most."""


@dataclass(frozen=True)
class Timing:
    """What an engine took for a model.

    Attributes
    ----------
    engine
        What it is called.
    seconds
        Quartiles of the turns' medians; empty: it does not run the model.
    fastest
        Seconds of the fastest run of all.
    difference
        Largest distance of its outputs from the first engine's, divided by the largest absolute
        value of the latter.
    why
        Why it does not run the model.
    turns
        Median of each turn, in seconds.
    """

    engine: str
    seconds: tuple[float, ...] = ()
    fastest: float | None = None
    difference: float | None = None
    why: str = ""
    turns: tuple[float, ...] = ()

    @property
    def median(self) -> float | None:
        """Seconds."""
        return self.seconds[1] if self.seconds else None


@dataclass(frozen=True)
class Job:
    """What an engine runs.

    Attributes
    ----------
    engine
        Its name in `ENGINES`.
    model, library
        Files: ONNX or an exported program of torch, and what the tuner made of it.
    inputs, names
        .npz file of the inputs in the library's order, and what the model calls them.
    threads
        Of the engine.
    """

    engine: str
    model: str
    library: str
    inputs: str
    names: tuple[str, ...]
    threads: int


Engine = Callable[[Job, Mapping[str, npt.NDArray[Any]]], Run]
"""Loads a model; what it gives runs it once."""


def _onnxruntime(job: Job, inputs: Mapping[str, npt.NDArray[Any]]) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads, options.inter_op_num_threads = job.threads, 1
    session = onnxruntime.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    return lambda: list(session.run(None, dict(inputs)))


def _openvino(job: Job, inputs: Mapping[str, npt.NDArray[Any]]) -> Run:
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": job.threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    request = openvino.Core().compile_model(job.model, "CPU", settings).create_infer_request()
    return lambda: list(request.infer(dict(inputs)).values())


def _torch(job: Job, inputs: Mapping[str, npt.NDArray[Any]]) -> Run:
    import torch

    return _run_module(torch.export.load(job.model).module(), job, inputs)


def _inductor(job: Job, inputs: Mapping[str, npt.NDArray[Any]]) -> Run:
    import torch

    # "freezing" packs weights, as all the others do
    module = torch.compile(torch.export.load(job.model).module(), options={"freezing": True})
    return _run_module(module, job, inputs)


def _run_module(module: Any, job: Job, inputs: Mapping[str, npt.NDArray[Any]]) -> Run:
    import torch
    from torch.utils._pytree import tree_leaves

    torch.set_num_threads(job.threads)
    tensors = [torch.from_numpy(array) for array in inputs.values()]

    def run() -> Arrays:
        with torch.no_grad():
            return [tensor.numpy() for tensor in tree_leaves(module(*tensors))]

    return run


def _library(job: Job, inputs: Mapping[str, npt.NDArray[Any]]) -> Run:
    import tvm
    from tvm import relax

    machine = relax.VirtualMachine(tvm.runtime.load_module(job.library), tvm.cpu())
    as_tensor = getattr(tvm.runtime, "tensor", None) or tvm.nd.array
    arrays = [as_tensor(array) for array in inputs.values()]

    def run() -> Arrays:
        result = machine["main"](*arrays)
        tensors = [result] if hasattr(result, "numpy") else list(result)
        return [tensor.numpy() for tensor in tensors]

    return run


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        "onnxruntime": _onnxruntime,
        "openvino": _openvino,
        "torch": _torch,
        "inductor": _inductor,
        OURS: _library,
    }
)
"""Engines by name; ours is the library."""

TORCH_MODEL = "model.pt2"
"""File of a work-dir with the exported program of a torch module."""
OF_TORCH = ("torch", "inductor")
"""Engines that run it; the others read ONNX."""


def package_of(engine: str) -> str:
    """What has to be installed for an engine."""
    return "torch" if engine in OF_TORCH else engine


def installed(names: Sequence[str] | None = None) -> list[str]:
    """Installed engines other than ours, among those named; None: among all.

    Raises
    ------
    OptionError
        One that is named is unknown, or not installed.
    """
    others = [name for name in ENGINES if name != OURS]
    for name in names or ():
        if name not in others:
            raise OptionError(f"there is no engine {name!r}; compare with {', '.join(others)}")
        package = package_of(name)
        if find_spec(package) is None:
            raise OptionError(f"{package} is not installed; pip install {package}, or leave it out")
    return [name for name in names or others if find_spec(package_of(name)) is not None]


class Player:
    """An engine's process.

    Parameters
    ----------
    name
        What it is called.
    job
        What it runs.
    folder
        Where it leaves outputs, and what it says otherwise.

    Attributes
    ----------
    why
        Why it is gone; empty: it is not.
    """

    def __init__(self, name: str, job: Job, folder: Path) -> None:
        self.name, self.outputs = name, folder / f"{name}.npz"
        self._log = folder / f"{name}.log"
        command = [sys.executable, "-m", __name__, json.dumps(asdict(job))]
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, str(self.outputs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "TVM_NUM_THREADS": str(job.threads)},
            )
        self._asked, self._answers = (
            cast("IO[str]", pipe) for pipe in (self._process.stdin, self._process.stdout)
        )
        self.why = ""

    def turn(self) -> list[float] | None:
        """Seconds of each run in one turn, empty for the first, which loads; None: it is gone."""
        said = None
        with suppress(OSError, ValueError):  # it is gone, or ends while it speaks
            print(file=self._asked, flush=True)
            if select.select([self._answers], [], [], _PATIENCE_SECONDS)[0]:
                said = json.loads(self._answers.readline())
        if said is None:
            said = {"why": self._last_words()}
        self.why = said.get("why", "")
        return None if self.why else list(said["seconds"])

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        code = self._process.poll()
        if code is None:
            self._process.kill()
            return f"it did not answer within {_PATIENCE_SECONDS:.0f} s"
        lines = self._log.read_text(errors="replace").strip().splitlines()
        last = lines[-1][:300] if lines else "it said nothing"
        return f"its process ended ({signal.Signals(-code).name if code < 0 else code}): {last}"

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._asked, self._answers):
            with suppress(OSError):  # what was not read any more
                pipe.close()


def compared(jobs: Mapping[str, Job], folder: Path, turns: int = TURNS) -> list[Timing]:
    """Time engines in turns.

    Parameters
    ----------
    jobs
        What each runs, by what it is called.
    folder
        Where outputs and logs go.
    turns
        Of each.
    """
    with ExitStack() as stack:
        players: list[Player] = []
        for name, job in jobs.items():
            players.append(Player(name, job, folder))
            stack.callback(players[-1].close)
        for player in players:
            player.turn()  # it loads the model, and writes what it computes
        seconds: dict[str, list[list[float]]] = {player.name: [] for player in players}
        for number in range(turns):
            for player in players if number % 2 else reversed(players):
                if not player.why:
                    time.sleep(_REST_SECONDS)
                    seconds[player.name].append(player.turn() or [])
        return [_timing(player, seconds[player.name], players[0]) for player in players]


def _timing(player: Player, turns: Sequence[Sequence[float]], first: Player) -> Timing:
    if player.why or not turns:
        return Timing(player.name, why=player.why or "it had no turn")
    medians = tuple(float(np.median(turn)) for turn in turns)
    quartiles = np.quantile(medians, (0.25, 0.5, 0.75))
    fastest = min(min(turn) for turn in turns)
    apart = None if first.why else difference(player.outputs, first.outputs)
    return Timing(player.name, tuple(map(float, quartiles)), fastest, apart, turns=medians)


def speed(one: Timing, other: Timing) -> float:
    """How many times as fast as another an engine is.

    The median over turns of the ratio in a turn: what slows a turn down slows both.
    """
    if one.turns and len(one.turns) == len(other.turns):
        return float(np.median(np.divide(other.turns, one.turns)))
    return (other.median or np.nan) / (one.median or np.nan)


def difference(outputs: Path, reference: Path) -> float | None:
    """Largest distance between outputs, divided by the reference's largest absolute value.

    None: their shapes differ, or the distance is not finite.
    """
    with np.load(outputs) as ours, np.load(reference) as theirs:
        if {name: ours[name].shape for name in ours} != {n: theirs[n].shape for n in theirs}:
            return None
        pairs = [(ours[n].astype(float), theirs[n].astype(float)) for n in theirs]
    apart = max((_apart(one, other) for one, other in pairs if other.size), default=0.0)
    return apart if np.isfinite(apart) else None


def _apart(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-30))


def verdict(timings: Sequence[Timing], summary: Mapping[str, Any]) -> str:
    """One sentence: which engine is fastest and, if it is not ours, which tasks cost most.

    Parameters
    ----------
    timings
        Ours among them.
    summary
        Of the run.
    """
    ours = next((t for t in timings if t.engine == OURS), Timing(OURS, why="it was not run"))
    others = [t for t in timings if t.engine != OURS and t.median is not None]
    if ours.median is None:
        return f"the library does not run: {ours.why}"
    if not others:
        return "no other engine runs this model"
    best = min(others, key=lambda other: speed(ours, other))
    ratio = speed(ours, best)
    if ratio >= 1.0:
        return f"the library is {ratio:.2f} times as fast as {best.engine}"
    costs = {
        task["name"]: task["weight"] * (task.get("best_s") or task.get("untuned_s") or 0.0)
        for task in summary.get("tasks", ())
    }
    total = sum(costs.values()) or 1.0
    most = sorted(costs, key=lambda name: -costs[name])[:3]
    named = ", ".join(f"{name} ({100 * costs[name] / total:.0f} %)" for name in most)
    return (
        f"{best.engine} is {1 / ratio:.2f} times as fast as the library; most time goes to {named}"
    )


def main(job: str, outputs: str) -> None:
    """Be one engine: on each line of standard input, run the model for a while and say the times.

    The first one loads the model, and writes what it computes.
    """
    out = os.fdopen(os.dup(1), "w")  # engines print what they like: to the log
    os.dup2(2, 1)

    def say(**facts: Any) -> None:
        out.write(json.dumps(facts) + "\n")
        out.flush()

    if not sys.stdin.readline():
        return  # nobody is there any more
    try:
        given = Job(**json.loads(job))
        with np.load(given.inputs) as arrays:
            values = [arrays[f"arr_{number}"] for number in range(len(given.names))]
        run = ENGINES[given.engine](given, dict(zip(given.names, values, strict=True)))
        results = run()
        np.savez(outputs, *results)
        for _ in range(_WARM_RUNS):
            run()
    except Exception as error:  # an engine raises of any class for a model that it does not take
        say(why=f"{type(error).__name__}: {first_line(error)[:300]}")
        return
    say(seconds=[])
    while sys.stdin.readline():
        times: list[float] = []
        end = time.perf_counter() + _TURN_SECONDS
        while time.perf_counter() < end or len(times) < _FEWEST_RUNS:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        say(seconds=times)


def refusal(run: Path, summary: Mapping[str, Any]) -> str | None:
    """Why a run cannot be compared with other engines; None: it can."""
    target, model = summary.get("target"), summary.get("model")
    if "model" not in summary:
        return "the run is older than comparisons; run the same tune command again"
    if not isinstance(target, Mapping) or target.get("kind") != "llvm":
        return "other engines are compared on CPUs only"
    if model is None and not (run / TORCH_MODEL).exists():
        return "other engines run ONNX models and torch modules: they cannot read this model"
    if not (run / LIBRARY).exists():
        return f"the run has no library {run / LIBRARY}; finish it first"
    facts = read_metadata(run / LIBRARY)
    if facts.get("measured_on") or facts.get("unsafe"):
        return f"the library is not run here: {facts.get('unsafe') or facts['measured_on']}"
    if model is not None and not _unchanged(*model):
        return f"{model[0]} is not there any more, or has been changed since the run"
    types = {spec["dtype"] for spec in (*facts["inputs"], *facts["outputs"])}
    other = sorted(name for name in types if numpy_dtype(name).isbuiltin != 1)
    return f"{other[0]} cannot be handed to other engines" if other else None


def _unchanged(path: str, digest: str) -> bool:
    return Path(path).exists() and file_hash(Path(path)) == digest


def readers(summary: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Of some engines, those that read a run's model."""
    of_torch = summary["model"] is None
    return [name for name in names if (name in OF_TORCH) == of_torch]


def compare_run(
    run: Path, summary: Mapping[str, Any], engines: Sequence[str] | None = None
) -> list[Timing]:
    """Time a run's model in other engines and its library, each on the target's cores.

    Parameters
    ----------
    run, summary
        Work-dir, and what it was.
    engines
        The others, by name; None: those that are installed and read the model.

    Raises
    ------
    OptionError
        An engine is unknown or not installed, or cannot read the model, or the run cannot be
        compared.
    """
    why = refusal(run, summary)
    if why is not None:
        raise OptionError(why)
    others = readers(summary, installed(engines))
    for name in engines or ():
        if name not in others:
            kind = "torch modules" if name in OF_TORCH else "ONNX models"
            raise OptionError(f"{name} runs {kind}, and this run's model is none; leave it out")
    with tempfile.TemporaryDirectory() as name:
        jobs = jobs_of(run, summary, (*others, OURS), Path(name))
        return compared(jobs, Path(name))


def jobs_of(
    run: Path, summary: Mapping[str, Any], engines: Sequence[str], folder: Path
) -> dict[str, Job]:
    """What each engine runs of a run that can be compared; files are written into a folder."""
    from pruner_ms.integration.onnx_file import TensorSpec
    from pruner_ms.integration.verify import random_inputs
    from pruner_ms.tvm_compat.threads import threads_for

    library, path = run / LIBRARY, run / TORCH_MODEL
    specs = [
        TensorSpec(spec["name"], tuple(spec["shape"]), spec["dtype"])
        for spec in read_metadata(library)["inputs"]
    ]
    if summary["model"] is not None:
        path = folder / "model.onnx"
        _write_as_read(path, summary, {spec.name: spec.shape for spec in specs})
    # positive, as where a variance may be among them
    arrays = random_inputs(specs, np.random.default_rng(int(summary["seed"])), positive=True)
    threads, inputs = threads_for(summary["target"].get("num-cores")), folder / "inputs.npz"
    np.savez(inputs, *arrays)
    names = tuple(spec.name for spec in specs)
    files = (str(path), str(library), str(inputs))
    return {engine: Job(engine, *files, names, threads) for engine in engines}


def _write_as_read(path: Path, summary: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """The ONNX model of a run as the tuner read it, in fixed shapes."""
    import onnx

    from pruner_ms.integration.onnx_model import as_read

    model, _ = as_read(summary["model"][0], shapes, int(summary["seed"]))
    onnx.save(model, str(path), save_as_external_data=model.ByteSize() > _ONE_MESSAGE)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
