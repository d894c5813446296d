"""Tokens embedded by one product, and what torch's process-wide state may do to networks."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from pruner_ms.draft.shares import TERM_NAMES  # noqa: E402
from pruner_ms.features.dataflow import TOKEN_NAMES, TokenType  # noqa: E402
from pruner_ms.features.pack import FeatureBatch  # noqa: E402
from pruner_ms.features.statement import STATEMENT_NAMES  # noqa: E402
from pruner_ms.model.baselines.ranker import Baseline  # noqa: E402
from pruner_ms.model.network import to_inputs  # noqa: E402
from pruner_ms.model.networks import NETWORKS, build  # noqa: E402
from pruner_ms.model.pacm import ARCHS, MAX_POSITION  # noqa: E402
from pruner_ms.model.randomness import seeded  # noqa: E402
from pruner_ms.model.verifier import Verifier  # noqa: E402


def batch(rows: int, tokens: int) -> FeatureBatch:
    """Schedules with tokens of all types, and fewer and fewer of them."""
    rng = np.random.default_rng(0)
    mask = np.arange(tokens)[None] < rng.integers(1, tokens + 1, rows)[:, None]
    mask[0] = True
    return FeatureBatch(
        rng.normal(size=(rows, 3, len(STATEMENT_NAMES))),
        np.ones((rows, 3), np.bool_),
        rng.normal(size=(rows, tokens, len(TOKEN_NAMES))),
        mask,
        np.where(mask, rng.integers(0, len(TokenType) + 1, (rows, tokens)), 0),
        np.where(mask, np.cumsum(mask, axis=1) - 1, 0),
        rng.normal(size=(rows, len(TERM_NAMES))),
    )


@pytest.mark.parametrize("tokens", [1, 5, MAX_POSITION, MAX_POSITION + 8])
@pytest.mark.parametrize("drawn", [True, False])
def test_a_token_is_its_numbers_its_type_and_its_position(tokens, drawn):
    net = build("compact", 3)
    some = batch(8, tokens)
    net.normalise(some)
    inputs, branch = to_inputs(some, net.members), net.dataflow
    inputs = inputs.drawn(np.arange(8).reshape(4, 2)) if drawn else inputs
    members = torch.arange(net.members)[:, None, None]
    order = inputs.token_order.clamp(max=MAX_POSITION - 1)
    wanted = branch.embed(branch.scaler(inputs.tokens))
    wanted = wanted + branch.kind.weight[members, inputs.token_type]
    wanted = wanted + branch.position.weight[members, order]
    torch.testing.assert_close(branch._embedded(net.prepare(inputs)), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHS)
def test_the_attention_is_torchs(arch):
    branch = build(arch, 3).dataflow
    members, each = ARCHS[arch].members, ARCHS[arch].token // ARCHS[arch].heads
    mask = torch.from_numpy(batch(6, 5).token_mask)[None].expand(members, 6, 5).clone()
    mask[:, 2] = False  # may look at its padding
    hidden = torch.randn(members, 6, 5, ARCHS[arch].token, requires_grad=True)
    again = hidden.detach().clone().requires_grad_()
    output = branch._attend(hidden, mask)
    mixed = branch.mixed(again).view(members, 6, 5, 3, -1, each).permute(3, 0, 1, 4, 2, 5)
    seen = (mask | ~mask.any(dim=-1, keepdim=True))[:, :, None, None]
    attended = functional.scaled_dot_product_attention(*mixed, attn_mask=seen)
    expected = branch.out(attended.transpose(2, 3).reshape(members, 6, 5, -1))
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
    weight = torch.randn(output.shape)
    for each_way in (output, expected):
        (each_way * weight).sum().backward()
    torch.testing.assert_close(hidden.grad, again.grad, rtol=1e-4, atol=1e-5)


def test_rows_drawn_for_members_are_those_rows_without_padding_of_others():
    some = batch(8, 6)
    inputs = to_inputs(some, 1)
    rows = np.array([[5, 5, 1], [2, 7, 1]])
    drawn = inputs.drawn(rows)
    longest = int(np.flatnonzero(some.token_mask[rows].any(axis=(0, 1)))[-1]) + 1
    assert drawn.tokens.shape[:3] == (2, 3, longest)
    for member, own in enumerate(rows):
        alone = to_inputs(some.rows(own), 1)
        for got, wanted in zip(drawn.tensors(), alone.tensors(), strict=True):
            length = min(got.shape[2], wanted.shape[2])
            torch.testing.assert_close(got[member, :, :length], wanted[0, :, :length])
    assert not drawn.token_mask[:, :, longest:].any()


@contextmanager
def default_type(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(before)


CALLERS = {
    "float64": partial(default_type, torch.float64),
    "bfloat16": partial(default_type, torch.bfloat16),
    "device": partial(torch.device, "meta"),
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": partial(torch.autocast, "cpu", torch.bfloat16),
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("arch", NETWORKS)
@pytest.mark.sampled(4)
def test_what_a_caller_has_set_is_not_for_the_networks(arch, caller):
    rows = batch(24, 4)
    seconds = np.random.default_rng(1).uniform(1e-3, 1e-2, 24)

    def learned():
        model = Verifier(arch)
        model.observe("t", rows, seconds)
        scores = model.score("t", rows)
        assert model.ready("t")
        return scores

    with CALLERS[caller]():
        scores = learned()
    assert np.ptp(scores) > 0
    np.testing.assert_array_equal(scores, learned())


def test_making_a_network_touches_the_generator_of_no_gpu(monkeypatch):
    def refuse(_seed: int) -> None:
        raise AssertionError("this one seeds every device")

    monkeypatch.setattr(torch, "manual_seed", refuse)
    state = torch.default_generator.get_state()
    build("compact", 0)
    Baseline("tlp")
    assert torch.equal(state, torch.default_generator.get_state())


def test_an_error_inside_leaves_everything_as_it_was():
    state, dtype = torch.default_generator.get_state(), torch.get_default_dtype()
    with pytest.raises(KeyError), seeded(7):
        raise KeyError
    assert torch.equal(state, torch.default_generator.get_state())
    assert torch.get_default_dtype() == dtype
