"""torch modules in: exported, tuned, compared with torch; `torch.compile` with our backend."""

from __future__ import annotations

import json
import warnings

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from pruner_ms.errors import ModelFileError, OptionError, UnsupportedOperatorError  # noqa: E402
from pruner_ms.integration.export import read_metadata, run_exported  # noqa: E402
from pruner_ms.integration.torch import network_of, tune  # noqa: E402

TARGET = '{"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2}'
QUICK = {"trials": 8, "cost_model": "none"}


class Small(nn.Module):
    """A convolution and a linear layer, with what differs between training and inference."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(8, 4)

    def forward(self, x):
        x = self.drop(torch.relu(self.norm(self.first(x))))
        return self.last(x.mean((2, 3)))


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        self.seen.add_(1)
        return x * 2


class Foreign(nn.Module):
    def forward(self, x):
        return torch.linalg.svdvals(x)


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return Small()


@pytest.fixture(scope="module")
def x():
    return torch.randn(1, 3, 12, 12, generator=torch.Generator().manual_seed(1))


def test_a_module_is_tuned_and_compared_with_torch(small, x, tmp_path):
    small.train()
    small.drop.eval()
    result = tune(small, [x], TARGET, work_dir=tmp_path / "run", **QUICK)
    assert {c.name: c.ok for c in result.checks}["network, tuned and torch"]
    assert small.training and not small.drop.training  # as the caller left it
    facts = read_metadata(result.library)
    assert facts["model"] == "Small" and facts["inputs"][0]["shape"] == [1, 3, 12, 12]
    (got,) = run_exported(result.library, [x.numpy()])
    with torch.no_grad():
        expected = small.eval()(x)
    torch.testing.assert_close(torch.from_numpy(got), expected, rtol=1e-3, atol=1e-4)


def test_weights_are_part_of_the_hash(small, x):
    before = network_of(small, [x]).model_hash
    assert network_of(small, [x]).model_hash == before
    other = Small()
    assert network_of(other, [x]).model_hash != before


@pytest.mark.parametrize(
    ("module", "inputs", "error", "said"),
    [
        (Writes(), [torch.ones(2)], ModelFileError, "writes into seen"),
        (Foreign(), [torch.ones(2, 2)], UnsupportedOperatorError, "svd"),
        (Small(), [torch.ones(1, 5, 8, 8)], ModelFileError, "torch cannot export"),
        (Small(), [3], OptionError, "must be tensors, not 3"),
        (Small(), [], OptionError, "must be tensors"),
        (print, [torch.ones(1)], OptionError, "no torch module"),
    ],
    ids=["state", "operator", "shape", "number", "nothing", "function"],
)
def test_what_cannot_be_tuned_is_said(module, inputs, error, said):
    with pytest.raises(error, match=said):
        network_of(module, inputs)


@pytest.fixture
def options(tmp_path):
    return {"cache_dir": str(tmp_path / "cache"), "target": TARGET, **QUICK}


def test_a_compiled_module_equals_eager_and_is_kept(small, x, options, tmp_path):
    small.eval()
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        compiled = torch.compile(small, backend="pruner_ms", options=options)
        torch.testing.assert_close(compiled(x), small(x), rtol=1e-3, atol=1e-4)
        (run,) = (tmp_path / "cache" / "torch").iterdir()
        assert json.loads((run / "summary.json").read_text())["trials"]["total"] == 8
        stamp = (run / "model.so").stat().st_mtime_ns
        torch._dynamo.reset()
        with torch.no_grad():
            small.last.bias.add_(1.0)  # other weights: the same library
        again = torch.compile(small, backend="pruner_ms", options=options)
        torch.testing.assert_close(again(x), small(x), rtol=1e-3, atol=1e-4)
        assert (run / "model.so").stat().st_mtime_ns == stamp


@pytest.mark.parametrize(
    ("module", "shape", "grad", "said"),
    [
        (Foreign(), (2, 2), False, "does not know an operator"),
        (nn.Linear(2, 2), (2, 2), True, "gradients are recorded"),
    ],
    ids=["operator", "training"],
)
def test_a_graph_that_tvm_cannot_take_stays_with_torch(module, shape, grad, said, options):
    torch._dynamo.reset()
    given = torch.ones(shape) + torch.eye(2)
    with torch.set_grad_enabled(grad):
        compiled = torch.compile(module, backend="pruner_ms", options=options)
        with pytest.warns(UserWarning, match=said) as seen:
            found = compiled(given)
        torch.testing.assert_close(found, module(given))
    assert sum("pruner_ms" in str(w.message) for w in seen) == 1


def test_a_wrong_option_is_an_error(options):
    torch._dynamo.reset()
    compiled = torch.compile(nn.Linear(2, 2), backend="pruner_ms", options={"trails": 3})
    with torch.no_grad(), pytest.raises(Exception, match="no option 'trails'"):
        compiled(torch.ones(2, 2))
