"""Workloads by name and by spec."""

from __future__ import annotations

import pytest

from benchmarks.race.specs import TEN, on_target, workload_of
from benchmarks.race.tuners import TUNERS, tuner_named
from pruner_ms.errors import OptionError
from pruner_ms.pools.workloads import WORKLOADS


@pytest.mark.parametrize(
    ("text", "function", "shape", "dtype"),
    [
        ("gemm:384x512x640", "matmul", (384, 512, 640), "float32"),
        ("gemm:384x512x640:f16", "matmul", (384, 512, 640), "float16"),
        ("gemm:384x512x640:FP16", "matmul", (384, 512, 640), "float16"),
        ("bmm:12x128x64x128:i8", "batch_matmul_nkkm", (12, 128, 64, 128), "int8"),
        ("bmm:12x128x64x128", "batch_matmul_nkkm", (12, 128, 64, 128), "float32"),
        ("conv2d:1x28x28x64x64x3:s1:p1", "conv2d_nhwc", (1, 28, 28, 64, 64, 3, 1, 1), "float32"),
        ("conv2d:1x56x56x64x128x1:s2", "conv2d_nhwc", (1, 56, 56, 64, 128, 1, 2, 0), "float32"),
        (
            "dwconv2d:1x14x14x64x3:p1",
            "depthwise_conv2d_nhwc",
            (1, 14, 14, 64, 3, 1, 1),
            "float32",
        ),
        ("softmax:64x128", "softmax_mn", (64, 128), "float32"),
        ("norm:1x64x128", "norm_bmn", (1, 64, 128), "float32"),
        ("matmul:64,64,64:float16", "matmul", (64, 64, 64), "float16"),
        ("matmul:64,64,64:half", "matmul", (64, 64, 64), "float16"),
    ],
)
def test_a_spec_is_an_operator_of_tvm(text, function, shape, dtype) -> None:
    workload = workload_of(text)
    assert (workload.function, workload.shape, workload.dtype) == (function, shape, dtype)
    assert workload.name == text
    assert workload.func() is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gemm:384x512", "3 sizes"),
        ("gemm:384x0x640", "3 sizes"),
        ("gemm", "3 sizes"),
        ("gemm:384x512x640:s1", "no stride"),
        ("gemm:384x512x640:fp8", "'fp8'.*use one of float32, float16, bfloat16, int8"),
        ("conv2d:1x28x28x64x64x3:q1", "'q1'.*use one of s1, p1, float32"),
        ("dwconv2d:1x28x28x64x3:half", "'half'.*use one of s1, p1, float32$"),
        ("GEMM:384x512x640", r"no operator 'GEMM'; did you mean gemm\?"),
        ("Conv2D:1x28x28x64x64x3", r"no operator 'Conv2D'; did you mean conv2d\?"),
        ("MatMul:64,64,64", r"no operator 'MatMul'; did you mean matmul\?"),
        ("4x:384x512x640", "no operator '4x'; use one of"),
        ("gem:384x512x640", "no operator 'gem'; use one of gemm"),
        ("softmax:64x128:f16", "'f16'"),
        ("conv2d:1x28x28x64x64x3:s0", "stride of 0"),
        ("gmm_511", "gmm_512"),
        ("matmul:1;2", "no operator"),
    ],
)
def test_what_is_no_workload_is_refused_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        workload_of(text)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("conv2d:1x3x3x8x8x7:float16", "1x-3x-3x8"),
        ("conv2d:1x3x3x8x8x4", "1x0x0x8"),
        ("dwconv2d:1x3x3x8x7", "1x-3x-3x8"),
        ("conv1d_nlc:1,3,8,8,7", "1x-3x8"),
        ("conv2d_nhwc:1,8,8,8,8,3,1,1,9", "1x-8x-8x8"),
        ("conv2d_nhwc_bn_relu:1,3,3,8,8,7,1,0", "1x-3x-3x8"),
        ("conv2d_transpose_nhwc:1,1,1,8,8,3,1,2", "1x-1x-1x8"),
        ("conv2d_capsule_nhwijc:1,3,3,8,8,7", "1x-3x-3x4x4x8"),
        ("conv3d_ndhwc:1,3,3,3,8,8,7", "1x-3x-3x-3x8"),
        ("matmul:8,8,0", "8x0"),
    ],
)
def test_an_operator_on_nothing_is_refused_with_what_would_be_left(text: str, shape: str) -> None:
    with pytest.raises(OptionError, match=f"^{text} has a tensor of {shape}, .*smaller kernel"):
        workload_of(text).func()


def test_a_kernel_as_large_as_the_padded_image_is_taken() -> None:
    assert workload_of("conv2d:1x3x3x8x8x7:p2").func() is not None


def test_the_ten_are_those_of_the_pools() -> None:
    assert {*TEN} == {name for name in WORKLOADS if not name.startswith("tc_")}
    assert on_target(workload_of("gmm_512"), "cuda-tensorcore").space == "cuda-tensorcore"
    assert on_target(workload_of("tc_gmm_1024"), "cuda").space == "post-order-apply"


def test_tuners_differ_from_stock_in_what_their_names_say() -> None:
    stock, ours = TUNERS["stock"], TUNERS["stock+persistent"]
    assert (stock.strategy, stock.cost_model) == (ours.strategy, ours.cost_model)
    assert not stock.registers and not TUNERS["random"].registers and ours.registers
    assert TUNERS["pruner"].registers and not TUNERS["pruner"].persistent
    with pytest.raises(SystemExit, match="pruner-full"):
        tuner_named("prunerfull")
