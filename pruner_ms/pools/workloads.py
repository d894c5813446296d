"""The workloads that pools are recorded of, and operators by a written specification."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import Any

from pruner_ms.dtypes import BY_ANY_NAME, DTYPES
from pruner_ms.errors import OptionError
from pruner_ms.records.archive import SUFFIX

DEFAULT, TENSORCORE = "post-order-apply", "cuda-tensorcore"
"""MetaSchedule's names of the two stock generators of design spaces."""

OUT_DTYPES: Mapping[str, str] = MappingProxyType(
    {row.name: row.accumulators[-1] for row in DTYPES.values() if row.accumulators}
)
"""Type of the operands, and of what is accumulated."""


@dataclass(frozen=True)
class Workload:
    """An operator of a shape.

    Attributes
    ----------
    name
        Of the pool.
    function, shape
        TVM's function in `meta_schedule/testing/te_workload.py`, and its positional arguments.
    dtype
        Of the operands.
    space
        The generator of its design spaces.
    kinds
        Kinds of target it is recorded on.
    """

    name: str
    function: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    space: str = DEFAULT
    kinds: tuple[str, ...] = ("llvm", "cuda")

    def func(self) -> Any:
        """The PrimFunc.

        Raises
        ------
        OptionError
            TVM's function does not take the shape or the type, or a tensor would be empty.
        """
        from pruner_ms.tvm_compat.paths import te, te_workload

        types = {"in_dtype": self.dtype, "out_dtype": OUT_DTYPES[self.dtype]}
        make = getattr(te_workload, self.function)
        if self.dtype != "float32" and "in_dtype" not in signature(make).parameters:
            raise OptionError(
                f"{self.name}: TVM's {self.function} is of float32 only; leave {self.dtype} out"
            )
        try:
            tensors = make(*self.shape, **(types if self.dtype != "float32" else {}))
            self._require_elements(tensors)
            return te.create_prim_func(list(tensors))
        except (TypeError, ValueError, RuntimeError, AttributeError) as error:
            first = (str(error).strip().splitlines() or [type(error).__name__])[-1][:160]
            raise OptionError(f"{self.name} is no {self.function}: {first}; {HOW}") from error

    def _require_elements(self, tensors: Sequence[Any]) -> None:
        # TVM takes a kernel larger than the image, and fails much later
        for shape in (tuple(int(size) for size in tensor.shape) for tensor in tensors):
            if min(shape, default=1) < 1:
                raise OptionError(
                    f"{self.name} has a tensor of {'x'.join(map(str, shape))}, which holds "
                    "nothing; give larger sizes, a smaller kernel or another padding"
                )


def _tensorcore(name: str, function: str, *shape: int) -> Workload:
    return Workload(f"tc_{name}", function, shape, "float16", TENSORCORE, ("cuda",))


WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        workload.name: workload
        for workload in (
            Workload("gmm_512", "matmul", (512, 512, 512)),
            Workload("gmm_1024", "matmul", (1024, 1024, 1024)),
            Workload("gmm_128x768x3072", "matmul", (128, 768, 3072)),
            Workload("c2d_56_64", "conv2d_nhwc", (1, 56, 56, 64, 64, 3, 1, 1)),
            Workload("c2d_14_256", "conv2d_nhwc", (1, 14, 14, 256, 256, 3, 1, 1)),
            Workload("cbr_28_128", "conv2d_nhwc_bn_relu", (1, 28, 28, 128, 256, 1, 2, 0)),
            Workload("dep_112_32", "depthwise_conv2d_nhwc", (1, 112, 112, 32, 3, 1, 1)),
            Workload("tbg_128_12_64", "transpose_batch_matmul", (1, 128, 12, 64)),
            Workload("sfm_512", "softmax_mn", (512, 512)),
            Workload("nrm_1024", "norm_bmn", (1, 1024, 1024)),
            _tensorcore("gmm_1024", "matmul", 1024, 1024, 1024),
            _tensorcore("gmm_4096", "matmul", 4096, 4096, 4096),
            _tensorcore("gmm_128x2304x768", "matmul", 128, 2304, 768),
            _tensorcore("gmm_128x768x3072", "matmul", 128, 768, 3072),
            _tensorcore("c2d_28_128", "conv2d_nhwc", 16, 28, 28, 128, 128, 3, 1, 1),
            _tensorcore("bmm_12_128_64", "batch_matmul_nkkm", 12, 128, 64, 128),
        )
    }
)
"""By name."""

OPERATORS = (
    "batch_matmul_nkkm",
    "conv1d_nlc",
    "conv2d_capsule_nhwijc",
    "conv2d_nchw",
    "conv2d_nchw_bias_bn_relu",
    "conv2d_nhwc",
    "conv2d_nhwc_bn_relu",
    "conv2d_transpose_nhwc",
    "conv2d_winograd_nhwc",
    "conv3d_ndhwc",
    "depthwise_conv2d_nhwc",
    "matmul",
    "matmul_relu",
    "max_pool2d_nchw",
    "norm_bmn",
    "softmax_mn",
    "transpose_batch_matmul",
)
"""Functions of TVM's te_workload that a specification may name."""

_SPEC = re.compile(r"(?P<function>\w+):(?P<shape>\d+(?:[,x]\d+)*)(?::(?P<dtype>\w+))?")
HOW = "write an operator like matmul:512,512,512 or conv2d_nhwc:1,28,28,64,64,3,1,1:float16"


def dtype_named(text: str) -> str:
    """A type by any of its names; another text in lower case."""
    small = text.lower()
    return BY_ANY_NAME[small].name if small in BY_ANY_NAME else small


def suggestion(text: str, names: Sequence[str]) -> str:
    """Suggestions for an unknown name: the closest ones, else all."""
    small = text.lower()
    if small in names:
        return f"did you mean {small}?"
    near = difflib.get_close_matches(small, names, n=3, cutoff=0.4) or names
    return f"use one of {', '.join(near)}"


def names_for(kind: str) -> list[str]:
    """Names of the workloads that are recorded on a kind of target."""
    return [name for name, workload in WORKLOADS.items() if kind in workload.kinds]


def workload_named(text: str, kind: str | None = None) -> Workload:
    """A workload of the table.

    Parameters
    ----------
    text
        Its name.
    kind
        Kind of target that it must be recorded on; None: any.

    Raises
    ------
    OptionError
        There is none of that name for that kind; the message names near ones.
    """
    names = list(WORKLOADS) if kind is None else names_for(kind)
    if text in names:
        return WORKLOADS[text]
    where = "" if kind is None else f" for {kind}"
    raise OptionError(f"there is no workload {text!r}{where}; {suggestion(text, names)}")


def parse_workload(text: str, others: Sequence[str] = ()) -> Workload:
    """A workload of the table, or an operator: `function:shape[:dtype]`.

    Parameters
    ----------
    others
        Operators that the caller knows besides, for hints.

    Raises
    ------
    OptionError
        It is neither.
    """
    if text.endswith(SUFFIX) or ":" not in text:
        return workload_named(text)
    function = text.partition(":")[0]
    if function not in OPERATORS:
        hint = suggestion(function, (*others, *OPERATORS))
        raise OptionError(f"there is no operator {function!r}; {hint}")
    match = _SPEC.fullmatch(text)
    if match is None:
        raise OptionError(f"{text!r} is no operator; {HOW}")
    dtype = dtype_named(match["dtype"] or "float32")
    if dtype not in OUT_DTYPES:
        raise OptionError(f"the type {dtype!r} cannot be used; use one of {', '.join(OUT_DTYPES)}")
    shape = tuple(int(n) for n in re.split("[,x]", match["shape"]))
    return Workload(text, function, shape, dtype)
