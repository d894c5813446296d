"""Targets: what a user types, the host's own, attributes as plain values."""

from __future__ import annotations

import json

import pytest

from pruner_ms.errors import TargetError
from pruner_ms.hardware import hardware_for, physical_cores
from pruner_ms.tvm_compat.paths import Target
from pruner_ms.tvm_compat.targets import attrs_of, host_target, known_tags, parse_target


def test_the_hosts_target_is_taken_by_tvm_and_has_a_row():
    attrs = attrs_of(Target(host_target()))
    assert attrs["kind"] == "llvm" and attrs["num-cores"] == physical_cores()
    assert hardware_for(attrs).kind == "cpu"
    assert json.loads(json.dumps(attrs)) == attrs


@pytest.mark.parametrize("text", ["cpu", "llvm", " cpu "])
def test_cpu_means_the_host(text):
    assert attrs_of(parse_target(text)) == attrs_of(Target(host_target()))


def test_a_tag_keeps_its_name():
    attrs = attrs_of(parse_target("nvidia/nvidia-a100"))
    assert attrs["tag"] == "nvidia/nvidia-a100" and attrs["arch"] == "sm_80"
    assert hardware_for(attrs).name == "a100-80"


def test_json_is_taken_and_gets_the_hosts_cores_if_it_names_none():
    attrs = attrs_of(parse_target('{"kind": "llvm", "mcpu": "x86-64-v3"}'))
    assert attrs["mcpu"] == "x86-64-v3" and attrs["num-cores"] == physical_cores()
    assert attrs_of(parse_target('{"kind": "llvm", "num-cores": 7}'))["num-cores"] == 7


def test_features_come_as_plain_strings():
    attrs = attrs_of(Target({"kind": "llvm", "mattr": ["+avx2", "+fma"]}))
    assert attrs["mattr"] == ["+avx2", "+fma"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a100", "close tags: nvidia/nvidia-a100"),
        ("nvidia/nvidia-l40", "close tags: nvidia/nvidia-a40"),
        ("no such thing", "use cpu, cuda, a tag, or JSON"),
        ('{"kind": "llvm"', "not valid JSON"),
        ('{"kind": "nope"}', "does not take"),
        ('{"kind": "llvm", "mcpu": "skylak"}', "knows no CPU 'skylak'.*skylake"),
    ],
)
def test_what_cannot_be_used_says_what_can(text, said):
    with pytest.raises(TargetError, match=said):
        parse_target(text)


def test_cuda_without_a_device_names_tags(monkeypatch):
    def missing(device):
        raise ValueError(f"Cannot detect device `{device}:0`.")

    monkeypatch.setattr(Target, "from_device", staticmethod(missing))
    with pytest.raises(TargetError, match=r"Cannot detect device.*nvidia/nvidia-a100"):
        parse_target("cuda")


def test_tags_are_listed_by_prefix():
    assert "nvidia/nvidia-a100" in known_tags("nvidia/") and known_tags("nope/") == []
