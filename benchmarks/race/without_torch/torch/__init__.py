"""No torch: this folder on the path hides it from a tuner that has no use for it.

TVM's ffi imports torch wherever it is installed, and with its 800 modules around, importing the
tensor intrinsics (in each of stock's builder's workers, each time) takes 1.4 times as long.
"""

from __future__ import annotations

raise ModuleNotFoundError("torch is hidden from this tuner", name="torch")
