"""The process that tunes: one line of JSON in for each input, one out for its verdict."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo.judge import Verdict, of_answer, of_error
from benchmarks.zoo.tools import Tools
from benchmarks.zoo.ways import WAYS


def verdict(way: str, name: str, tools: Tools) -> Verdict:
    """Try one input on one way in."""
    chosen = WAYS[way]

    def ask(whom: Callable[[str, Tools], str | None]) -> Callable[[], str | None]:
        return lambda: whom(name, tools)

    try:
        answer = chosen.run(name, tools)
    except Exception as error:  # whatever comes is what the zoo is there to find
        return of_error(error, ask(chosen.stock))
    with np.errstate(all="ignore"):
        return of_answer(answer, ask(chosen.untuned))


def main() -> None:
    """Answer until there is no more input."""
    folder, graphs, seed, results = sys.argv[1:]
    tools = Tools(Path(folder), Path(graphs), int(seed))
    with os.fdopen(int(results), "w") as out:
        for line in sys.stdin:
            way, name = json.loads(line)
            began = time.monotonic()
            answer: dict[str, Any] = verdict(way, name, tools).__dict__
            for place in tools.folder.iterdir():
                shutil.rmtree(place, ignore_errors=True)
            seconds = round(time.monotonic() - began, 1)
            out.write(json.dumps({**answer, "seconds": seconds}) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
