"""TVM's schedule primitives on arrays.

Begin with `state` (blocks with paths of loops, loops made of leaves) and `steps` (the table from an
instruction's kind to a function). `parse` makes the first state of a module, `trace` reads a
design space into plain tuples, `operands` reads its slots.

`moves` moves blocks (compute-at, inlining); `locations`, `trunk` and `chains` move them to sampled
locations; `refine` splits reductions, `thread_steps` binds threads, `cache_steps` and `blockize`
make copies and tiles; `edges` and `first_row` say which bounds of a padded tile TVM infers.
"""

from __future__ import annotations
