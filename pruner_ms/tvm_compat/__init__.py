"""The only package that names a TVM module path or asks for a TVM version.

Importing `ffi_pairs`, `hook`, `ffi`, `intrinsics` or `cuda_compiler` needs no TVM; any other module
here imports it.
"""

from __future__ import annotations
