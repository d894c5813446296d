"""The evolution over rows of decisions; begin with `explorer`.

`explored` has the types of input and output, `population` a generation, `seen` a set of the rows
drawn so far, `experience` the corrections that replays and builds give. `novelty` chooses a batch
from the drafted rows, and `monitor` tests whether the draft misses fast candidates.
"""
