"""What a network may differ by is said by all its functions, whichever of them are tuned."""

from __future__ import annotations

from pruner_ms.integration import verify
from pruner_ms.integration.options import TuneOptions
from pruner_ms.integration.program import load


def test_the_tolerance_of_a_network_is_of_all_its_tasks(stripped_file, target, net, monkeypatch):
    lengths = []

    def noted(reference, outputs, length, *others):
        lengths.append(length)
        return verify.Check("x", True)

    monkeypatch.setattr(verify, "verify_network", noted)
    network_length = verify.network_length(net.tasks)
    for chosen in ({}, {"ops": "softmax"}, {"shard": "1/2"}):
        program = load(stripped_file, target, TuneOptions(**chosen), None)
        assert (verify.network_length(program.tasks) < network_length) is bool(chosen)
        program.check(program.expected(net.plain, target, 0), net.plain, target)
    assert set(lengths) == {network_length}
