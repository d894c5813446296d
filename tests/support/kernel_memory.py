"""Memory of an emulated kernel, for all threads of all blocks, and what they may not do with it.

Notation
--------
N       threads of the grid; thread t is in block t // per_block
place   element that each thread names, int (N,), (N, L) for vectors of L, or one for all
active  threads that take part, bool (N,)
epoch   number of barriers passed: what another thread wrote is to be read in a later one
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pruner_ms.types import BoolArray, IntArray

AnyArray = npt.NDArray[Any]
NOBODY = -1


class Hazard(Exception):  # noqa: N818  a verdict about a program
    """A kernel does what only luck makes right."""


def spread(place: Any, threads: int) -> IntArray:
    """Places as (N, L)."""
    places = np.asarray(place, np.int64)
    if places.ndim < 2:
        places = places.reshape(-1, 1)
    return np.broadcast_to(places, (threads, places.shape[1]))


def lanes_of(dtype: str) -> int:
    """Numbers in an element of a type: 2 of "float32x2"."""
    return int(dtype.partition("x")[2] or 1)


def elements(place: IntArray, dtype: str) -> IntArray:
    """Places (N, L) of the numbers of elements that are vectors."""
    lanes = lanes_of(dtype)
    return (place[..., None] * lanes + np.arange(lanes)).reshape(len(place), -1)


class Global:
    """An argument of the kernel.

    Parameters
    ----------
    array
        Flat; changed in place.
    """

    def __init__(self, array: AnyArray) -> None:
        self.array = array

    def read(self, place: IntArray, active: BoolArray) -> AnyArray:
        """Elements (N, L); zero where a thread does not take part."""
        self._check(place[active])
        values = np.zeros(place.shape, self.array.dtype)
        values[active] = self.array[place[active]]
        return values

    def write(self, place: IntArray, values: AnyArray, active: BoolArray) -> None:
        """Store values (N, L)."""
        self._check(place[active])
        numbers = values[active].astype(self.array.dtype)
        self.array[place[active]] = numbers
        held = self.array[place[active]]
        if ((held != numbers) & ((held == held) | (numbers == numbers))).any():  # but for NaN twice
            raise Hazard("two threads write different values to one element at once")

    def require_aligned(self, place: IntArray, what: str) -> None:
        """Raise a `Hazard` where a vector does not begin at a multiple of its bytes.

        Three or six elements are moved as if they were several, each of a power of two.

        Parameters
        ----------
        place
            Elements of each vector that is read or written, (vectors, elements).
        what
            What moves them, for the message.
        """
        item = self.array.dtype.itemsize
        size = place.shape[1] * item
        if (place[:, 0] * item % (size & -size)).any():
            raise Hazard(f"{what} of {size} bytes in global memory is not aligned")

    def _check(self, place: IntArray) -> None:
        if place.size and (place.min() < 0 or place.max() >= len(self.array)):
            raise Hazard(f"an element outside of an argument of {len(self.array)} is named")


class Registers:
    """Elements that every thread has for itself.

    Parameters
    ----------
    threads, size
        N, and elements of each.
    """

    def __init__(self, threads: int, size: int, dtype: str) -> None:
        self.array: AnyArray = np.zeros((threads, size), dtype)
        self.written_mask: BoolArray = np.zeros((threads, size), np.bool_)
        self.rows: IntArray = np.arange(threads)[:, None]

    def read(self, place: IntArray, active: BoolArray) -> AnyArray:
        """Elements (N, L)."""
        self._check(place[active])
        if not self.written_mask[self.rows, place][active].all():
            raise Hazard("a register is read before it is written")
        return np.asarray(self.array[self.rows, place])

    def write(self, place: IntArray, values: AnyArray, active: BoolArray) -> None:
        """Store values (N, L)."""
        self._check(place[active])
        rows = np.broadcast_to(self.rows, place.shape)
        self.array[rows[active], place[active]] = values[active]
        self.written_mask[rows[active], place[active]] = True

    def _check(self, place: IntArray) -> None:
        if place.size and (place.min() < 0 or place.max() >= self.array.shape[1]):
            raise Hazard(f"a register outside of {self.array.shape[1]} is named")


class Shared:
    """Shared memory of every block, in bytes, with what each byte's users may do.

    Parameters
    ----------
    blocks, per_block
        Blocks of the grid and threads of each.
    size
        Bytes of a block.
    """

    def __init__(self, blocks: int, per_block: int, size: int) -> None:
        self.size = -(-size // 16) * 16
        total = blocks * self.size
        self.bytes: npt.NDArray[np.uint8] = np.zeros(total, np.uint8)
        self.base: IntArray = np.arange(blocks * per_block)[:, None] // per_block * self.size
        self.epoch = 0
        self.writer: IntArray = np.full(total, NOBODY)
        self.written: IntArray = np.full(total, NOBODY)
        self.first: IntArray = np.full(total, NOBODY)
        self.last: IntArray = np.full(total, NOBODY)
        self.seen: IntArray = np.full(total, NOBODY)
        self.flying: BoolArray = np.zeros(total, np.bool_)

    def view(self, dtype: str) -> SharedView:
        """The same memory as elements of a type."""
        return SharedView(self, dtype)

    def barrier(self) -> None:
        """All threads of every block have come here."""
        self.epoch += 1

    def load(self, places: IntArray, threads: IntArray) -> AnyArray:
        """Bytes, and who read them; both of one shape."""
        if self.flying[places].any():
            raise Hazard("shared memory is read while a copy into it is under way")
        if (self.writer[places] == NOBODY).any():
            raise Hazard("shared memory is read that nobody wrote")
        if ((self.written[places] == self.epoch) & (self.writer[places] != threads)).any():
            raise Hazard("a thread reads what another one wrote, without a barrier between")
        fresh = places[self.seen[places] < self.epoch]
        self.first[fresh], self.last[fresh] = np.iinfo(np.int64).max, NOBODY
        np.minimum.at(self.first, places, threads)
        np.maximum.at(self.last, places, threads)
        self.seen[places] = self.epoch
        return np.asarray(self.bytes[places])

    def claim(self, places: IntArray, threads: IntArray) -> None:
        """Threads are about to write bytes."""
        if self.flying[places].any():
            raise Hazard("shared memory is written while a copy into it is under way")
        now = self.seen[places] == self.epoch
        if (now & ((self.first[places] != threads) | (self.last[places] != threads))).any():
            raise Hazard("a thread writes what another one has read, without a barrier between")
        if ((self.written[places] == self.epoch) & (self.writer[places] != threads)).any():
            raise Hazard("two threads write to one place, without a barrier between")
        self.writer[places] = threads
        if (self.writer[places] != threads).any():
            raise Hazard("two threads write to one place at once")

    def store(self, places: IntArray, values: AnyArray, threads: IntArray) -> None:
        """Write bytes that were claimed."""
        self.bytes[places] = values
        self.writer[places], self.written[places] = threads, self.epoch


class SharedView:
    """Shared memory as elements of one type."""

    def __init__(self, memory: Shared, dtype: str) -> None:
        self.memory, self.dtype = memory, np.dtype(dtype)
        self.threads: IntArray = np.arange(len(memory.base))

    def places(self, place: IntArray, rows: Any) -> IntArray:
        """Bytes (threads, L x bytes of an element) of elements, of the threads in `rows`."""
        size = self.dtype.itemsize
        start = self.memory.base[rows] + place * size
        if place.size and (place.min() < 0 or (place.max() + 1) * size > self.memory.size):
            raise Hazard("an element outside of shared memory is named")
        return (start[..., None] + np.arange(size)).reshape(len(place), -1)

    def owners(self, places: IntArray, rows: Any) -> IntArray:
        """Threads, in the shape of places."""
        return np.broadcast_to(self.threads[rows][:, None], places.shape)

    def read(self, place: IntArray, active: BoolArray) -> AnyArray:
        """Elements (N, L); zero where a thread does not take part."""
        values = np.zeros(place.shape, self.dtype)
        values[active] = self.of(place[active], active)
        return values

    def of(self, place: IntArray, rows: Any) -> AnyArray:
        """Elements (threads, L) that the threads in `rows` read."""
        places = self.places(place, rows)
        raw = self.memory.load(places, self.owners(places, rows))
        return np.ascontiguousarray(raw).view(self.dtype).reshape(place.shape)

    def write(self, place: IntArray, values: AnyArray, active: BoolArray) -> None:
        """Store values (N, L)."""
        self.put(place[active], values[active], active)

    def put(self, place: IntArray, values: AnyArray, rows: Any) -> None:
        """Store what the threads in `rows` write (threads, L)."""
        places = self.places(place, rows)
        owners = self.owners(places, rows)
        self.memory.claim(places, owners)
        self.memory.store(places, raw(values, self.dtype, places), owners)


def raw(values: AnyArray, dtype: np.dtype[Any], places: IntArray) -> AnyArray:
    """Elements as bytes, in the shape of their places."""
    cast = np.ascontiguousarray(np.broadcast_to(values, (len(places), values.shape[-1])), dtype)
    return cast.view(np.uint8).reshape(places.shape)
