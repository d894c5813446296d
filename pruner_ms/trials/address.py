"""Where TVM's RPC servers are found, as a user writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pruner_ms.errors import OptionError


@dataclass(frozen=True)
class Address:
    """Where servers of a kind are found: a tracker, and their key."""

    host: str
    port: int
    key: str

    @staticmethod
    def parse(text: str) -> Address:
        """Read `HOST:PORT/KEY`.

        Raises
        ------
        OptionError
            It is written otherwise.
        """
        found = re.fullmatch(r"(?P<host>.+):(?P<port>\d{1,5})/(?P<key>[^/\s]+)", text.strip())
        if found is None or not 0 < int(found["port"]) < 65536:
            raise OptionError(f"{text!r} is no tracker; write it as HOST:PORT/KEY")
        return Address(found["host"], int(found["port"]), found["key"])

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.key}"
