"""The oracle: a `SketchProgram` read from one schedule that TVM has made.

Begin with `lowered`. `numeric` is its arithmetic, `lowered_walk` and `lowered_gpu` read blocks and
kernels, `compare` lists differences of two programs. Nothing here imports the interpreter.
"""

from __future__ import annotations
