"""The evolution over rows of decisions; begin with `explorer`.

`explored` has what goes in and out, `population` a generation, `seen` the rows that were there
already, `experience` what replays and builds taught. Of the drafted rows `novelty` chooses a batch,
and `monitor` tests whether the draft misses fast candidates.
"""
