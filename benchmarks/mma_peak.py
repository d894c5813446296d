"""What `mma.sync` reaches on this machine's GPU: the roof that TensorCore kernels are held against.

Warps multiply registers by registers, eight sums each that do not wait for each other, and touch no
memory. On Hopper that is less than the data sheet says: the rest takes `wgmma`, that four warps
issue together and no design space of TVM has.

    python -m benchmarks.mma_peak
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path

CHAINS, WARPS, BLOCKS = 8, 8, 2
"""Sums of a warp side by side, warps of a block, blocks of an SM."""

OPERATIONS = 2 * 16 * 8 * 16
"""Of one m16n8k16."""

ROUNDS, REPEATS = 1 << 14, 11
"""Products on each sum of one launch; launches timed."""

WARM_UP = 300.0
"""Milliseconds of launches before the first that is timed: until then the clock goes up."""

_PRODUCT = (
    'asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 '
    '{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"\n'
    '      : "+f"(c[{i}][0]), "+f"(c[{i}][1]), "+f"(c[{i}][2]), "+f"(c[{i}][3])\n'
    '      : "r"(a), "r"(a), "r"(a), "r"(a), "r"(b), "r"(b));'
)

_SOURCE = """
#include <cstdio>
#include <cuda_runtime.h>
__global__ void products(float* out, int rounds) {{
  float c[{chains}][4] = {{}};
  unsigned a = threadIdx.x * 0x00010001u, b = blockIdx.x * 0x00010001u;
  for (int i = 0; i < rounds; ++i) {{
    {products}
  }}
  float total = 0;
  for (int i = 0; i < {chains}; ++i) total += c[i][0] + c[i][1] + c[i][2] + c[i][3];
  out[blockIdx.x * blockDim.x + threadIdx.x] = total;
}}
int main() {{
  cudaDeviceProp device;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess) return 2;
  int blocks = device.multiProcessorCount * {blocks}, threads = {warps} * 32;
  float* out;
  if (cudaMalloc(&out, sizeof(float) * blocks * threads) != cudaSuccess) return 3;
  cudaEvent_t start, stop;
  cudaEventCreate(&start);
  cudaEventCreate(&stop);
  float milliseconds;
  cudaEventRecord(start);
  do {{
    products<<<blocks, threads>>>(out, {rounds});
    cudaEventRecord(stop);
    if (cudaEventSynchronize(stop) != cudaSuccess) return 4;
    if (cudaEventElapsedTime(&milliseconds, start, stop) != cudaSuccess) return 5;
  }} while (milliseconds < {warm_up});
  for (int i = 0; i < {repeats}; ++i) {{
    cudaEventRecord(start);
    products<<<blocks, threads>>>(out, {rounds});
    cudaEventRecord(stop);
    if (cudaEventSynchronize(stop) != cudaSuccess) return 4;
    cudaEventElapsedTime(&milliseconds, start, stop);
    printf("%d %.6f\\n", blocks, milliseconds);
  }}
  printf("%s\\n", device.name);
  return 0;
}}
"""


def source() -> str:
    """The program that is timed."""
    products = "\n    ".join(_PRODUCT.format(i=i) for i in range(CHAINS))
    return _SOURCE.format(
        chains=CHAINS,
        products=products,
        blocks=BLOCKS,
        warps=WARPS,
        rounds=ROUNDS,
        repeats=REPEATS,
        warm_up=WARM_UP,
    )


def compiled(folder: Path, arch: str = "native", *flags: str) -> Path:
    """The program as nvcc builds it.

    Raises
    ------
    FileNotFoundError, subprocess.CalledProcessError
        nvcc is not there, or refuses it.
    """
    text, program = folder / "mma_peak.cu", folder / "mma_peak"
    text.write_text(source())
    command = ["nvcc", "-O3", f"-arch={arch}", *flags, "-o", str(program), str(text)]
    subprocess.run(command, check=True, capture_output=True)
    return program


def flops(printed: str) -> tuple[str, float]:
    """The device's name, and operations per second of the median launch, from what it printed."""
    rows = re.findall(r"^(\d+) ([\d.]+)$", printed, re.MULTILINE)
    seconds = sorted(float(ms) / 1e3 for _, ms in rows)
    done = int(rows[0][0]) * WARPS * CHAINS * ROUNDS * OPERATIONS
    return printed.strip().splitlines()[-1], done / seconds[len(seconds) // 2]


def measured() -> dict[str, object]:
    """Device and operations per second, float16 with float32 sums."""
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(Path(folder))
        done = subprocess.run([str(program)], check=True, capture_output=True, text=True)
    name, rate = flops(done.stdout)
    return {"device": name, "instruction": "mma m16n8k16 f16 f16 f32", "flops": rate}


if __name__ == "__main__":
    print(json.dumps(measured()))
