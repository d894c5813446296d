"""Contexts that isolate our networks from torch's global state: modes, dtypes, threads, seeds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def undisturbed() -> Iterator[None]:
    """Torch's modes and defaults as the networks need them; restored at the end.

    Gradients are recorded, and nothing is cast: a search may be started under a user's `no_grad`,
    `inference_mode` or `autocast` (`torch.compile` does). New tensors are float32 on the CPU: a
    default type of 16 bits, or another device, breaks the networks. Torch runs on one thread: the
    networks are small, idle threads spin, and where other processes (compilers, measurements) need
    the cores, an update of a second was seen to take a minute.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast("cpu", enabled=False),
            torch.device("cpu"),
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """`undisturbed`, with random numbers of the seed on the CPU.

    `torch.manual_seed` would seed the caller's generators of all GPUs, too.
    """
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        with undisturbed():
            yield
    finally:
        generator.set_state(state)
