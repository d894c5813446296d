"""The formula for GPUs, CUDA cores and TensorCores; begin with `latency`.

`occupancy` says how many warps share a multiprocessor, `memory` what their accesses cost, `guards`
the conditions of padded copies, `spills` registers that do not suffice, `kernels` what several
terms and kernels come to. Terms of TensorCores are in `tensorcore/terms.py`.
"""
