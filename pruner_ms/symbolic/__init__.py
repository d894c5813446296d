"""Schedules as arrays: a design-space trace becomes a `SketchProgram` over many rows.

Begin with `space` (the design spaces of a task, rows of decisions, and the way back to traces),
then `interpret` (a trace is compiled once and run on arrays) and `program` (what everybody
downstream sees: statements, loops, buffers, accesses).

Wings, each with a map of its own: `index` < `primitives` < `lowering`, and `oracle` beside them,
which they are judged by.

Notation
--------
row        one choice of all decisions; N rows are interpreted at once
number     an int (the same in all rows) or an integer array (N,); masks likewise
leaf       an atomic iteration variable: splitting a loop replaces its leaf by several
form       leaf -> stride, the constant under None
supported  bool (N,): rows of which all that is said is exact; the others are not drafted
"""

from __future__ import annotations
