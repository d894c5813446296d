"""Reading ONNX files: names of the bundled models, fixed input shapes, a hash.

Nothing here imports TVM. `onnx` is imported only when a model is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pruner_ms.errors import EnvironmentFault, ModelFileError, first_line

BUNDLED = MappingProxyType(
    {
        "squeezenet": "light_squeezenet.onnx",
        "resnet50": "light_resnet50.onnx",
        "densenet121": "light_densenet121.onnx",
        "vgg19": "light_vgg19.onnx",
        "inception_v1": "light_inception_v1.onnx",
        "shufflenet": "light_shufflenet.onnx",
        "alexnet": "light_bvlc_alexnet.onnx",
        "zfnet512": "light_zfnet512.onnx",
    }
)
"""Names of the models inside the `onnx` wheel (`onnx/backend/test/data/light`)."""

DTYPES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64"),
)
"""Types of numbers, as numpy names them. Missing are types of fewer than eight bits, of which TVM
has no tensors in ONNX's layout, and eight-bit floats: TVM's casts to and from these give other
numbers on CPUs (TVM 0.27)."""

_NO_IR_INPUTS = 4
"""From this IR version on, an initializer need not be a graph input too."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: its name in the model, its shape, its dtype as numpy names it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def text(self) -> str:
        """As the command line writes it: `x:1x3x48x192 float32`."""
        return f"{self.name}:{'x'.join(map(str, self.shape))} {self.dtype}"


def require_onnx() -> None:
    """Raise unless the `onnx` package is there.

    Raises
    ------
    EnvironmentFault
        It is not.
    """
    if find_spec("onnx") is None:
        raise EnvironmentFault("reading ONNX models needs onnx; pip install 'pruner-ms[onnx]'")


def locate(path_or_name: str) -> Path:
    """The file of a model given by path or by the name of a bundled one; a file wins.

    Raises
    ------
    ModelFileError
        There is neither a file nor a bundled model of that name.
    """
    path = Path(path_or_name).expanduser()
    if path.is_file():
        return path
    if path_or_name in BUNDLED:
        require_onnx()
        spec = find_spec("onnx.backend.test")
        folder = Path(str(spec.origin)).parent if spec is not None else Path()
        bundled = folder / "data" / "light" / BUNDLED[path_or_name]
        if bundled.is_file():
            return bundled
        raise ModelFileError(f"this onnx package does not bundle {path_or_name!r} ({bundled.name})")
    what = "is a folder" if path.is_dir() else "does not exist"
    raise ModelFileError(
        f"the model {path_or_name!r} {what}; give an .onnx file or one of {', '.join(BUNDLED)}"
    )


def read(path: Path) -> Any:
    """The ModelProto in a file, with its external data.

    Raises
    ------
    ModelFileError
        The file is damaged, is no ONNX model, or its external data are missing.
    """
    require_onnx()
    import onnx.parser
    from google.protobuf import json_format, text_format
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(str(path))
    except (
        DecodeError,
        text_format.ParseError,  # by the file's name, onnx reads text and JSON too
        json_format.ParseError,
        onnx.parser.ParseError,
    ) as error:
        why = first_line(error)
        raise ModelFileError(f"{path} is not an ONNX model, or is damaged ({why})") from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelFileError(f"{path} cannot be read: {first_line(error)}") from error
    if not model.graph.node or not model.graph.output:
        raise ModelFileError(f"{path} is not an ONNX model: it holds no operators")
    return model


def file_hash(path: Path) -> str:
    """SHA-256 of a model file and of the external data files it names."""
    import onnx

    bare = onnx.load(str(path), load_external_data=False)
    names = {
        entry.value
        for tensor in bare.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    digest = hashlib.sha256(path.read_bytes())
    for name in sorted(names):
        with (path.parent / name).open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    return digest.hexdigest()


def drop_initializer_inputs(model: Any) -> None:
    """Leave only real inputs in the graph's inputs (old exports list the weights there too)."""
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [item for item in model.graph.input if item.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, _NO_IR_INPUTS)


def dims_of(value: Any) -> list[int | str] | None:
    """Dimensions of a ValueInfo: an int, or the name of an open one; None: rank unknown.

    0 counts as open: exporters have written it, like -1, for a batch of any size.
    """
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return [
        int(dim.dim_value) if dim.dim_value > 0 else (dim.dim_param or "?")
        for dim in kind.shape.dim
    ]


def dtype_of(name: str, kind: Any) -> str:
    """Dtype of a value as numpy names it, from its TypeProto.

    Raises
    ------
    ModelFileError
        It is no tensor of numbers that TVM can compute with.
    """
    from onnx import TensorProto, helper

    which = kind.WhichOneof("value")
    number = kind.tensor_type.elem_type if which == "tensor_type" else TensorProto.UNDEFINED
    if number in set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}:
        which = str(helper.tensor_dtype_to_np_dtype(number))
        if which in DTYPES:
            return which
    raise ModelFileError(
        f"the value {name!r} of the model is of type {which or 'unknown'}; give it one of "
        f"{', '.join(DTYPES)}"
    )


def fix_shapes(model: Any, shapes: Mapping[str, Sequence[int]]) -> list[TensorSpec]:
    """Give every input its shape, in place; what was inferred from open shapes is forgotten.

    Parameters
    ----------
    model
        A ModelProto without weights among its inputs.
    shapes
        Shape of each input with open dimensions; those of others may be repeated.

    Raises
    ------
    ModelFileError
        A shape is missing, of another rank, against a fixed dimension, or of no input; or an input
        is no tensor that TVM computes with.
    """
    inputs = {item.name: item for item in model.graph.input}
    for name in shapes:
        if name not in inputs:
            raise ModelFileError(
                f"--shape names the input {name!r}; the model's inputs are {_listed(inputs)}"
            )
    dtypes = {name: dtype_of(name, item.type) for name, item in inputs.items()}
    missing = {n: i for n, i in inputs.items() if n not in shapes and _is_open(i)}
    if missing:
        raise ModelFileError(
            f"the model has inputs with open dimensions: {_listed(missing)}; "
            f"give each a shape: {' '.join(_example(i) for i in missing.values())}"
        )
    specs = [_fixed(item, shapes.get(n), dtypes[n]) for n, item in inputs.items()]
    del model.graph.value_info[:]
    return specs


def _fixed(item: Any, shape: Sequence[int] | None, dtype: str) -> TensorSpec:
    dims = dims_of(item)
    wanted = tuple(int(d) for d in (shape if shape is not None else dims or ()))
    if dims is not None:
        fits = len(dims) == len(wanted) and all(
            isinstance(old, str) or old == new for old, new in zip(dims, wanted, strict=True)
        )
        if not fits or any(d < 0 for d in wanted):
            given = "x".join(map(str, wanted))
            raise ModelFileError(f"the shape {given} does not fit the input {_described(item)}")
    kind = item.type.tensor_type
    kind.shape.ClearField("dim")
    for size in wanted:
        kind.shape.dim.add().dim_value = size
    return TensorSpec(str(item.name), wanted, dtype)


def _is_open(item: Any) -> bool:
    dims = dims_of(item)
    return dims is None or any(isinstance(d, str) for d in dims)


def _described(item: Any) -> str:
    dims = dims_of(item)
    return f"{item.name} ({'rank unknown' if dims is None else 'x'.join(map(str, dims))})"


def _listed(items: Mapping[str, Any]) -> str:
    return ", ".join(_described(item) for item in items.values())


def _example(item: Any) -> str:
    dims = dims_of(item)
    text = "..." if dims is None else "x".join(str(d) if isinstance(d, int) else "1" for d in dims)
    return f"--shape {item.name}:{text}"
