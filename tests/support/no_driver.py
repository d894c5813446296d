"""An environment in which TVM builds CUDA programs on a machine that has nvcc and no GPU.

TVM's CUDA runtime wants a driver's library; here it gets one whose functions all fail.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_NO_DEVICE = 100
"""CUDA_ERROR_NO_DEVICE."""

_LIBRARY = "libcuda.so.1"


_ENTRY = ("cuInit", "cuDriverGetVersion", "cuGetProcAddress", "cuGetProcAddress_v2")
"""Functions by which CUDA's runtime begins; it looks them up by name."""

_FUNCTION = """
int %s(void) {
    FILE *told = %s;
    if (told) { fputs("%s\\n", told); fclose(told); }
    return %d;
}
"""


def environment(folder: Path, log: Path | None = None) -> dict[str, str]:
    """Environment variables for a process that builds; the library is made in the folder.

    Parameters
    ----------
    folder
        Where the library is made.
    log
        A file that gets the name of each function of the driver that is called.

    Raises
    ------
    FileNotFoundError
        nvcc is not there.
    subprocess.CalledProcessError
        nm or gcc fails.
    """
    nvcc, package = shutil.which("nvcc"), importlib.util.find_spec("tvm")
    if nvcc is None or package is None or package.origin is None:
        raise FileNotFoundError("building for CUDA needs nvcc and TVM")
    runtime = Path(package.origin).parent / "lib" / "libtvm_runtime_cuda.so"
    listed = ["nm", "-D", "--undefined-only", str(runtime)]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()
    functions = sorted({*_ENTRY, *(n for n in names if n.startswith("cu") and n[2].isupper())})
    opened = "0" if log is None else f'fopen("{log}", "a")'
    source, library = folder / "driver.c", folder / _LIBRARY
    body = "".join(_FUNCTION % (n, opened, n, _NO_DEVICE) for n in functions)
    source.write_text("#include <stdio.h>\n" + body)
    flags = ["-shared", "-fPIC", f"-Wl,-soname,{_LIBRARY}"]
    subprocess.run(["gcc", *flags, "-o", str(library), str(source)], check=True)
    toolkit = Path(nvcc).resolve().parents[1]
    return {
        **os.environ,
        "LD_LIBRARY_PATH": ":".join(map(str, (folder, toolkit / "lib64", toolkit / "lib"))),
        "LD_PRELOAD": str(library),
        "TVM_CUDA_COMPILE_MODE": "nvcc",
    }


def again(module: str) -> int | None:
    """Run this process's command line again in that environment; its exit status.

    Parameters
    ----------
    module
        What `python -m` was called with.

    Returns
    -------
    None in a process that has that environment already.
    """
    # not by the compile mode: `import pruner_ms` sets that on its own where nvcc is
    if _LIBRARY in os.environ.get("LD_PRELOAD", ""):
        return None
    command = [sys.executable, "-m", module, *sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, check=False, env=environment(Path(folder))).returncode
