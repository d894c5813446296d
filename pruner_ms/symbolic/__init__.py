"""Schedules as arrays: a design-space trace becomes a `SketchProgram` over many rows.

Begin with `space` (the design spaces of a task, rows of decisions, conversion to and from traces),
then `interpret` (a trace is compiled once and run on arrays) and `program` (the result that other
rooms use: statements, loops, buffers, accesses).

Folders, each described in its `__init__`: `index` < `primitives` < `lowering`, and `oracle`,
against which they are tested.

Notation
--------
row        one choice of all decisions; N rows are interpreted at once
number     an int (the same in all rows) or an integer array (N,); masks likewise
leaf       an atomic iteration variable: splitting a loop replaces its leaf by several
form       leaf -> stride, the constant under None
supported  bool (N,): rows in which the program is exact; the others are not drafted
"""

from __future__ import annotations
