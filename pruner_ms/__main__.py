"""`python -m pruner_ms` is `pruner-ms`."""

from __future__ import annotations

from pruner_ms.cli import main

if __name__ == "__main__":
    main()
