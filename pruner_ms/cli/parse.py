"""What users type for shapes and lists."""

from __future__ import annotations

from collections.abc import Sequence

from pruner_ms.errors import OptionError


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Input shapes from texts such as `x:1x3x48x192`; the input's name may hold colons.

    Raises
    ------
    OptionError
        A text has no name or no shape, a dimension is no number, or a name is twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, dims = text.rpartition(":")
        parts = dims.lower().split("x")
        if not colon or not name or not all(p.isdecimal() for p in parts):
            raise OptionError(f"--shape {text!r} is no shape; write it like input:1x3x224x224")
        if name in shapes:
            raise OptionError(f"--shape names the input {name!r} twice")
        shapes[name] = tuple(int(p) for p in parts)
    return shapes


def parse_names(text: str | None, option: str = "--ops") -> tuple[str, ...] | None:
    """Names from a list with commas; None for none given."""
    if text is None:
        return None
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        example = "conv2d,dense" if option == "--ops" else "onnxruntime,openvino"
        raise OptionError(f"{option} {text!r} names nothing; write it like {example}")
    return names
