"""The only room that names a TVM module path or asks for a TVM version.

`ffi_pairs` needs no TVM; importing any other module here imports TVM.
"""

from __future__ import annotations
