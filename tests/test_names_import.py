"""What `import pruner_ms` costs and loads, with TVM, without it, and with a broken pair."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from pruner_ms.tvm_compat.hook import ImportHook
from pruner_ms.tvm_compat.intrinsics import cheap_stack, for_x86
from pruner_ms.tvm_compat.paths import MS_NAME, Target

ROOT = Path(__file__).parents[1]


WRITTEN, PACKAGE = "tvm.s_tir", MS_NAME.rpartition(".")[0]
"""Where the code below looks for MetaSchedule, and where this TVM has it."""


def _python(code: str, *flags: str) -> dict:
    """Run code in a fresh interpreter; it prints one JSON object as its last line."""
    done = subprocess.run(
        [sys.executable, *flags, "-c", textwrap.dedent(code).replace(WRITTEN, PACKAGE)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_import_loads_neither_tvm_nor_torch_nor_numpy():
    modules = _python("""
        import sys, json, pruner_ms
        print(json.dumps([m for m in ("tvm", "tvm_ffi", "torch", "numpy") if m in sys.modules]))
    """)
    assert modules == []


def test_import_works_without_tvm_and_without_any_package():
    facts = _python(
        """
        import sys, json
        sys.path.insert(0, ".")
        import pruner_ms
        from pruner_ms.tvm_compat.ffi_pairs import installed_pair
        from pruner_ms.errors import VersionPairError
        try:
            import pruner_ms.tvm_compat.paths
        except VersionPairError as error:
            message = str(error)
        print(json.dumps([installed_pair().verdict, pruner_ms.__version__, message]))
        """,
        "-I",
        "-S",
    )
    assert facts[0] == "none"
    assert facts[1][0].isdigit()
    assert "there is no TVM" in facts[2]
    assert "pip install" in facts[2]


@pytest.mark.heavy
def test_import_adds_little_to_the_import_of_tvm_and_loads_nothing_heavy():
    code = """
        import sys, json, time
        import tvm
        before = set(sys.modules)
        start = time.process_time()
        import pruner_ms
        spent = time.process_time() - start
        from pruner_ms.tvm_compat.intrinsics import loaded
        new = sorted({m.partition(".")[0] for m in set(sys.modules) - before})
        ours = sorted(m for m in set(sys.modules) - before if m.startswith("pruner_ms."))
        create = sys.modules["tvm.s_tir.meta_schedule"].SearchStrategy.create
        print(json.dumps([spent, new, ours, loaded(), hasattr(create, "__pruner_ms__")]))
    """
    for _ in range(3):  # a busy machine inflates even CPU time; a slow import stays slow
        spent, new, ours, intrinsics, patched = _python(code)
        if spent < 0.15:
            break
    assert spent < 0.15
    assert "torch" not in new
    assert {m.split(".")[1] for m in ours} == {"errors", "registry", "tvm_compat"}
    assert not intrinsics
    assert patched


@pytest.mark.heavy
def test_the_hook_patches_and_makes_the_intrinsics_cheap_for_stock_strategies():
    facts = _python("""
        import contextlib, inspect, json, sys, time
        import pruner_ms
        import pruner_ms.registry.state as state
        entered = []
        real = state.cheap_stack
        @contextlib.contextmanager
        def counted():
            with real():
                entered.append(inspect.stack is not original)
                yield
        state.cheap_stack = counted
        original = inspect.stack
        import tvm
        from tvm import te
        from pruner_ms.tvm_compat.paths import ms, te_workload, Target
        at_import = list(entered)
        start = time.process_time()
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
        ms.TuneContext(
            te.create_prim_func(te_workload.matmul(16, 16, 16)),
            target=Target({"kind": "cuda", "arch": "sm_80", "thread_warp_size": 32, **limits}),
            space_generator="post-order-apply",
            search_strategy="evolutionary",
        )
        print(json.dumps({
            "at_import": at_import, "entered": entered, "seconds": time.process_time() - start,
            "undone": inspect.stack is original,
            "patched": hasattr(ms.CostModel.create, "__pruner_ms__"),
        }))
    """)
    assert facts["at_import"] == []
    assert facts["entered"] == [True]
    assert facts["undone"]
    assert facts["patched"]


@pytest.mark.heavy
def test_a_cpus_context_leaves_the_intrinsics_of_other_devices_alone():
    facts = _python("""
        import importlib, json, sys
        import pruner_ms
        from tvm import te
        from pruner_ms.tvm_compat.intrinsics import NAMES, loaded
        from pruner_ms.tvm_compat.paths import ms, te_workload, Target

        def context(**target):
            mod = te.create_prim_func(te_workload.matmul(16, 16, 16))
            ms.TuneContext(mod, target=Target(target), space_generator="post-order-apply")

        def parts():
            packages = [n for n in NAMES if n in sys.modules]
            return [n.rpartition(".")[2] for n in sys.modules if n.startswith(NAMES)], len(packages)

        context(**{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
        context(**{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
        cpu = parts()
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
        context(kind="cuda", arch="sm_80", thread_warp_size=32, **limits)
        gpu = parts()
        (package,) = [sys.modules[n] for n in NAMES if n in sys.modules]
        same = package.x86 is sys.modules[package.__name__ + ".x86"]
        print(json.dumps({"cpu": cpu, "gpu": gpu, "same": same, "loaded": loaded()}))
    """)
    names, package_count = facts["cpu"]
    assert "x86" in names and "cuda" not in names and not package_count
    names, package_count = facts["gpu"]
    assert {"x86", "cuda", "rocm"} <= set(names) and package_count == 1
    assert facts["same"] and facts["loaded"]


@pytest.mark.heavy
def test_another_target_inside_the_block_gets_all_intrinsics():
    states = _python("""
        import json, sys
        import pruner_ms
        from tvm.s_tir import meta_schedule as ms
        from tvm.target import Target
        from pruner_ms.tvm_compat.intrinsics import NAMES, enough_for, loaded
        limits = {"max_threads_per_block": 1024, "max_shared_memory_per_block": 49152}
        cuda = Target({"kind": "cuda", "arch": "sm_80", "thread_warp_size": 32, **limits})
        cpu = Target({"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 2})
        said = []
        with enough_for(cpu):
            said.append(loaded())
            with enough_for(cpu):
                said.append(loaded())
            with enough_for(cuda):
                said.append(loaded())
        said.append(loaded())
        print(json.dumps(said))
    """)
    assert states == [False, False, True, True]


@pytest.mark.parametrize(
    ("target", "x86"),
    [
        ({"kind": "llvm", "mtriple": "x86_64-linux-gnu"}, True),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}, False),
        ({"kind": "cuda", "arch": "sm_80"}, False),
        (None, False),
    ],
)
def test_only_x86_does_with_its_own_intrinsics(target, x86):
    made = target and Target(target)
    assert for_x86(made) is x86
    assert for_x86("llvm") is False, "a text is not read here"


BAD_PAIR = """
    import importlib.metadata, json, sys, warnings
    import tvm
    real = importlib.metadata.version
    importlib.metadata.version = (
        lambda name: {"apache-tvm": "0.27.0", "apache-tvm-ffi": "0.1.15.post1"}.get(name)
        or real(name)
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import pruner_ms
    from tvm.s_tir import meta_schedule as ms
    def attempt(call):
        try:
            call()
        except Exception as error:
            return [type(error).__name__, str(error)]
        return ["nothing", ""]
    raised = [
        attempt(lambda: ms.SearchStrategy.create("evolutionary")),
        attempt(lambda: ms.CostModel.create("pacm")),
        attempt(lambda: ms.TuneContext()),
        attempt(lambda: pruner_ms.PrunerSearch()),
    ]
    from tvm import te
    from tvm.s_tir.meta_schedule.testing.te_workload import matmul
    mod = te.create_prim_func(matmul(8, 8, 8))
    def enter():
        with ms.database.MemoryDatabase():
            pass
    raised.append(attempt(lambda: getattr(tvm, "compile", tvm.build)(mod, target="llvm")))
    raised.append(attempt(enter))
    warned = [[w.category.__name__, str(w.message)] for w in caught]
    print(json.dumps([warned, raised]))
"""


@pytest.mark.heavy
def test_a_broken_pair_warns_once_at_import_and_stops_the_first_use_with_the_cure():
    warned, raised = _python(BAD_PAIR)
    ours = [w for w in warned if "apache-tvm-ffi" in w[1]]
    assert [w[0] for w in ours] == ["UserWarning"]
    assert "pip install 'apache-tvm-ffi==0.1.14.post1'" in ours[0][1]
    assert [kind for kind, _ in raised[:4]] == ["VersionPairError"] * 4
    assert all("pip install 'apache-tvm-ffi==0.1.14.post1'" in text for _, text in raised[:4])
    assert [kind for kind, _ in raised[4:]] == ["nothing"] * 2, "who does not tune is left alone"


@pytest.mark.heavy
@pytest.mark.parametrize("first", ["stock", "ours"])
def test_a_pass_that_cplusplus_remembers_does_no_harm_at_exit(first):
    """A static of C++ holds the function that it called first, until after Python's end."""
    calls = _python(f"""
        import json
        {"import tvm" if first == "stock" else "import pruner_ms"}
        from tvm import IRModule, relax, te
        from tvm.target import Target
        from tvm.s_tir import meta_schedule as ms
        from tvm.s_tir.meta_schedule.testing.te_workload import matmul
        called = []
        ms.tir_integration.tune_tir = lambda *args, **kwargs: called.append(sorted(kwargs))
        mod = IRModule({{"main": te.create_prim_func(matmul(8, 8, 8))}})
        def run():
            with Target({{"kind": "llvm", "num-cores": 2}}):
                relax.transform.MetaScheduleTuneTIR("unused", 1)(mod)
        run()
        import pruner_ms
        for _ in range(2):
            pruner_ms.defaults(cost_model="random")
            pruner_ms.unregister()
        run()
        pruner_ms.register()
        pruner_ms.unregister()
        print(json.dumps(len(called)))
    """)
    assert calls == 2


def test_cheap_stack_is_in_force_around_a_module_only(tmp_path, monkeypatch):
    (tmp_path / "looks_at_stack.py").write_text(
        "import inspect\nseen = inspect.stack\nframe = inspect.stack()[0].function\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    original = inspect.stack
    hook = ImportHook({"looks_at_stack": lambda _module: cheap_stack()})
    hook.install()
    try:
        import looks_at_stack
    finally:
        hook.remove()
    assert looks_at_stack.seen is not original
    assert looks_at_stack.frame == "<module>"
    assert inspect.stack is original
    assert type(looks_at_stack.__spec__.loader).__name__ == "SourceFileLoader"
