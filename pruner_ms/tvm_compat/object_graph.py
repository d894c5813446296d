"""TVM's JSON of objects, read without TVM: the form of 0.17 and its time, and tvm-ffi's.

Both are tables of nodes that refer to each other by number. In the older one every attribute of a
node is a text, and what it stands for depends on the field; in the newer one numbers and booleans
are themselves (0.27: 64-bit integers are nodes of their own). Names changed, too: `tir.Block` is
`s_tir.SBlock`. Here both are asked in the same words, without the name of the module.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

_KINDS: Mapping[str, str] = MappingProxyType(
    {
        "": "None",
        "SBlock": "Block",
        "SBlockRealize": "BlockRealize",
        "TensorLoad": "BufferLoad",
        "TensorRegion": "BufferRegion",
        "SizeVar": "Var",
    }
)
"""Names that differ by more than a module."""

_NUMBERS = ("int", "bool", "float", "IntImm", "FloatImm")


BINARY = (
    *("Add", "Sub", "Mul", "Div", "Mod", "FloorDiv", "FloorMod", "Min", "Max"),
    *("EQ", "NE", "LT", "LE", "GT", "GE", "And", "Or"),
)
"""Operators of two operands `a` and `b`; their classes have the same names everywhere."""


@dataclass(frozen=True)
class Graph:
    """A table of nodes.

    Attributes
    ----------
    nodes
        The nodes, by number.
    root
        Number of the object that was stored.
    old
        Whether it is of the form until 0.19.
    """

    nodes: Sequence[Mapping[str, Any]]
    root: int
    old: bool

    @classmethod
    def parse(cls, parsed: Any) -> Graph:
        """The graph in parsed JSON.

        Raises
        ------
        ValueError
            It is none.
        """
        if isinstance(parsed, dict) and isinstance(parsed.get("nodes"), list):
            nodes = parsed["nodes"]
            if all(isinstance(node, dict) for node in nodes):
                if isinstance(parsed.get("root_index"), int):
                    return cls(nodes, parsed["root_index"], False)
                if isinstance(parsed.get("root"), int):
                    return cls(nodes, parsed["root"], True)
        raise ValueError("it is no JSON graph of TVM's objects")

    def kind(self, i: int) -> str:
        """What a node is, without the name of its module: "For", "Array", "String"."""
        text = str(self.nodes[i].get("type_key" if self.old else "type", ""))
        name = text.rpartition(".")[2]
        return _KINDS.get(name, name)

    def type_name(self, i: int) -> str:
        """What a node is, in full."""
        return str(self.nodes[i].get("type_key" if self.old else "type", ""))

    def has(self, i: int, name: str) -> bool:
        """Whether a node has a field."""
        return name in self._fields(i)

    def _fields(self, i: int) -> Mapping[str, Any]:
        fields = self.nodes[i].get("attrs" if self.old else "data")
        return fields if isinstance(fields, dict) else {}

    def _field(self, i: int, names: Sequence[str]) -> Any:
        fields = self._fields(i)
        for name in names:
            if name in fields:
                return fields[name]
        raise ValueError(f"a {self.type_name(i)} without {names[0]}")

    def ref(self, i: int, *names: str) -> int | None:
        """The node that the first field of these names refers to; None where there is no object."""
        value = self._field(i, names)
        index = int(value)
        if not 0 <= index < len(self.nodes):
            raise ValueError(f"a {self.type_name(i)} refers to node {index}, which is not there")
        return None if self.kind(index) == "None" else index

    def needed(self, i: int, *names: str) -> int:
        """As `ref`, where there must be an object."""
        index = self.ref(i, *names)
        if index is None:
            raise ValueError(f"a {self.type_name(i)} has an empty {names[0]}")
        return index

    def text(self, i: int, *names: str) -> str:
        """A text: of the node itself without names, else of a field."""
        if not names:
            return self._own_text(i)
        value = self._field(i, names)
        if isinstance(value, str) and not (self.old and value.isdigit()):
            return value
        return self.text(self.needed(i, *names))

    def _own_text(self, i: int) -> str:
        node = self.nodes[i]
        if not self.old:
            return str(node["data"])
        if "repr_b64" in node:
            return b64decode(node["repr_b64"], validate=True).decode("utf-8")
        return str(node.get("repr_str", ""))  # an empty text is left out

    def items(self, i: int | None) -> list[int]:
        """Nodes of an array."""
        if i is None:
            return []
        data = self.nodes[i].get("data", [])
        if not isinstance(data, list):
            raise ValueError(f"a {self.type_name(i)} is no array")
        return [int(item) for item in data]

    def pairs(self, i: int | None) -> list[tuple[str, int]]:
        """Keys (texts) and nodes of a map."""
        if i is None:
            return []
        data = self.items(i)
        if self.old and "keys" in self.nodes[i]:
            return list(zip(map(str, self.nodes[i]["keys"]), data, strict=True))
        return [(self.text(key), value) for key, value in self.object_pairs(i)]

    def object_pairs(self, i: int) -> list[tuple[int, int]]:
        """Nodes of the keys of a map, and of its values."""
        data = self.items(i)
        return list(zip(data[::2], data[1::2], strict=True))

    def inline(self, i: int, name: str) -> int:
        """A small integer in a field: an enumeration, an alignment."""
        return int(self._field(i, [name]))

    def immediate(self, i: int) -> int | float:
        """Value of an `IntImm` or `FloatImm`."""
        value = self._field(i, ["value"])
        if self.kind(i) == "FloatImm":
            return float(value)
        return self.plain(int(value)) if self._boxed else int(value)

    @cached_property
    def _boxed(self) -> bool:
        """Whether integers of 64 bits are nodes of their own, as 0.27 writes them."""
        if self.old:
            return False
        values = [
            self._field(i, ["value"]) for i in range(len(self.nodes)) if self.kind(i) == "IntImm"
        ]
        inside = range(len(self.nodes))
        return all(v in inside and self.type_name(v) in ("int", "bool") for v in values)

    def plain(self, i: int) -> Any:
        """A number or a boolean that is a node of its own."""
        node = self.nodes[i]
        value = node.get("data")
        if isinstance(value, int | float):
            return value
        raise ValueError(f"a {self.type_name(i)} is no number")

    def dtype(self, i: int) -> str:
        """Type of the elements of an expression, a buffer or an immediate: "float32"."""
        fields = self._fields(i)
        value = fields.get("dtype")
        if isinstance(value, str) and not value.isdigit():
            return value
        name = "dtype" if isinstance(value, int) else "ty"
        return self.text(self.needed(i, name), "dtype")

    def is_number(self, i: int) -> bool:
        """Whether a node is an integer, a real number or a boolean."""
        return self.kind(i) in _NUMBERS
