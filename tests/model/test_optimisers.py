"""The optimiser is torch's own, without what torch's class imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from pruner_ms.model import optimization  # noqa: E402
from pruner_ms.model.optimization import OPTIMISERS, AdamW, cycled, one_cycle  # noqa: E402
from pruner_ms.model.recipe import OPTIMISERS as NAMES  # noqa: E402
from pruner_ms.model.recipe import Recipe  # noqa: E402


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))


def groups(net):
    matrices = [p for p in net.parameters() if p.ndim >= 2]
    others = [p for p in net.parameters() if p.ndim < 2]
    return [{"params": matrices, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("steps", [4, 9, 40, 80])
def test_a_training_is_that_of_torchs_classes(steps, fused, monkeypatch):
    if fused and not optimization.FUSED:
        pytest.skip("this torch has no fused kernel for the CPU")
    monkeypatch.setattr(optimization, "FUSED", fused)
    ours, theirs = network(), network()
    own = AdamW(groups(ours), 3e-3)
    other = torch.optim.AdamW(groups(theirs), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(other, 3e-3, total_steps=steps)
    x = torch.randn(32, 5)
    for pace in one_cycle(steps, 3e-3):
        cycled(own, pace)
        assert other.param_groups[0]["lr"] == pytest.approx(pace.rate, rel=1e-12)
        assert other.param_groups[1]["betas"] == pytest.approx((pace.momentum, 0.999), rel=1e-12)
        for net, optimiser in ((ours, own), (theirs, other)):
            optimiser.zero_grad()
            (net(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
            optimiser.step()
        if schedule.last_epoch + 1 < steps:
            schedule.step()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    assert not torch.equal(next(iter(ours.parameters())), next(iter(network().parameters())))


def test_a_parameter_without_a_gradient_stays():
    net = network()
    frozen = net[0].weight
    frozen.requires_grad_(False)
    before = frozen.clone()
    optimiser = AdamW(groups(net), 0.1)
    net(torch.randn(4, 5)).sum().backward()
    optimiser.step()
    assert torch.equal(frozen, before)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there_and_may_be_cycled(name):
    net = network()
    optimiser = OPTIMISERS[name](net, Recipe(optimiser=name))
    cycled(optimiser, next(one_cycle(10, 1.0)))
    assert optimiser.param_groups[0]["lr"] == pytest.approx(1.0 / 25)


@pytest.mark.heavy
def test_a_training_imports_no_compiler():
    code = (
        "import sys, torch\n"
        "from pruner_ms.model.optimization import OPTIMISERS\n"
        "from pruner_ms.model.recipe import Recipe\n"
        "net = torch.nn.Linear(2, 1)\n"
        "optimiser = OPTIMISERS[Recipe().optimiser](net, Recipe())\n"
        "net(torch.ones(1, 2)).sum().backward()\n"
        "optimiser.step()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
