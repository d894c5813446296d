"""Pools of measured schedules: recording, reading, and evaluation of rankings.

A pool is a stock MetaSchedule database of one workload on one target, in two halves: "random",
sampled uniformly from the design spaces, and "evolved", found by stock evolutionary search, so that
both the landscape and its best region are covered. Pools for pretraining have a "drafted" half
instead of the latter: chosen at random among the explorer's candidates. Importing this package
imports no TVM.
"""

from __future__ import annotations
