"""Networks of the race: those of the `onnx` wheel by their names, a block of BERT from torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

BERT_BLOCK = "bert_block"
"""One encoder block of BERT-base at 128 tokens."""

NETWORKS = (BERT_BLOCK, "squeezenet", "resnet50", "densenet121", "inception_v1", "shufflenet")

_TOKENS, _HIDDEN, _HEADS, _INNER = 128, 768, 12, 3072


def is_network(text: str) -> bool:
    """Whether a name of a workload is a network's."""
    return text in NETWORKS


def program_of(name: str, target: Any) -> Any:
    """A network with its tasks (`pruner_ms.integration.program.Program`); weights are random.

    Parameters
    ----------
    name
        One of `NETWORKS`.
    target
        A TVM `Target`.
    """
    from pruner_ms.integration.options import TuneOptions
    from pruner_ms.integration.program import load

    model: Any = name
    if name == BERT_BLOCK:
        from pruner_ms.integration.torch import network_of

        model = network_of(*bert_block(), name)
    return load(model, target, TuneOptions(seed=0), None)


def bert_block() -> tuple[Any, tuple[Any, ...]]:
    """The encoder block as a torch module, and an input of it."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.mixed = (
                nn.Linear(_HIDDEN, _HIDDEN) for _ in range(4)
            )
            self.wider, self.back = nn.Linear(_HIDDEN, _INNER), nn.Linear(_INNER, _HIDDEN)
            self.first, self.second = nn.LayerNorm(_HIDDEN), nn.LayerNorm(_HIDDEN)

        def _heads(self, x: Any) -> Any:
            return x.view(1, _TOKENS, _HEADS, _HIDDEN // _HEADS).permute(0, 2, 1, 3)

        def forward(self, x: Any) -> Any:
            query, key, value = (self._heads(one(x)) for one in (self.query, self.key, self.value))
            scores = torch.matmul(query, key.transpose(2, 3)) / (_HIDDEN // _HEADS) ** 0.5
            seen = torch.matmul(torch.softmax(scores, dim=-1), value)
            seen = seen.permute(0, 2, 1, 3).reshape(1, _TOKENS, _HIDDEN)
            x = self.first(x + self.mixed(seen))
            return self.second(x + self.back(nn.functional.gelu(self.wider(x))))

    torch.manual_seed(0)
    return Block().eval(), (torch.rand(1, _TOKENS, _HIDDEN),)


TORCH: Mapping[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = MappingProxyType(
    {BERT_BLOCK: bert_block}
)
"""torch's module and its inputs, for the networks that it has too."""
