"""The summary of a run: `summary.json` in its work-dir."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pruner_ms.errors import DatabaseError

SCHEMA = 1
"""Version of the summary; a newer one than this is refused."""

_NEEDED = ("name", "target", "trials", "seconds", "tasks", "funnel", "curve")


def load_summary(path: Path) -> dict[str, Any]:
    """Read the summary of a run.

    Parameters
    ----------
    path
        A work-dir, or a summary file.

    Raises
    ------
    DatabaseError
        There is none, it is damaged, or a newer version wrote it.
    """
    file = path / "summary.json" if path.is_dir() else path
    try:
        summary = json.loads(file.read_bytes())
    except FileNotFoundError as error:
        raise DatabaseError(
            f"{path} holds no summary.json; give the --work-dir of a finished `pruner-ms tune`"
        ) from error
    except (OSError, ValueError) as error:
        raise DatabaseError(
            f"{file} cannot be read ({error}); run the same `pruner-ms tune` again"
        ) from error
    if not isinstance(summary, dict) or not all(key in summary for key in _NEEDED):
        raise DatabaseError(f"{file} is no summary of a run; give the --work-dir of one")
    schema = summary.get("schema")
    if not isinstance(schema, int) or schema > SCHEMA:
        raise DatabaseError(
            f"{file} has schema {schema}, this version knows up to {SCHEMA}; upgrade pruner-ms"
        )
    return summary
