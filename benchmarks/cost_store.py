"""Results of `benchmarks.cost_models` on disk: what is there and still holds is not made again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median_low
from typing import Any

ROOT = Path(__file__).parents[1]
ROOMS = ("symbolic", "draft", "features", "model", "pools")
"""Folders of `pruner_ms` that a result depends on."""

SCHEMA = 2
DIGITS = 4
IDENTITY = ("setting", "pool", "source")
HOLDS = ("options", "files", "learned", "code")
"""What must be the same for a result to hold."""


def code_hash() -> str:
    """Names the models, and what they see, by their sources."""
    checksum = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((ROOT / "pruner_ms" / room).rglob("*.py")):
            checksum.update(path.name.encode() + b"\0" + path.read_bytes())
    return checksum.hexdigest()[:16]


class Store:
    """Entries, one per setting, pool and source platform, written after each.

    Parameters
    ----------
    path
        The JSON file; taken up if it is there.

    Attributes
    ----------
    head, entries
        What it holds.
    here
        This machine's place in `head["machines"]`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self.machine_index = 0
        self.entries: list[dict[str, Any]] = []
        if path.exists():
            content = json.loads(path.read_text())
            if content.get("schema") != SCHEMA:
                raise SystemExit(
                    f"{path} has schema {content.get('schema')}, not {SCHEMA}; move it"
                )
            self.entries = content.pop("entries")
            self.head = content

    def begin(self, machine: Mapping[str, Any], command: str) -> None:
        """Note machine and command.

        Rankings of recorded pools are the same questions on any machine: each entry says where it
        was answered, by its place in `head["machines"]`.
        """
        machines = self.head.get("machines", [])
        if machine not in machines:
            machines = [*machines, dict(machine)]
        self.machine_index = machines.index(machine)
        commands = [c for c in self.head.get("commands", []) if c != command]
        self.head |= {"schema": SCHEMA, "machines": machines, "commands": [*commands, command]}

    def has(self, head: Mapping[str, Any], any_code: bool = False) -> bool:
        """Whether there is an entry with this identity that still holds.

        Parameters
        ----------
        any_code
            Whether it holds where it was made by other sources, too.
        """
        old = self._find(head)
        names = [name for name in HOLDS if not (any_code and name == "code")]
        return old is not None and all(old.get(name) == head[name] for name in names)

    def without(self, head: Mapping[str, Any], models: Collection[str]) -> list[dict[str, Any]]:
        """Rows that an entry has of other models than these, each with its sources and machine.

        Empty where there is no such entry, or anything but the sources differs.
        """
        if not self.has(head, any_code=True):
            return []
        old = self._find(head) or {}
        own = {"code": old["code"], "machine": old["machine"]}
        return [own | row for row in old["rows"] if row["model"] not in models]

    def add(self, entry: dict[str, Any], old_rows: Sequence[dict[str, Any]] = ()) -> None:
        """Put an entry in the place of an older one, and write the file.

        Parameters
        ----------
        old_rows
            Rows of `without`; they come back into the order of the entry's models.
        """
        old = self._find(entry)
        if old is not None:
            self.entries.remove(old)
        if old_rows:
            order = entry["options"]["models"]
            rows = [*entry["rows"], *old_rows]
            entry = entry | {"rows": sorted(rows, key=lambda row: order.index(row["model"]))}
        self.entries.append({"machine": self.machine_index, **entry})
        self.write()

    def write(self) -> None:
        """The whole file, one row a line; an interrupted call leaves the old one."""
        text = json.dumps(self.head, indent=1)[:-2]
        text += ',\n "entries": [\n' + ",\n".join(map(_lines, self.entries)) + "\n ]\n}\n"
        part = self.path.with_suffix(".part")
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        part.replace(self.path)

    def _find(self, head: Mapping[str, Any]) -> dict[str, Any] | None:
        for entry in self.entries:
            if all(entry[name] == head[name] for name in IDENTITY):
                return entry
        return None


def _lines(entry: Mapping[str, Any]) -> str:
    head = json.dumps({k: v for k, v in entry.items() if k != "rows"})[:-1]
    rows = ",\n   ".join(json.dumps(row, allow_nan=False) for row in entry["rows"])
    return f'  {head}, "rows": [\n   {rows}\n  ]}}'


def means(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `evaluate` over seeds: one per model, size and rounds.

    Returns
    -------
    Rows with model, train (records learned), share (as asked, or None), rounds, seeds, records
    (ranked), spearman, recall_1, recall_5, and random_1, random_5, what chance gives.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        size = row.get("train_share", row["train"])
        groups.setdefault((row["model"], size, row.get("rounds", 0)), []).append(row)
    return [_mean(key[0], key[2], members) for key, members in groups.items()]


def _mean(model: str, rounds: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    averages = {
        "model": model,
        "train": median_low(row["train"] for row in rows),
        "share": rows[0].get("train_share"),
        "rounds": rounds,
        "seeds": len(rows),
        "records": rows[0]["records"],
        "spearman": _over(row["spearman"] for row in rows),
    }
    for name, key in (("recall", "recall"), ("random", "random_recall")):
        for cut in ("1", "5"):
            averages[f"{name}_{cut}"] = _over(row[key][cut] for row in rows)
    return averages


def _over(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(fmean(numbers), DIGITS) if numbers else None
