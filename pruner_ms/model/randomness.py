"""Torch's process-wide state while a network is made: random numbers, default type and device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside the block new tensors are float32 on the CPU, and its random numbers are of the seed.

    At its end everything is as before. `torch.manual_seed` would set the caller's generator of
    every GPU, too, and a default type of 16 bits, or another device, spoils the networks.
    """
    generator, dtype = torch.default_generator, torch.get_default_dtype()
    state = generator.get_state()
    generator.manual_seed(seed)
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
        generator.set_state(state)
