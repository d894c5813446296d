"""Effects of postprocessors and TVM's lowering passes on a state, row by row.

Begin with `postprocs` (those of each kind of target, in order) and `build_program`, which turns the
state after them into a `SketchProgram`. `rewrite_layout` packs arguments, `compaction` sizes
buffers, `spans` computes how loops move an access.

GPUs: `thread_lift`, `cross_thread`; memory and verdict in `gpu_memory`, with `fragment_memory`,
`copy_padding`, `alignment` and `gpu_vectors` (programs that are rejected, or do not build).
"""

from __future__ import annotations
