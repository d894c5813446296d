"""Earlier pools: which of them a pool may be judged with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pruner_ms.errors import OptionError
from pruner_ms.pools.describe import Described
from pruner_ms.pools.library import Library, family_of, same_operator
from pruner_ms.records.pools import Pool


@pytest.fixture(scope="module")
def pool(tiny_pool: Described) -> Described:
    return tiny_pool


def test_a_workload_is_never_judged_with_itself(pools: dict[str, Pool], pool: Described) -> None:
    everything = list(pools.values())
    said: list[str] = []
    past = Library(everything, everything).past(pools["pool"], pool, said.append)
    assert [p.name for p in past.train_from] == ["small.llvm-x86-64-v3-1"]
    assert [p.name for p in past.platform_from] == ["tiny.llvm-x86-64-v2-1"]
    assert said == [
        "tiny.llvm-x86-64-v3-1: --train-from goes without tiny.llvm-x86-64-v3-1, "
        "tiny.llvm-x86-64-v2-1, of the same workload",
        "tiny.llvm-x86-64-v3-1: --platform-from goes without tiny.llvm-x86-64-v3-1, "
        "small.llvm-x86-64-v3-1, of the same platform",
    ]
    # neither name nor module alone may slip through
    for change in ({"name": "renamed"}, {"workload": ("0", "")}):
        pool_half = replace(pools["pool"].halves[0], **change)
        changed = Pool("changed", (pool_half,))
        with pytest.raises(
            OptionError, match=r"leaves nothing to learn from for tiny.*name others"
        ):
            Library([changed]).past(pools["pool"], pool, said.append)


def test_another_machine_is_another_platform(pools: dict[str, Pool], pool: Described) -> None:
    library = Library([], [pools["pool"]])
    with pytest.raises(OptionError, match=r"--platform-from leaves nothing .* same platform"):
        library.past(pools["pool"], pool, print)
    elsewhere = replace(pool, machine="another", _cache={})
    (other,) = library.past(pools["pool"], elsewhere, print).platform_from
    assert other.name == pool.name
    assert other.platform != elsewhere.platform
    unknown = replace(pool, machine="", _cache={})
    with pytest.raises(OptionError, match="same platform"):
        library.past(pools["pool"], unknown, print)


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (("gmm_512", "tc_gmm_1024", "gmm_128x768x3072", "tbg_1", "tc_bmm_12", "matmul:8,8,8"),
         "matrix product"),
        (("c2d_56_64", "cbr_28_128", "dep_112_32", "tc_c2d_28_128", "conv2d_nhwc:1,2", "DEP"),
         "convolution"),
        (("sfm_512", "softmax_mn:8,8"), "softmax"),
        (("nrm_1024", "norm_bmn:1,2,3"), "normalisation"),
        (("work.1", "work.2"), "work"),
    ],
)  # fmt: skip
def test_families(names: tuple[str, ...], family: str) -> None:
    assert {family_of(name) for name in names} == {family}


def test_operators_are_held_out(pools: dict[str, Pool], pool: Described) -> None:
    def named(name: str) -> Pool:
        pool_half = replace(pools["own"].halves[0], name=name)
        return Pool(name, (pool_half,))

    judged = named("gmm_64")
    assert same_operator(judged, named("tbg_8"))
    assert Library([named("sfm_8")], hold_out="operator").train_from
    library = Library([named("c2d_8"), named("gmm_8")], hold_out="workload")
    with pytest.raises(OptionError, match="of the same operator"):
        Library([named("tbg_8")], hold_out="operator").past(judged, pool, print)
    with pytest.raises(OptionError, match="--hold-out 'shape' cannot be used; give one of worklo"):
        Library(library.train_from, hold_out="shape")
