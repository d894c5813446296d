"""Networks of torchvision, timm and transformers as ONNX files, their weights seeded at random.

Beside each lies what torch runs, an exported program.

    pip install -e '.[bench]' -c constraints/bench.txt
    python -m benchmarks.exported resnet18,vgg16,bert --folder runs/networks

Batch normalisations get means and variances that are none of their defaults.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

TORCHVISION = (
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "regnet_y_400mf",
    "resnet18",
    "resnet50",
    "shufflenet_v2_x1_0",
    "vgg16",
)
TOKENS = 128


def _torchvision(name: str) -> tuple[Any, tuple[Any, ...]]:
    # its compiled operators go with one build of torch; no network here calls them, but they are
    # asked for when it is imported
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    import torchvision

    return getattr(torchvision.models, name)(weights=None), (torch.randn(1, 3, 224, 224),)


def _vit() -> tuple[Any, tuple[Any, ...]]:
    import timm

    model = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    return model, (torch.randn(1, 3, 224, 224),)


def _bert(layers: int, width: int = 768) -> tuple[Any, tuple[Any, ...]]:
    from transformers import BertConfig, BertModel

    sizes = {"hidden_size": width, "intermediate_size": 4 * width}
    config = BertConfig(num_hidden_layers=layers, num_attention_heads=width // 64, **sizes)
    model = BertModel(config, add_pooling_layer=False)
    model.config.return_dict = False
    mask = torch.ones(1, TOKENS, dtype=torch.long)
    return model, (torch.randint(0, 30000, (1, TOKENS)), mask)


NETWORKS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    **{name: partial(_torchvision, name) for name in TORCHVISION},
    "vit_tiny": _vit,
    "bert": partial(_bert, 12),
    "bert4": partial(_bert, 4),
    "bert4_narrow": partial(_bert, 4, 512),
}
"""Names, and what makes a network and its inputs."""


def export(name: str, folder: Path, seed: int = 0) -> Path:
    """Write a network as an ONNX file, and as an exported program of torch."""
    torch.manual_seed(seed)
    model, inputs = NETWORKS[name]()
    model.eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    path = folder / f"{name}.onnx"
    folder.mkdir(parents=True, exist_ok=True)
    dynamo = name.startswith("bert")
    more: dict[str, Any] = {"external_data": False} if dynamo else {}
    torch.onnx.export(model, inputs, str(path), dynamo=dynamo, opset_version=18, **more)
    torch.export.save(torch.export.export(model, inputs), path.with_suffix(".pt2"))
    return path


def main() -> None:
    """Export what is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", help=f"of {', '.join(NETWORKS)}; with commas")
    parser.add_argument("--folder", type=Path, default=Path("runs/networks"))
    options = parser.parse_args()
    for name in options.networks.split(","):
        print(export(name, options.folder))


if __name__ == "__main__":
    main()
