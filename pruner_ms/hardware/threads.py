"""Linear algebra on one thread: the matrices of a search are small."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with one thread for BLAS and LAPACK, and as many as before afterwards.

    On two free cores a second thread made the decomposition of 256 rows no faster and took twice
    the processor; with compilers or measurements beside it, it took 2.5 times as long.
    """

    @wraps(function)
    def alone(*args: P.args, **kwargs: P.kwargs) -> R:
        with _blas().limit(limits=1):
            return function(*args, **kwargs)

    return alone


@cache
def _blas() -> ThreadpoolController:
    """The libraries that numpy loaded; finding them takes a millisecond."""
    return ThreadpoolController().select(user_api="blas")
