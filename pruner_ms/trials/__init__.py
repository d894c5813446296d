"""Building and measuring candidates in persistent worker processes.

Usable with any MetaSchedule strategy, independent of the search. See `builder.PersistentBuilder`,
`runner.PersistentRunner`, `failures` and `checks`; importing this package imports no TVM.
"""

from __future__ import annotations
