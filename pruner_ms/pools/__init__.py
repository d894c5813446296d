"""Pools of measured schedules: recording them, reading them safely, judging rankings by them.

A pool is a stock MetaSchedule database of one workload on one target, in two halves: "random",
sampled uniformly from the design spaces, and "evolved", found by stock evolutionary search, so that
both the landscape and its best region are covered. Pools for pretraining have a "drafted" half in
place of the latter: chosen at random among what the draft keeps. Importing this package imports no
TVM.
"""

from __future__ import annotations
