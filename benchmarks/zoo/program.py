"""A small TIR program of the zoo, and what it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.tvm_compat.script import parsed

Arrays = list[npt.NDArray[Any]]


@dataclass(frozen=True)
class Program:
    """One PrimFunc.

    Attributes
    ----------
    make
        Makes it.
    reference
        What numpy makes of the parameters that are only read, in order: one array for each of
        `writes`, or one array. With `updates` it is given all parameters.
    writes
        Parameters that are written, by number; negative ones count from the end.
    updates
        Whether what is written depends on what was there before.
    draw
        Range of an integer parameter, by number, where 0 to 3 will not do.
    equal
        Parameters that are one and the same array.
    """

    make: Callable[[], Any]
    reference: Callable[..., Any]
    writes: tuple[int, ...] = (-1,)
    updates: bool = False
    draw: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    equal: tuple[int, int] | None = None

    def written(self, count: int) -> list[int]:
        """Parameters that are written, of so many."""
        return [i % count for i in self.writes]

    def expected(self, arrays: Sequence[npt.NDArray[Any]]) -> Arrays:
        """What is in the written parameters after the call; the arrays are as before it."""
        written = self.written(len(arrays))
        inputs = [a.copy() for i, a in enumerate(arrays) if self.updates or i not in written]
        with np.errstate(all="ignore"):
            results = self.reference(*inputs)
        results = results if isinstance(results, tuple | list) else [results]
        return [
            np.asarray(result).astype(arrays[i].dtype).reshape(arrays[i].shape)
            for i, result in zip(written, results, strict=True)
        ]

    def arrays(
        self, specs: Sequence[tuple[tuple[int, ...], str]], rng: np.random.Generator
    ) -> Arrays:
        """Random values for parameters of these shapes and dtypes; of what is written, too."""
        inputs = [
            drawn(shape, dtype, rng, self.draw.get(i)) for i, (shape, dtype) in enumerate(specs)
        ]
        if self.equal is not None:
            one, other = self.equal
            inputs[other] = inputs[one]
        return inputs


def drawn(
    shape: Sequence[int], dtype: str, rng: np.random.Generator, span: tuple[int, int] | None = None
) -> npt.NDArray[Any]:
    """Random values: normal ones, of integers 0 to 3 (eight bits: all), or those of a range."""
    from pruner_ms.integration.inputs import numpy_dtype

    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith(("int", "uint")):
        ranges = {"int8": (-128, 128), "uint8": (0, 256)}
        low, high = span or ranges.get(dtype, (0, 4))
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    values = rng.standard_normal(shape) if span is None else rng.uniform(*span, shape)
    return np.asarray(values).astype(numpy_dtype(dtype))


_HEAD = "@T.prim_func\ndef main({}):\n"


def _text(parameters: str, body: str) -> str:
    """The function of parameters such as `A 4 8, B 4 int32`, or of TVMScript's own words."""
    written = []
    for one in parameters.split(", "):
        name, *rest = one.split(" ")
        if ":" in one or not rest:
            written.append(one)
            continue
        dtype = rest.pop() if not rest[-1].isdigit() else "float32"
        dims = [d for d in rest if d.isdigit()]
        shape = "(" + "".join(f"{d}, " for d in dims) + ")"
        written.append(f'{name}: T.Buffer({shape}, "{dtype}")')
    lines = [line for line in body.splitlines() if line.strip()]
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return _HEAD.format(", ".join(written)) + "".join(f"    {line[margin:]}\n" for line in lines)


def _made(parameters: str, body: str) -> Any:
    return parsed(_text(parameters, body))


def tir(
    parameters: str, body: str, reference: Callable[..., Any], results: int = 1, **more: Any
) -> Program:
    """A program in TVMScript.

    Parameters
    ----------
    parameters
        `A 4 8, B 4 int32` for buffers of these shapes; others in TVMScript's own words.
    body
        Of the function.
    reference, more
        Of `Program`.
    results
        Parameters at the end that are written.
    """
    more.setdefault("writes", tuple(range(-results, 0)))
    return Program(partial(_made, parameters, body), reference, **more)
