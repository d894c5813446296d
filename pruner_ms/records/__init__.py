"""TVM's two JSON tables: read, checked, repaired, opened, merged, carried over, packed as pools.

Read the files in this order. Each uses only those before it; the first two and last two use no TVM.

| file | what it does | begin with |
|---|---|---|
| `tables.py` | the one reader of a line, checks, repair | `read_tables`, `repair` |
| `workdir.py` | the folder of the tables: lock, manifest, what reached the disk | `WorkDir` |
| `database.py` | lines as TVM's objects: opening, what is stored, adding trials | `open_database` |
| `trials.py` | the tasks of a run and their trials, read only | `run_tasks` |
| `exchange.py` | several databases as one; another TVM's carried over | `merge`, `carry_over` |
| `archive.py` | the files of a pool, out of an archive that is not trusted | `read_files` |
| `pools.py` | databases as pools: halves that belong together | `read_half`, `grouped` |

A line that cannot be used has one reason wherever it is read (`tables.Line.reason`): in
`*.rejected`, in the notes of a pool, among what an import leaves behind.

Format (tvm `meta_schedule/database/json_database.cc`, `database.cc`): a workload line is
`[hash as decimal text, module in base64]`; a record line is
`[index of the workload's line, [[instructions, decisions], seconds, target, argument infos]]`.
"""

from __future__ import annotations

WORKLOADS, RECORDS = TABLES = ("database_workload.json", "database_tuning_record.json")
"""TVM's names of the two tables."""
