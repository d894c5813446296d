"""What a pool can be ranked by: our drafts and models, stock ones, and chance.

A ranker takes a `Case` and gives a cost for each record to rank (less is faster; infinite where it
calls the schedule invalid) and the seconds per candidate that the ranking takes, training not
included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from pruner_ms.draft.calibrate import fit
from pruner_ms.model.backend import require_torch
from pruner_ms.pools import baselines, stock, verifiers
from pruner_ms.pools.case import Case, Ranked
from pruner_ms.pools.stock import require_xgboost
from pruner_ms.pools.verifiers import Design

Ranker: TypeAlias = Callable[[Case], Ranked]


@dataclass(frozen=True)
class Traits:
    """What a model is besides its ranking.

    Attributes
    ----------
    needs
        What raises where its package is not installed.
    earlier
        What it learns from before the pool's own records: "none" where it learns nothing, or
        formulas; "alone" where it learns and can have no earlier pools; "own" of `--train-from` if
        given; "all" of `--platform-from` too, and it needs some.
    ablation
        Whether it is ours with a part left out, for those who ask for it by name.
    """

    needs: Callable[[str], None] | None = None
    earlier: str = "none"
    ablation: bool = False


def _drafted(variant: str, case: Case) -> Ranked:
    """A formula as it is: the interpretation of the decisions and arithmetic on arrays."""
    scored, seconds = case.pool.draft(variant)
    return scored.latency[case.rows], seconds


def _calibrated(case: Case) -> Ranked:
    """The draft with its weights re-fitted."""
    scored, seconds = case.pool.draft("ours")
    calibration = fit(scored.take(case.train), case.pool.latency[case.train])
    cost, spent = case.timed(lambda: calibration.latency(scored.take(case.rows)))
    return cost, seconds + spent


def _random(case: Case) -> Ranked:
    return case.timed(lambda: np.random.default_rng([case.seed, 1]).random(len(case.rows)))


_LATER = Design(transfer=True)
_PUBLISHED = Design(arch="published", recipe="published", later="published-finetune")

DESIGNS: Mapping[str, Design] = MappingProxyType(
    {
        "pacm": Design(),
        "published": _PUBLISHED,
        "pacm-offline": Design(mode="offline", transfer=True),
        "pacm-finetune": _LATER,
        "moa-pacm": Design(mode="moa", transfer=True),
        "moa-m0": Design(mode="moa", m=0.0, transfer=True),
        "pacm-statement": Design(view=verifiers.statements_only),
        "pacm-tokens": Design(view=verifiers.tokens_only),
        "pacm-no-order": Design(view=verifiers.without_order),
        "pacm-no-shares": Design(view=verifiers.without_shares),
        "pacm-no-calibration": Design(calibrates=False),
        "pacm-no-draft": Design(corrects=False, view=verifiers.without_shares),
    }
)
"""Our networks, by the names that `--model` takes. No momentum is `moa-m0`: the source becomes what
was learned last. `calibrated` is that part of `pacm` which needs no network."""

RANKERS: Mapping[str, Ranker] = MappingProxyType(
    {
        "draft": partial(_drafted, "ours"),
        "released": partial(_drafted, "released"),
        "paper": partial(_drafted, "paper"),
        "calibrated": _calibrated,
        **{name: partial(verifiers.ranked, design) for name, design in DESIGNS.items()},
        "xgb": partial(stock.xgb, 0),
        "xgb-stock": partial(stock.xgb, 100),
        "mlp": stock.mlp,
        "tensetmlp": partial(baselines.ranked, "tensetmlp"),
        "tlp": partial(baselines.ranked, "tlp"),
        "mtl-tlp": partial(baselines.several, "mtl-tlp"),
        "random": _random,
    }
)
"""By the names that `pruner-ms pool eval --model` takes."""

_OWN, _ALL = Traits(require_torch, "own"), Traits(require_torch, "all")
_PART = Traits(require_torch, "own", ablation=True)

TRAITS: Mapping[str, Traits] = MappingProxyType(
    {
        "calibrated": Traits(earlier="alone"),
        "pacm": _OWN,
        "published": _OWN,
        "pacm-offline": _ALL,
        "pacm-finetune": _ALL,
        "moa-pacm": _ALL,
        "moa-m0": Traits(require_torch, "all", ablation=True),
        "pacm-statement": _PART,
        "pacm-tokens": _PART,
        "pacm-no-order": _PART,
        "pacm-no-shares": _PART,
        "pacm-no-calibration": _PART,
        "pacm-no-draft": _PART,
        "xgb": Traits(require_xgboost, "own"),
        "xgb-stock": Traits(require_xgboost, "own"),
        "mlp": _OWN,
        "tensetmlp": _OWN,
        "tlp": _OWN,
        "mtl-tlp": _ALL,
    }
)
"""Of those that are more than a formula."""


def traits(model: str) -> Traits:
    """Traits of a model of `RANKERS`."""
    return TRAITS.get(model, Traits())
