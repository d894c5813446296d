"""Convolutions of 3x3 filters as products of transformed tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pruner_ms.errors import OptionError
from pruner_ms.integration import relax
from pruner_ms.integration.graph import winograd
from pruner_ms.integration.graph.winograd import (
    TRANSFORMS,
    Convolution,
    best_size,
    other_sizes,
)
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load
from pruner_ms.integration.rounding import reduction_length
from pruner_ms.tvm_compat import relax_paths
from pruner_ms.tvm_compat.paths import Schedule, TuneContext
from tests.support.seeds import SEED

R = relax_paths.RELAX


@pytest.mark.parametrize("m", sorted(TRANSFORMS))
def test_the_transforms_are_a_convolution(m, rng):
    line, filters = rng.standard_normal(m + 2), rng.standard_normal(3)
    at = TRANSFORMS[m]
    ours = at.back @ ((at.filters @ filters) * (at.tile @ line))
    np.testing.assert_allclose(ours, np.correlate(line, filters, "valid"), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("conv", "size"),
    [
        (Convolution(1, 56, 56, 64, 64, 1, 1), 4),
        (Convolution(1, 28, 28, 128, 128, 1, 1), 4),
        (Convolution(1, 224, 224, 3, 64, 1, 1), None),
        (Convolution(1, 55, 55, 16, 64, 1, 1), None),
        (Convolution(1, 2, 2, 512, 512, 1, 1), None),
        (Convolution(1, 7, 7, 512, 512, 1, 1), 2),
    ],
)
def test_what_is_estimated_to_win(conv, size):
    """Few channels are all transform; few pixels do not pay for larger filters."""
    assert best_size(conv) == size


def test_close_estimates_leave_a_doubt():
    at = Convolution(1, 14, 14, 256, 256, 1, 1)
    assert (best_size(at), other_sizes(at)) == (4, [2])
    assert other_sizes(replace(at, height=28, width=28)) == []
    assert other_sizes(Convolution(1, 7, 7, 512, 512, 1, 1)) == []
    # the definition is taken where winograd gains little, and may be the slower one
    assert other_sizes(Convolution(1, 55, 55, 16, 64, 1, 1)) == [4, 2]


def test_the_estimate_counts_operations():
    conv = Convolution(1, 8, 8, 1024, 1024, 1, 1)
    assert winograd.estimated(conv, None) == 2 * 9 * 64 * 1024**2
    rows, taps = 4, 36
    passes = rows * 1024 * (4 * 6**3 + 2 * 4 * 6 * (6 + 4))
    product = max(2 * taps * rows, 4 * 9.5 * taps) * 1024**2
    assert winograd.estimated(conv, 4) == product + 4 * passes


SHAPE = (2, 12, 9, 14)

BODIES: dict[str, Any] = {
    "alone": lambda conv, x: conv(x, 16),
    "bias and relu": lambda conv, x: R.op.nn.relu(R.op.add(conv(x, 16), bias(16))),
    "no padding": lambda conv, x: conv(x, 8, [0, 0, 0, 0]),
    "uneven padding": lambda conv, x: conv(x, 8, [2, 0, 1, 3]),
    "residual": lambda conv, x: R.op.add(conv(R.op.nn.relu(conv(x, 12)), 12), x),
    "gated": lambda conv, x: gated(conv(x, 20)),
    "two readers": lambda conv, x: two_readers(conv(x, 12), conv),
    "joined": lambda conv, x: R.op.concat([conv(x, 4), conv(x, 8)], 1),
    "wide": lambda conv, x: conv(x, 24),
}


def gated(y: Any) -> Any:
    return R.op.multiply(y, R.op.sigmoid(y))


def two_readers(y: Any, conv: Any) -> Any:
    return R.op.add(R.op.nn.relu(y), conv(y, 12))


def bias(channels: int) -> Any:
    values = np.random.default_rng(SEED).standard_normal((1, channels, 1, 1))
    return R.const(values.astype("float32"))


def network(body: Any) -> Any:
    random = np.random.default_rng(SEED)

    def conv(x: Any, filters: int, padding: Any = (1, 1, 1, 1)) -> Any:
        x = builder.normalize(x)
        channels = relax_paths.shape_of(x)[1]
        weights = random.standard_normal((filters, channels, 3, 3)).astype("float32")
        return builder.emit(R.op.nn.conv2d(x, R.const(weights), padding=list(padding)))

    builder = R.BlockBuilder()
    x = R.Var("x", relax_paths.tensor_type(SHAPE, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(builder.normalize(body(conv, x)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.fixture(params=sorted(TRANSFORMS))
def always(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Every convolution that can be is made one of F(m, 3)."""
    monkeypatch.setattr(winograd, "best_size", lambda conv: request.param)
    return int(request.param)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("name", BODIES)
def test_outputs_are_the_same(name, lanes, always, target, monkeypatch):
    monkeypatch.setattr(relax, "lanes_of", lambda target: lanes)
    mod = network(BODIES[name])
    image = np.random.default_rng(SEED).standard_normal(SHAPE).astype("float32")
    lowered = relax.lower(mod, target)
    assert "winograd_pack" in str(lowered) and "conv2d_n" not in str(lowered)
    plain = relax.compile_model(relax.lower(mod, target, rewrites=()), target)
    ours = relax.run_model(relax.compile_model(lowered, target), target, [image])
    theirs = relax.run_model(plain, target, [image])
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.abs(other).max())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", BODIES)
def test_transforms_have_one_design_each(name, always, target):
    """It goes along channels in vectors, on several cores, and computes the same."""
    tasks = relax.extract_tasks(relax.lower(network(BODIES[name]), target), target).tasks
    transforms = [task for task in tasks if "winograd" in task.name]
    assert {"pack", "back"} == {task.name.partition("winograd_")[2][:4] for task in transforms}
    for task in transforms:
        context = TuneContext(
            task.mod, target=target, space_generator="post-order-apply", task_name=task.name
        )
        (space,) = context.generate_design_space()
        text = str(space.mod)
        assert "T.parallel" in text and "T.vectorized" in text and "T.unroll" in text
        assert "schedule_rule" not in text.replace('"schedule_rule": "None"', "")
        replayed = Schedule(task.mod)
        space.trace.apply_to_schedule(replayed, remove_postproc=False)
        require_same(task.mod, replayed.mod, target)


def require_same(one: Any, other: Any, target: Any) -> None:
    device, random = relax_paths.device_of(target), np.random.default_rng(SEED)
    buffers = relax_paths.buffers_of(one["main"])
    shapes = [relax_paths.buffer_shape(buffer) for buffer in buffers]
    given = [random.standard_normal(shape).astype("float32") for shape in shapes]
    results = []
    for mod in (one, other):
        arrays = [relax_paths.to_device(array, device) for array in given]
        relax.build_scheduled(mod, target)["main"](*arrays)
        results.append(arrays[-1].numpy())
    limit = 1e-5 * np.abs(results[0]).max()
    np.testing.assert_allclose(results[1], results[0], rtol=0, atol=limit)


def test_it_is_rounded_as_a_longer_sum(always, target):
    tasks = relax.extract_tasks(relax.lower(network(BODIES["alone"]), target), target).tasks
    (back,) = [task for task in tasks if "back" in task.name]
    assert reduction_length(back.mod) == {2: 9, 4: 300}[always] * SHAPE[1]


OTHERS: dict[str, dict[str, Any]] = {
    "strides": {"strides": [2, 2]},
    "dilations": {"dilation": [2, 2]},
    "groups": {"groups": 4},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_stay(name, always, target):
    given = OTHERS[name]
    channels = SHAPE[1] // given.get("groups", 1)
    weights = np.ones((12, channels, 3, 3), "float32")
    mod = network(lambda conv, x: R.op.nn.conv2d(x, R.const(weights), padding=[1] * 4, **given))
    assert "winograd" not in str(relax.lower(mod, target))


def test_it_can_be_left_out(always, target):
    mod = network(BODIES["residual"])
    assert "winograd" in str(load(mod, target, TuneOptions(), None).lowered)
    without = load(mod, target, TuneOptions(winograd="off"), None)
    assert "winograd" not in str(without.lowered) and "conv2d_nhwc" in str(without.lowered)
    with pytest.raises(OptionError, match="winograd='on' cannot be used; give auto or off"):
        TuneOptions(winograd="on")


@pytest.mark.heavy
def test_a_work_dir_begun_without_goes_on_without(always, target, tmp_path):
    import pruner_ms

    mod = network(BODIES["alone"])
    first = pruner_ms.tune(mod, target, trials=2, winograd="off", work_dir=tmp_path / "run")
    assert not any("winograd" in task.name for task in first.tasks)
    again = pruner_ms.tune(mod, target, trials=3, work_dir=tmp_path / "run")
    assert [task.name for task in again.tasks] == [task.name for task in first.tasks]
    assert any("was begun without winograd: it goes on" in note for note in again.notes)


def test_operators_by_name_are_those_of_the_model(always, target):
    program = load(network(BODIES["residual"]), target, TuneOptions(ops=("conv2d",)), None)
    assert sum(task.weight for task in program.tasks) == 2
    named = load(network(BODIES["residual"]), target, TuneOptions(ops=("winograd",)), None)
    assert named.tasks and all("winograd" in task.name for task in named.tasks)


@pytest.mark.parametrize("rewrites", ["winograd", ("winograd",), ("layouts", "nothing")])
def test_rewrites_that_cannot_be_are_refused(rewrites, target):
    names = "layouts, winograd, joining, products, spreading"
    with pytest.raises(OptionError, match=f"{names} in this order"):
        relax.lower(network(BODIES["alone"]), target, rewrites=rewrites)
    assert "conv2d_nhwc" in str(relax.lower(network(BODIES["alone"]), "cpu", rewrites="layouts"))


def test_options_name_all_rewrites():
    from pruner_ms.integration import options

    assert tuple(relax.REWRITES) == options.REWRITES
