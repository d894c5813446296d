"""A small network that is stripped like the bundled ones, and what is made of it once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from pruner_ms.integration.onnx_model import LoadedModel, load_model
from pruner_ms.integration.relax import TaskInfo, compile_model, extract_tasks, lower
from pruner_ms.tvm_compat.paths import Schedule, Target, Trace, ms

FLOAT = TensorProto.FLOAT


def constant(name: str, value: Any, dtype: Any = np.int64) -> Any:
    return numpy_helper.from_array(np.array(value, dtype=dtype), name)


def model_of(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], held: list[Any], opset: int = 13
) -> Any:
    graph = helper.make_graph(nodes, "g", inputs, outputs, held)
    domains = {node.domain for node in nodes} - {""}
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def tensor(name: str, shape: Any, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def filled(name: str, shape: list[int], value: float) -> tuple[Any, Any]:
    """A constant-filled tensor as the bundled models have it: its shape, and the node."""
    what = numpy_helper.from_array(np.array([value], np.float32))
    node = helper.make_node("ConstantOfShape", [name + "__SHAPE"], [name], value=what)
    return constant(name + "__SHAPE", shape), node


def stripped_network() -> Any:
    """conv - relu - conv - global average - softmax, all weights constant."""
    tensors = [
        filled("w1", [16, 3, 3, 3], 0.01),
        filled("b1", [16], 0.5),
        filled("w2", [24, 16, 3, 3], 0.02),
    ]
    nodes = [node for _, node in tensors] + [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Dropout", ["r1"], ["d1"], ratio=0.5),
        helper.make_node("Conv", ["d1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c2"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Softmax", ["f"], ["y"], axis=1),
    ]
    held = [shape for shape, _ in tensors]
    inputs = [tensor("x", [1, 3, 12, 12]), tensor("w1__SHAPE", [4], TensorProto.INT64)]
    return model_of(nodes, inputs, [tensor("y", [1, 24])], held, opset=9)


@dataclass(frozen=True)
class Net:
    """A network on its way to an executable."""

    loaded: LoadedModel
    lowered: Any
    tasks: tuple[TaskInfo, ...]
    plain: Any


@pytest.fixture(scope="session")
def target() -> Any:
    return Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})


@pytest.fixture(scope="session")
def stripped_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "stripped.onnx"
    save(stripped_network(), str(path))
    return path


def net_of(path: Path, target: Any, *, replace: bool) -> Net:
    loaded = load_model(str(path), replace=replace)
    lowered = lower(loaded.mod, target)
    return Net(
        loaded, lowered, extract_tasks(lowered, target).tasks, compile_model(lowered, target)
    )


@pytest.fixture(scope="session")
def net(stripped_file: Path, target: Any) -> Net:
    """The network with random weights."""
    return net_of(stripped_file, target, replace=True)


@pytest.fixture(scope="session")
def constant_net(stripped_file: Path, target: Any) -> Net:
    """The network with the constant weights of its file."""
    return net_of(stripped_file, target, replace=False)


def record_of(task: TaskInfo, target: Any, seconds: list[float], factor: int, database: Any) -> Any:
    """Commit a record that splits the first loop of the task's last block and runs it in parallel.

    The factor names the record, so that a test can see which one was applied.
    """
    schedule = Schedule(task.mod)
    get = getattr(schedule, "get_sblock", None) or schedule.get_block
    block = schedule.get_child_blocks(get("root"))[-1]
    loop = schedule.get_loops(block)[1]
    outer, _inner = schedule.split(loop, [None, factor])
    schedule.parallel(outer)
    trace = Trace(schedule.trace.insts, {})
    workload = database.commit_workload(task.mod)
    arguments = ms.arg_info.ArgInfo.from_entry_func(task.mod, remove_preproc=True)
    record = ms.database.TuningRecord(trace, workload, seconds, target, arguments)
    database.commit_tuning_record(record)
    return record
