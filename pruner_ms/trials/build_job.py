"""Inside a builder's worker: build a module, pack it, return the path."""

from __future__ import annotations

import base64
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pruner_ms.trials.cores import note_cores
from pruner_ms.tvm_compat.no_torch import torch_hidden

FRAGMENTS = "m16n8k8."
"""Scopes whose layout is given by a function that TVM's intrinsics register."""


@dataclass(frozen=True)
class BuildSettings:
    """Settings of a builder's workers; see `PersistentBuilder` for the meanings."""

    f_build: str | Callable[..., Any] | None
    f_export: str | Callable[..., Any] | None
    initializer: Callable[[], None] | None
    pass_config: Mapping[str, Any]

    @property
    def runs_user_code(self) -> bool:
        """Whether workers call a user's functions, which may need torch."""
        return any(f is not None for f in (self.f_build, self.f_export, self.initializer))


def make_handler(settings: BuildSettings) -> Callable[..., str]:
    """Import TVM, look the user's functions up, and return the function that builds."""
    with torch_hidden(not settings.runs_user_code):
        from pruner_ms.tvm_compat import cuda_compiler, intrinsics, operand_names, passes, paths

    cuda_compiler.choose()
    if settings.initializer is not None:
        settings.initializer()
    resolve = paths.ms.utils.get_global_func_with_default_on_worker
    f_build = resolve(settings.f_build, default_build)
    f_export = resolve(settings.f_export, None)

    def handle(mod_text: str, target_text: str, params_text: str | None, folder: str) -> str:
        """Build one module; return the artifact's path.

        `mod_text` and `target_text` are TVM's JSON, `params_text` is base64 of a parameter
        dictionary, `folder` is where the artifact goes.
        """
        mod, target = map(paths.load_own_json, (operand_names.apart(mod_text), target_text))
        tensorized = passes.uses_tensor_instructions(mod_text)
        config = passes.config_for(target, tensorized)
        if FRAGMENTS in mod_text:
            intrinsics.import_intrinsics()
        with target, paths.PassContext(config={**config, **settings.pass_config}):
            params = _read_params(params_text)
            try:
                built = f_build(mod, target, params)
            except Exception:  # the compiler's errors have no common class
                if not tensorized or intrinsics.loaded():
                    raise
                # programs of `wmma` build without the intrinsics
                intrinsics.import_intrinsics()
                built = f_build(mod, target, params)
        if f_export is not None:
            return str(f_export(built))
        note_cores(Path(folder), target)
        return export(built, Path(folder))

    return handle


def default_build(mod: Any, target: Any, _params: Any) -> Any:
    """Build as MetaSchedule's default builder does (s_tir/meta_schedule/builder/local_builder.py).

    CPU kernels prefetch their weights, as in the deployed library. The stock function also imports
    the tensor intrinsics each time; here the caller does, for programs that need them.
    """
    from pruner_ms.trials.prefetch import prefetched
    from pruner_ms.tvm_compat import passes, paths

    return paths.build(prefetched(passes.drop_layout_rewrite(mod), target), target=target)


def export(built: Any, folder: Path) -> str:
    """Write a built module as the archive that runners load, local or over RPC."""
    path = str(folder / "candidate.tar")
    built.export_library(path, fcompile=pack_objects)
    return path


def pack_objects(output: str, files: list[str], **_options: Any) -> None:
    """Put object files into an archive, in process (stock starts `tar -czf` for each module)."""
    with tarfile.open(output, "w") as archive:
        for name in files:
            archive.add(name, arcname=Path(name).name)


setattr(pack_objects, "output_format", "tar")  # noqa: B010  read by `export_library`


def _read_params(text: str | None) -> Any:
    if text is None:
        return None
    from pruner_ms.tvm_compat import paths

    return paths.runtime.load_param_dict(bytearray(base64.b64decode(text)))
