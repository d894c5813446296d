"""Tokens embedded by one product, and what torch's process-wide state may do to networks."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.draft.shares import TERM_NAMES  # noqa: E402
from pruner_ms.features.dataflow import TOKEN_NAMES, TokenType  # noqa: E402
from pruner_ms.features.pack import FeatureBatch  # noqa: E402
from pruner_ms.features.statement import STATEMENT_NAMES  # noqa: E402
from pruner_ms.model.baselines.ranker import Baseline  # noqa: E402
from pruner_ms.model.network import to_inputs  # noqa: E402
from pruner_ms.model.networks import NETWORKS, build  # noqa: E402
from pruner_ms.model.pacm import MAX_POSITION, shares_of  # noqa: E402
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
@pytest.mark.parametrize("apart", [True, False])
def test_a_token_is_its_numbers_its_type_and_its_position(tokens, apart):
    net = build("compact", 3)
    some = batch(8, tokens)
    net.normalise(some)
    inputs, branch = to_inputs(some, net.members, apart=apart), net.dataflow
    members = torch.arange(net.members)[:, None, None]
    order = inputs.token_order.clamp(max=MAX_POSITION - 1)
    wanted = branch.embed(branch.scaler(inputs.tokens))
    wanted = wanted + branch.kind.weight[members, inputs.token_type]
    wanted = wanted + branch.position.weight[members, order]
    torch.testing.assert_close(branch._embedded(inputs), wanted, rtol=1e-5, atol=1e-5)


def test_the_softmax_of_what_is_seen_is_torchs():
    generator = torch.Generator().manual_seed(0)
    match = torch.randn(6, 2, 5, 9, generator=generator) * 20
    seen = torch.rand(6, 1, 1, 9, generator=generator) > 0.5
    seen[..., 0] = True
    match[..., 0] -= 300  # what is not seen may be far larger
    match[0, ..., 1:] += 300
    ours, theirs = (match.clone().requires_grad_() for _ in range(2))
    found = shares_of(ours, seen)
    wanted = theirs.masked_fill(~seen, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-7)
    weight = torch.randn(found.shape, generator=generator)
    for each in (found, wanted):
        (each * weight).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("arch", NETWORKS)
@pytest.mark.sampled(2)
def test_a_callers_default_type_is_not_the_networks(arch, dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        model = Verifier(arch)
        rows = batch(24, 4)
        seconds = np.random.default_rng(1).uniform(1e-3, 1e-2, 24)
        model.observe("t", rows, seconds)
        scores = model.score("t", rows)
        assert torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(before)
    assert {p.dtype for p in model.trained.net.parameters()} == {torch.float32}
    assert model.ready("t") and np.isfinite(scores).all()
    again = Verifier(arch)
    again.observe("t", rows, seconds)
    np.testing.assert_array_equal(scores, again.score("t", rows))


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
