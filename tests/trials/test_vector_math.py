"""exp and erf as vector code: in TVM's builds, in the builder's, and nowhere unasked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

import pruner_ms
from pruner_ms.elementary import FORMULAS
from pruner_ms.hardware import hardware_for
from pruner_ms.trials.builder import PersistentBuilder
from pruner_ms.tvm_compat import vector_math
from pruner_ms.tvm_compat.passes import config_for
from pruner_ms.tvm_compat.paths import (
    IRModule,
    Schedule,
    Target,
    as_tensor,
    build,
    load_json,
    ms,
    save_json,
    target_key,
    target_of_key,
    te,
    tir,
)
from pruner_ms.tvm_compat.targets import attrs_of

pytestmark = pytest.mark.skipif(
    not vector_math.available(), reason="this TVM has no switch for rules of lowering"
)

SIZE = 1003
LIBM = (b"expf", b"erff")
"""What an object file names when it calls the mathematical library."""

RANGES = {
    "exp": ((-103.9, -80.0), (-80.0, 0.0), (0.0, 88.7)),
    "erf": ((-1.0, 1.0), (-5.0, -0.9), (0.9, 5.0), (-1e-30, 1e-30)),
}

EXACT = {
    "exp": np.exp,
    "erf": special.erf,
    "tanh": np.tanh,
    "sigmoid": special.expit,
}


@pytest.fixture(scope="module")
def target() -> Any:
    return Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})


def kernel(name: str, dtype: str = "float32", lanes: int = 1) -> Any:
    """A module that computes one function of every element."""
    x = te.placeholder((SIZE,), dtype, "x")
    y = te.compute((SIZE,), lambda i: getattr(tir, name)(x[i]), "y")
    schedule = Schedule(IRModule({"main": te.create_prim_func([x, y])}))
    if lanes > 1:
        get = getattr(schedule, "get_sblock", None) or schedule.get_block
        (loop,) = schedule.get_loops(get("y"))
        schedule.vectorize(schedule.split(loop, [None, lanes])[1])
    return schedule.mod


def results(library: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    given, got = as_tensor(x), as_tensor(np.zeros_like(x))
    library["main"](given, got)
    return np.asarray(got.numpy())


def object_of(library: Any, folder: Any) -> bytes:
    path = folder / "found.o"
    library.write_to_file(str(path), "o")
    return bytes(path.read_bytes())


@pytest.mark.parametrize("lanes", [1, 8, 12])
@pytest.mark.parametrize("name", EXACT)
def test_a_build_for_it_computes_the_same_without_the_library(
    name: str, lanes: int, target: Any, tmp_path: Any
) -> None:
    mod = kernel(name, lanes=lanes)
    x = np.linspace(-12, 12, SIZE, dtype=np.float32)
    plain = build(mod, target=target)
    fast = build(mod, target=pruner_ms.vector_math(target))
    assert any(call in object_of(plain, tmp_path) for call in LIBM)
    assert not any(call in object_of(fast, tmp_path) for call in LIBM)
    exact = EXACT[name](x.astype(np.float64))
    # tanh is TVM's own quotient of exponentials: near 0 it loses digits, whoever computes exp
    limits = {"rtol": 1e-6, "atol": 2e-7 if name == "tanh" else 0.0}
    np.testing.assert_allclose(results(fast, x), exact, **limits)
    np.testing.assert_allclose(results(plain, x), exact, **limits)


@pytest.mark.parametrize("name", FORMULAS)
def test_of_a_float64_nothing_is_cut(name: str, target: Any) -> None:
    x = np.linspace(-6, 6, SIZE)
    library = build(kernel(name, "float64"), target=pruner_ms.vector_math(target))
    got = results(library, x)
    np.testing.assert_allclose(got, EXACT[name](x), rtol=1e-14)


@pytest.mark.parametrize("name", FORMULAS)
def test_compiled_code_is_as_exact_as_the_formulas(name: str, target: Any) -> None:
    library = build(kernel(name, lanes=8), target=pruner_ms.vector_math(target))
    for low, high in RANGES[name]:
        x = np.linspace(low, high, SIZE, dtype=np.float32)
        exact = EXACT[name](x.astype(np.float64))
        off = np.abs(results(library, x).astype(np.float64) - exact)
        assert (off / np.spacing(np.abs(exact).astype(np.float32))).max() <= 2
    odd = np.zeros(SIZE, np.float32)
    odd[:5] = np.nan, np.inf, -np.inf, 1e30, -1e30
    expected = [np.nan, 1, -1, 1, -1] if name == "erf" else [np.nan, np.inf, 0, np.inf, 0]
    np.testing.assert_array_equal(results(library, odd)[:5], np.array(expected, np.float32))


def test_only_cpus_that_may_not_reorder_sums_have_it(target: Any) -> None:
    marked = pruner_ms.vector_math(target)
    assert vector_math.config_of(marked) == {vector_math.SWITCH: True}
    assert vector_math.config_of(target) == {}
    # what our own builds ask, whether TVM's are watched or not
    assert config_for(marked, False) == config_for(marked, True) == {vector_math.SWITCH: True}
    assert config_for(target, False) == {}
    assert pruner_ms.vector_math(marked) is marked
    assert vector_math.called(marked).export() == target.export()
    loose = Target({"kind": "llvm", "fast-math": True})
    for other in (Target({"kind": "cuda", "arch": "sm_80"}), loose):
        assert pruner_ms.vector_math(other) is other


def test_it_is_another_device_to_records_and_the_same_after_json(target: Any) -> None:
    marked = pruner_ms.vector_math(target)
    assert target_key(marked) != target_key(target)
    assert target_key(load_json(save_json(marked))) == target_key(marked)
    again = target_of_key(f"task@{target_key(marked)}")
    assert target_key(again) == target_key(marked)
    assert hardware_for(attrs_of(again)).core.vector_math
    assert not hardware_for(attrs_of(target)).core.vector_math


@pytest.mark.parametrize("wanted", [True, False])
def test_the_builder_builds_for_the_target(wanted: bool, target: Any) -> None:
    builder = PersistentBuilder(max_workers=1)
    target = pruner_ms.vector_math(target) if wanted else target
    (result,) = builder.build([ms.builder.BuilderInput(kernel("exp", lanes=8), target)])
    assert result.error_msg is None
    with open(result.artifact_path, "rb") as artifact:
        assert (b"expf" in artifact.read()) is not wanted
    builder.close()
