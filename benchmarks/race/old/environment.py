"""Put TVM 0.17 into a virtual environment: `python environment.py CONSTRAINTS` run by its Python.

The package index has no TVM before 0.25 for today's Python, but the wheel of `bitblas` carries a
build of 0.17 with `auto_scheduler`. Of that wheel only TVM is kept. It was linked against CUDA;
here it is for CPU cores alone, so each CUDA library that it asks for is replaced by one whose
functions all return 100, CUDA's "no device". A `.pth` file loads them when Python starts, in TVM's
worker processes too. A C compiler is needed, as it is by TVM's own builders.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

WHEEL = "bitblas"
TVM_PYTHON = "bitblas/3rdparty/tvm/python/"
TVM_LIBRARY = "bitblas/3rdparty/tvm/build/libtvm.so"
FOLDER = "no_cuda"
STANDINS = {
    "libcuda.so.1": r"(?P<name>cu[A-Z]\w*)",
    "libcudart.so.12": r"(?P<name>\w+)@libcudart\.so\.12",
    "libnvrtc.so.12": r"(?P<name>\w+)@libnvrtc\.so\.12",
}
"""Libraries, and what the symbols that they must have look like in the output of `nm`."""

_LOADER = '''"""Stand-ins of CUDA's libraries, loaded before TVM 0.17 asks for them."""
import ctypes
import pathlib

for _library in pathlib.Path(__file__).parent.glob("*.so.*"):
    ctypes.CDLL(str(_library), mode=ctypes.RTLD_GLOBAL)
'''


def main() -> int:
    """Download, unpack, make the stand-ins, and see that TVM loads."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: python environment.py CONSTRAINTS")
    site = Path(sysconfig.get_paths()["purelib"])
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--only-binary=:all:", "-c", sys.argv[1], "-d", folder]
        subprocess.run([*pip, *options, WHEEL], check=True)
        unpack(next(Path(folder).glob("*.whl")), site)
    library = site / "tvm" / "libtvm.so"
    subprocess.run(["strip", library], check=True)
    symbols = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    ).stdout
    make_standins(asked_for(symbols), site / FOLDER)
    (site / f"{FOLDER}.pth").write_text(f"import {FOLDER}\n")
    check = "import tvm; print('TVM', tvm.__version__)"
    return subprocess.run([sys.executable, "-c", check], check=False).returncode


def unpack(wheel: Path, site: Path) -> None:
    """Take TVM's Python files and its library out of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            place = place_of(name)
            if place is not None:
                (site / place).parent.mkdir(parents=True, exist_ok=True)
                (site / place).write_bytes(archive.read(name))


def place_of(name: str) -> str | None:
    """Where a file of the wheel goes, from `site-packages`; None: it is left out."""
    if name == TVM_LIBRARY:
        return "tvm/libtvm.so"
    place = name.removeprefix(TVM_PYTHON)
    inside = place != name and PurePosixPath(place).parts[:1] == ("tvm",)
    return place if inside and not name.endswith("/") and ".." not in place else None


def asked_for(symbols: str) -> dict[str, list[str]]:
    """Functions by library, from what `nm` says is undefined."""
    words = [line.split()[-1] for line in symbols.splitlines() if line.split()]
    return {
        library: [match["name"] for word in words if (match := re.fullmatch(pattern, word))]
        for library, pattern in STANDINS.items()
    }


def make_standins(functions: dict[str, list[str]], folder: Path) -> None:
    """Compile the stand-ins, and write the module that loads them."""
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(_LOADER)
    for library, names in functions.items():
        source, versions = folder / "functions.c", folder / "versions"
        source.write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in names))
        versions.write_text(f"{library} {{ global: *; }};\n")
        linker = [f"-Wl,-soname,{library}", f"-Wl,--version-script={versions}"]
        command = ["cc", "-shared", "-fPIC", "-nostdlib", source, *linker]
        subprocess.run([*command, "-o", folder / library], check=True)
        source.unlink()
        versions.unlink()


if __name__ == "__main__":
    raise SystemExit(main())
