"""Building and measuring candidates in worker processes that live over batches.

Usable with any MetaSchedule strategy, and knows nothing of search. The names are in
`builder.PersistentBuilder`, `runner.PersistentRunner`, `failures` and `checks`; importing this
package imports no TVM.
"""

from __future__ import annotations
