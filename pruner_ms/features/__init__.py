"""Features of a `SketchProgram` for the learned cost models, equal for closed form and oracle.

`statement` and `dataflow` hold the maths, `levels` the choice of loop levels that both share,
`pack` the array formats, `extractor` the adapter for MetaSchedule.
"""

from __future__ import annotations
