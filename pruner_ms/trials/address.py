"""Address of TVM's RPC servers: tracker and key."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pruner_ms.errors import OptionError


@dataclass(frozen=True)
class Address:
    """Host and port of a tracker, and the key of the servers."""

    host: str
    port: int
    key: str

    @staticmethod
    def parse(text: str) -> Address:
        """Read `HOST:PORT/KEY`.

        Raises
        ------
        OptionError
            It has another form.
        """
        match = re.fullmatch(r"(?P<host>.+):(?P<port>\d{1,5})/(?P<key>[^/\s]+)", text.strip())
        if match is None or not 0 < int(match["port"]) < 65536:
            raise OptionError(f"{text!r} is no tracker; write it as HOST:PORT/KEY")
        return Address(match["host"], int(match["port"]), match["key"])

    def __str__(self) -> str:
        return f"{self.host}:{self.port}/{self.key}"
