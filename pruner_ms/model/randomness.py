"""Torch's state, of the process and of the thread, while networks are made, trained and asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside the block torch is as the networks need it, whatever the caller has set.

    Gradients are recorded, and nothing is cast: a search may be started under a user's `no_grad`,
    `inference_mode` or `autocast` (`torch.compile` does). New tensors are float32 on the CPU: a
    default type of 16 bits, or another device, spoils the networks. Torch runs on one thread: the
    networks are small, with more threads idle ones spin, and where other processes (compilers,
    measurements) want the cores, an update of a second was seen to take a minute.

    At its end everything is as before.
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
    """`undisturbed`, and inside the block random numbers on the CPU are of the seed.

    `torch.manual_seed` would set the caller's generator of every GPU, too.
    """
    generator = torch.default_generator
    state = generator.get_state()
    generator.manual_seed(seed)
    try:
        with undisturbed():
            yield
    finally:
        generator.set_state(state)
