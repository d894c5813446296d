"""How well drafts and models rank the pools of `benchmarks/pools`: `pool eval`, summarised.

`python -m benchmarks.rank_pools` takes six minutes and writes `results/rank_pools.json`: per pool
the means over seeds, then medians of correlations and means of recalls over the pools.

    python -m benchmarks.rank_pools --pools benchmarks/pools/prebuilt --seeds 2 \\
        --model draft,calibrated,released,paper,pacm,xgb-stock,random --train 0,16,32,64 \\
        --output benchmarks/results/rank_pools_cuda.json

is of first rounds on a GPU (`benchmarks.prebuilt`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import command_line, fingerprint

HERE = Path(__file__).parent
POOLS, RESULTS = HERE / "pools", HERE / "results" / "rank_pools.json"


def results(
    pools: Path, models: Sequence[str], sizes: Sequence[int], seeds: int
) -> Iterator[dict[str, Any]]:
    """Rows of `evaluate`, pool by pool."""
    from pruner_ms.pools.describe import describe
    from pruner_ms.pools.evaluate import evaluate
    from pruner_ms.pools.load import load
    from pruner_ms.pools.validity import facts
    from pruner_ms.records.pools import grouped, read_half

    for pool in grouped([read_half(path) for path in sorted(pools.glob("*.tar.xz"))]):
        described = describe(load(pool))
        print(f"{pool.name}: {json.dumps(facts(described))}", flush=True)
        yield from evaluate(described, models, sizes, seeds)


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with four digits behind the point."""

    def of(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: of(inner) for key, inner in value.items()}
        return round(value, 4) if isinstance(value, float) else value

    return {key: of(value) for key, value in row.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and write the table."""
    from pruner_ms.pools.evaluate import default_models
    from pruner_ms.pools.summary import by_pool, over_pools

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pools", type=Path, default=POOLS, help="a folder of pools")
    parser.add_argument("--model", default=",".join(default_models(print)))
    parser.add_argument("--train", default="0,16,32,64,128")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    sizes = [int(size) for size in args.train.split(",")]
    single = by_pool(list(results(args.pools, args.model.split(","), sizes, args.seeds)))
    head = {"machine": fingerprint(), "command": command_line(), "seeds": args.seeds}
    tables = {"all": over_pools(single), "pools": single}
    lines = {k: [json.dumps(rounded(row)) for row in rows] for k, rows in tables.items()}
    text = json.dumps(head, indent=1)[:-2]
    for key, rows in lines.items():
        text += f',\n "{key}": [\n  ' + ",\n  ".join(rows) + "\n ]"
    args.output.write_text(text + "\n}\n")
    for row in tables["all"]:
        print(json.dumps(rounded(row)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
