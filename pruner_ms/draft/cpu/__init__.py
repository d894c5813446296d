"""The formula for CPUs; begin with `latency`.

`core` costs one run of the innermost block (`draft/block.py`) on the ports of a core, `spills` what
its registers cannot hold, `traffic` the caches, `compile_cost` LLVM's time.
"""
