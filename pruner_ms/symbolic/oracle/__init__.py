"""The oracle: a `SketchProgram` read off one schedule that TVM has made.

Begin with `lowered`. `numeric` is its arithmetic, `lowered_walk` and `lowered_gpu` read blocks and
kernels, `compare` says in what two programs differ. Nothing in this wing knows the interpreter.
"""

from __future__ import annotations
