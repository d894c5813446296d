"""Traces that would end the process are told before TVM sees them; mutated ones, and by hand."""

from __future__ import annotations

import copy
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pruner_ms.files import strict_loads
from pruner_ms.records.tables import check_record, parse_line, read_lines
from pruner_ms.tvm_compat.safe_traces import check_trace

DATA = Path(__file__).parent / "data"
MUTATIONS = 120
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 2**63 - 1, 2**63, 0.5, 1e300, 5e-324, "", "None", "b0", "l1"),
    *('"x"', '"', "{}", '{"a": 1}', "é", "\ud800", [], [None], [[1], [2]], {}, {"a": None}),
    *([[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]], [1] * 500),
)


def written(version: str) -> list[Any]:
    """Traces that a TVM wrote: of CPUs and GPUs, with tiles, layouts and annotations."""
    lines = (DATA / version / "database_tuning_record.json").read_text().splitlines()
    return [json.loads(line)[1][0] for line in lines]


def small() -> Any:
    """A trace with a split, a decision, a layout's padding and an annotation."""
    return [
        [
            ["GetSBlock", [], ["C", "main"], ["b0"]],
            ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
            ["SamplePerfectTile", ["l1"], [2, 16], ["v4", "v5"]],
            ["Split", ["l1", "v4", "None"], [1, 1], ["l6", "l7"]],
            ["Annotate", ["b0", 1], ["meta_schedule.parallel"], []],
            ["TransformLayout", ["b0", graph()], [0, 1, None, True], []],
        ],
        [[2, [4, 16]]],
    ]


def graph(**changes: Any) -> str:
    """The index map `lambda i: [i]`; `changes` are fields of nodes, such as `Var_ty`."""
    nodes: list[Any] = [
        {"type": "None"},
        {"type": "ir.PrimType", "data": {"span": 0, "dtype": "int32"}},
        {"type": "ffi.String", "data": "i"},
        {"type": "ir.Var", "data": {"span": 0, "ty": 1, "name": 2}},
        {"type": "ffi.Array", "data": [3]},
        {
            "type": "tirx.IndexMap",
            "data": {"initial_indices": 4, "final_indices": 4, "inverse_index_map": 0},
        },
    ]
    for change, value in changes.items():
        kind, _, name = change.partition("_")
        node = next(node for node in nodes if node["type"].endswith(kind))
        if name:
            node["data"][name] = value
        else:
            node["data"] = value
    return json.dumps({"root_index": 5, "nodes": nodes})


@pytest.mark.parametrize("version", ["tvm-0.17", "tvm-0.25", "tvm-0.27"])
def test_whatever_tvm_writes_is_taken(version: str) -> None:
    traces = written(version)
    assert traces
    for trace in [*traces, small()]:
        check_trace(trace)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((0, 4, 2), [None], "Annotate (instruction 4): there is a null"),
        ((0, 4, 1), [None, 1], "a null"),
        ((0, 4, 1, 1), {"a": [None]}, "a null"),
        ((0, 1, 3, 0), None, "a null"),
        ((0, 5, 2, 0), None, "a null"),
        ((1, 0, 1), None, "a null"),
        ((1, 0, 1), [4, None], "a null"),
        ((1, 0, 1), [4, 0], "a tile"),
        ((1, 0, 1), [4, -4], "a tile"),
        ((1, 0, 0), -1, "no instruction"),
        ((1, 0, 0), True, "no instruction"),
        ((0, 1, 1, 0), "None", "lacks a block or a loop"),
        ((0, 3, 1, 0), "None", "lacks a block or a loop"),
        ((0, 2, 2, 0), 2**63, "out of range"),
        ((0, 2, 2, 0), 3, "2 tiles by the numbers"),
        ((0, 2, 2, 1), 0, "2 tiles by the numbers"),
        ((0, 2), ["SamplePartitionedTile", ["l1"], [2, 9, 4], ["v4", "v5"]], "2 tiles by"),
        ((0, 2), ["SamplePartitionedTile", ["l1"], [2, 0, 0], ["v4", "v5"]], "2 tiles by"),
        ((0, 4, 1, 1), 5e-324, "out of range"),
        ((0, 4, 1, 1), "\ud800", "surrogates"),
        ((0, 0), [[]], "four parts"),
        ((0, 5, 1, 1), "{}", "no JSON graph"),
        ((0, 5, 1, 1), graph(IndexMap_inverse_index_map=5), "refers to 5"),
        ((0, 5, 1, 1), graph(IndexMap_final_indices=-1), "refers to -1"),
        ((0, 5, 1, 1), graph(Array=[1]), "refers to 1"),
        ((0, 5, 1, 1), graph(Array=[None]), "refers to None"),
        ((0, 5, 1, 1), graph(Var_span=2), "refers to 2"),
        ((0, 5, 1, 1), graph(Var_ty=0), "refers to 0"),
        ((0, 5, 1, 1), graph().replace('"root_index": 5', '"root_index": 3'), "no index map"),
    ],
)
def test_what_would_end_the_process_is_told(place: Any, value: Any, words: str) -> None:
    trace = small()
    put(trace, place, value)
    with pytest.raises(ValueError, match=re.escape(words)):
        check_trace(trace)
    with pytest.raises(ValueError):
        check_record([0, [trace, [1e-3], {"kind": "llvm"}, []]], 1)


@pytest.mark.parametrize(
    ("part", "value"), [(2, {"kind": None}), (3, [None]), (3, [["TENSOR", "float32", [None]]])]
)
def test_a_null_in_any_other_part_of_a_record_is_told(part: int, value: Any) -> None:
    record = [small(), [1e-3], {"kind": "llvm"}, [["TENSOR", "float32", [16]]]]
    check_record([0, record], 1)
    record[part] = value
    with pytest.raises(ValueError, match="null"):
        check_record([0, record], 1)


@pytest.mark.parametrize(
    "line",
    [
        b'\xef\xbb\xbf["1", "x"]',
        '["1", "x"]'.encode("utf-16"),
        '["1", "x"]'.encode("utf-16-le"),
        b'["1", "\\u0078"]',
        b"[1e999]",
        b"[" * 2000 + b"]" * 2000,
    ],
)
def test_json_that_only_python_reads_costs_its_line(line: bytes) -> None:
    good = '["1", "é \\\\u and \\n"]'.encode()
    lines = read_lines(good + b"\n" + line + b"\n" + good + b"\n", parse_line)
    assert [one.reason is None for one in lines if one.value == ["1", "é \\u and \n"]] == [True] * 2
    assert any(one.reason for one in lines)
    assert {one.number for one in lines if one.reason} <= {2, 3}


def test_a_number_that_no_float_holds_is_no_json() -> None:
    with pytest.raises(ValueError, match="1e999 is out of range"):
        strict_loads(b'{"a": 1e999}')


def put(value: Any, place: Any, new: Any) -> None:
    for step in place[:-1]:
        value = value[step]
    value[place[-1]] = new


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if place:
        yield place
    if isinstance(value, list | dict):
        for step in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[step], (*place, step))


def mutated(trace: Any, rng: random.Random) -> Any:
    """A trace with one value changed, left out, doubled, or exchanged for another of it."""
    mutant = copy.deepcopy(trace)
    everywhere = list(places(mutant))
    place = rng.choice(everywhere)
    holder: Any = mutant
    for step in place[:-1]:
        holder = holder[step]
    old = holder[place[-1]]
    way = rng.randrange(6)
    if way == 0:
        del holder[place[-1]]
    elif way == 1 and isinstance(holder, list):
        holder.insert(place[-1], copy.deepcopy(old))
    elif way == 2:
        other: Any = trace
        for step in rng.choice(everywhere):
            other = other[step]
        holder[place[-1]] = copy.deepcopy(other)
    elif isinstance(old, str) and old.startswith("{"):
        holder[place[-1]] = json.dumps(mutated(json.loads(old), rng))
    elif isinstance(old, int | float):
        holder[place[-1]] = rng.choice([0, -1, old + 1, -old, old * 1000, 2**40, None])
    else:
        holder[place[-1]] = copy.deepcopy(rng.choice(VALUES))
    return mutant


def survived(tvm_paths: Any, mod: Any, trace: Any) -> bool:
    """Whether a fork of this process that replays a trace ends by itself."""
    pid = os.fork()
    if pid == 0:
        try:
            schedule = tvm_paths.Schedule(mod, error_render_level="none")
            tvm_paths.Trace.apply_json_to_schedule(trace, schedule)
            tvm_paths.plain(schedule.trace.as_json())
        finally:  # whatever TVM raises: the process is there to end
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.heavy
def test_a_mutated_trace_that_is_taken_does_not_end_the_process(
    tvm_paths: Any, matmul: Any
) -> None:
    schedule = tvm_paths.Schedule(matmul, seed=1)
    get = getattr(schedule, "get_sblock", None) or schedule.get_block
    block = get("C")
    i, j, k = schedule.get_loops(block)
    outer, inner = schedule.split(i, schedule.sample_perfect_tile(i, 2, 16))
    schedule.reorder(outer, j, inner)
    schedule.transform_layout(block, ("read", 1), lambda x, y: (y // 4, x, y % 4))
    schedule.annotate(
        block, "meta_schedule.unroll", schedule.sample_categorical([1, 2], [0.5, 0.5])
    )
    schedule.cache_write(block, 0, "local")
    schedule.decompose_reduction(block, k)
    trace = json.loads(json.dumps(tvm_paths.plain(schedule.trace.as_json())))
    check_trace(trace)
    assert survived(tvm_paths, matmul, trace)
    rng = random.Random(int(os.environ["PRUNER_MS_SEED"]))
    taken = 0
    for _ in range(MUTATIONS):
        one = mutated(trace, rng)
        try:
            check_trace(one)
        except ValueError:
            continue
        taken += 1
        assert survived(tvm_paths, matmul, one), json.dumps(one)
    assert taken > MUTATIONS // 10
