"""What a network's tasks are made of before they exist: layouts, packed constants, algorithms.

Passes over Relax modules for CPUs. Each leaves what `main` takes and returns as it is.
"""
