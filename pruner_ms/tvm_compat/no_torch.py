"""Import TVM without torch, where torch is installed but nobody uses it.

`tvm_ffi/__init__.py` imports torch when it can, against a clash of symbols on Windows. In a worker
that is two thirds of the CPU seconds of `import tvm` (1.7 of 2.6) and half of its memory (200 of
400 MB), for each start.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_hidden(hide: bool = True) -> Iterator[None]:
    """Let `import torch` fail inside the block, unless it is there already.

    Afterwards torch can be imported as ever, but TVM will not convert its tensors: `hide` must be
    false where user code may want that.
    """
    if not hide or "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["torch"]


@contextmanager
def light_imports() -> Iterator[None]:
    """For a command that needs TVM's compiler alone: without torch, and nothing is collected.

    What is imported is no garbage, and looking for some takes a quarter of the time with torch.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch_hidden():
            yield
    finally:
        if collects:
            gc.enable()
