"""TVMScript functions that have been read before, kept in a file of the user's cache.

TVM takes some 10 ms to read a function, and its tensor intrinsics alone have 250. A file holds what
one TVM made of some sources; its name depends on both. If two processes write at once, one file is
kept, and what only the other one had is read anew.
"""

from __future__ import annotations

import gzip
import hashlib
import platform
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MOST = 8
"""Files of a kind that are kept: those of as many versions of TVM and of the sources."""

Read = Callable[[Any], Any]
"""What makes a PrimFunc of a Python function."""


class ScriptCache:
    """PrimFuncs by name.

    Parameters
    ----------
    kind
        Beginning of the file's name.
    sources
        Files that the functions come from.
    """

    def __init__(self, kind: str, sources: Iterable[Path]) -> None:
        self.path = _folder() / f"{kind}-{_key(sources)}.json.gz"
        self._kind = kind
        self._functions = _load(self.path)
        self._changed = False

    def get(self, name: str) -> Any:
        """A function; None if it is not there."""
        return self._functions.get(name)

    def put(self, name: str, function: Any) -> Any:
        """Keep a function, and give it back; `save` writes it."""
        self._functions[name] = function
        self._changed = True
        return function

    def save(self) -> None:
        """Write what has been added, if anything; where that cannot be, the next one reads anew."""
        from pruner_ms.hardware.cached import write_cached
        from pruner_ms.tvm_compat.paths import save_json

        if not self._changed:
            return
        self._changed = False
        write_cached(self.path, gzip.compress(save_json(self._functions).encode(), 1))
        with suppress(OSError):
            files = sorted(self.path.parent.glob(f"{self._kind}-*.json.gz"), key=_age)
            for old in files[MOST:]:
                old.unlink(missing_ok=True)


def _folder() -> Path:
    from platformdirs import user_cache_dir  # `import pruner_ms` works without it

    return Path(user_cache_dir("pruner-ms"))


def _age(path: Path) -> float:
    return -path.stat().st_mtime


def _load(path: Path) -> dict[str, Any]:
    """What a file holds; nothing where there is none or it is damaged."""
    from pruner_ms.tvm_compat.paths import load_own_json

    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except (OSError, EOFError, ValueError, zlib.error):
        return {}
    try:
        functions = {str(name): function for name, function in load_own_json(text).items()}
    except Exception:  # TVM's errors have no class of their own; it is read anew, and written
        return {}
    return (
        functions if all(type(each).__name__ == "PrimFunc" for each in functions.values()) else {}
    )


def _key(sources: Iterable[Path]) -> str:
    """Hash of the version and build of TVM, of Python's version and of what the sources hold."""
    import tvm

    about = [tvm.__version__, platform.python_version(), sorted(tvm.support.libinfo().items())]
    digest = hashlib.sha256(repr(about).encode())
    for path in sorted(sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def cached_scripts(words: Any, package: str, store: ScriptCache) -> Iterator[None]:
    """Let `@T.prim_func` look among kept functions first, and keep what it reads.

    A function is known by its module and name, and by how many of that name came before.

    Parameters
    ----------
    words
        The module that code calls `T`.
    package
        Whose functions are kept. Others, of another thread, are read as ever.
    """
    stock, counts = words.prim_func, Counter[str]()

    def lookup(function: Any, read: Read) -> Any:
        if not f"{function.__module__}.".startswith(f"{package}."):
            return read(function)
        path = f"{function.__module__}.{function.__qualname__}"
        counts[path] += 1
        name = f"{path}#{counts[path]}"
        entry = store.get(name)
        if entry is None:
            return store.put(name, read(function))
        entry.__name__ = function.__name__  # as the decorator itself does
        return entry

    def prim_func(function: Any = None, *args: Any, **options: Any) -> Any:
        if function is not None:
            return lookup(function, stock)
        read = stock(*args, **options)

        def decorated(function: Any) -> Any:
            return lookup(function, read)

        # the reader looks at the decorator, too
        vars(decorated).update(vars(read))
        return decorated

    vars(prim_func).update(vars(stock))
    words.prim_func = prim_func
    try:
        yield
    finally:
        words.prim_func = stock
    store.save()
