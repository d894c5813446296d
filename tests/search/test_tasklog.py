"""A search writes into the log of its own run, whatever ran in the process before."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from pruner_ms.search.tasklog import task_logger
from pruner_ms.tvm_compat.paths import MS_NAME


def test_lines_go_to_the_log_of_the_newest_run(tmp_path: Path) -> None:
    loggers_of = import_module(f"{MS_NAME}.logging").get_loggers_from_work_dir
    runs = (["wanted"], ["another", "wanted"], ["wanted"])  # the first and the last share a logger
    for number, names in enumerate(runs):
        made = loggers_of(str(tmp_path / str(number)), names)
        assert task_logger("wanted") is made[names.index("wanted")]
        task_logger("wanted").info("the words of run %d", number)
    for number, names in enumerate(runs):
        (log,) = (tmp_path / str(number) / "logs").glob(f"*task_{names.index('wanted')}_wanted.log")
        assert f"the words of run {number}" in log.read_text()
    assert task_logger("never tuned").name == MS_NAME
