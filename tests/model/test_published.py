"""The published network: every layer's size, what it does with a batch of one, its recipe."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pruner_ms.errors import OptionError  # noqa: E402
from pruner_ms.features.dataflow import TOKEN_NAMES, TokenType  # noqa: E402
from pruner_ms.features.pack import concatenate, features_of  # noqa: E402
from pruner_ms.features.statement import STATEMENT_NAMES  # noqa: E402
from pruner_ms.model.network import to_inputs  # noqa: E402
from pruner_ms.model.published import (  # noqa: E402
    PARAMETERS,
    STATEMENT_COLUMNS,
    STATEMENT_WIDTH,
    TOKEN_COLUMNS,
    TOKEN_WIDTH,
    TOKENS,
    Published,
    published_statements,
    published_tokens,
)
from pruner_ms.model.recipe import RECIPES, Recipe, recipe_named  # noqa: E402
from pruner_ms.model.verifier import Verifier  # noqa: E402
from tests.support.programs import elementwise, tiled_gemm  # noqa: E402

LAYERS = {
    "statements": 174 * 256 + 256 + 256 * 256 + 256,
    "dataflow": 23 * 64 + 64 + 64 * 128 + 128,
    "attention": 3 * (128 * 128 + 128) + 128 * 128 + 128,
    "fuse": 384 * 256 + 256,
    "norm": 2 * 256,
    "deep": 2 * (256 * 256 + 256),
    "head": 256 + 1,
    "statement_scaler": 0,
    "token_scaler": 0,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    tiles = 2 ** rng.integers(0, 7, (160, 3))
    i, j, k = np.log2(tiles).T
    cost = 0.5 * np.abs(j - 4) + 0.3 * np.abs(i - j) + 0.2 * (k - 4) ** 2
    return features_of(tiled_gemm(tiles)), 1e-3 * np.exp(cost)


def test_it_has_the_published_parameters_layer_by_layer():
    net = Published()
    counts = {n: sum(p.numel() for p in layer.parameters()) for n, layer in net.named_children()}
    assert counts == LAYERS
    assert sum(counts.values()) == PARAMETERS == 417_409
    assert net.attention.num_heads == 4 and (STATEMENT_WIDTH, TOKENS, TOKEN_WIDTH) == (174, 8, 23)


def test_our_columns_stand_in_published_ones_each_once():
    for table, names, width in (
        (STATEMENT_COLUMNS, STATEMENT_NAMES, STATEMENT_WIDTH),
        (TOKEN_COLUMNS, TOKEN_NAMES, TOKEN_WIDTH),
    ):
        assert set(table.values()) <= set(names) and len(set(table.values())) == len(table)
        assert all(0 <= column < width for column in table)


def test_inputs_have_the_published_shape_and_the_tokens_that_move_most(data):
    x = to_inputs(data[0].rows(slice(0, 5)), 1)
    assert published_statements(x.statements[0]).shape == (5, x.statements.shape[2], 174)
    assert published_tokens(x.tokens[0], x.token_mask[0], x.token_type[0]).shape == (5, 8, 23)
    moved, start = TOKEN_NAMES.index("moved"), TOKEN_NAMES.index("from_shared")
    values = torch.zeros(1, 11, len(TOKEN_NAMES))
    values[0, :, moved], values[0, :, start] = torch.arange(11.0), 1.0
    mask, kind = torch.ones(1, 11, dtype=torch.bool), torch.full((1, 11), int(TokenType.LOAD))
    mask[0, 10], kind[0, 5] = False, int(TokenType.RESULT)
    placed = published_tokens(values, mask, kind)[0]
    assert sorted(placed[:, 7].tolist()) == list(range(2, 10))
    written = placed[:, 7] == 5
    assert placed[written][0, 1:6].tolist() == [0, 0, 0, 0, 1]
    assert (placed[~written][:, 1:6] == torch.tensor([0.0, 1, 0, 1, 0])).all()


def test_a_score_depends_on_no_other_of_the_batch(data):
    batch, seconds = data
    model = Verifier("published", RECIPES["published"])
    model.observe("t", batch.rows(slice(0, 100)), seconds[:100])
    among = model.score("t", concatenate([batch, features_of(elementwise(np.array([64])))]))
    assert model.ready() and np.isfinite(among).all() and (among > 0).all()
    one = model.score("t", batch.rows(slice(9, 10)))
    np.testing.assert_allclose(one, among[9:10], rtol=1e-3)
    before = model.tensors()
    model.score("t", batch)
    after = model.tensors()
    assert all((before[name] == after[name]).all() for name in before), "statistics moved"
    assert (model.uncertainty("t", batch) == 0).all()


@pytest.mark.heavy
def test_its_recipe_learns_to_rank_and_starts_anew_each_time(data):
    batch, seconds = data
    first, second = (Verifier("published", RECIPES["published"], seed=1) for _ in range(2))
    first.observe("t", batch.rows(slice(0, 120)), seconds[:120])
    second.observe("t", batch.rows(slice(0, 60)), seconds[:60])
    second.learn(least=1)
    second.observe("t", batch.rows(slice(60, 120)), seconds[60:120])
    scores = [m.score("t", batch.rows(slice(120, None))) for m in (first, second)]
    np.testing.assert_array_equal(*scores)
    ranks = [np.argsort(np.argsort(x)) for x in (scores[0], -seconds[120:])]
    assert np.corrcoef(*ranks)[0, 1] > 0.2  # fifty steps are few


def test_it_scores_without_the_draft_but_falls_back_on_it(data):
    batch, seconds = data
    model = Verifier("published", RECIPES["published"])
    np.testing.assert_allclose(model.score("t", batch, seconds), 1 / seconds)
    model.observe("t", batch, seconds, seconds)
    learned = model.score("t", batch, seconds)
    np.testing.assert_array_equal(learned, model.score("t", batch, 7 * seconds[::-1]))


def test_a_saved_one_is_the_same_and_fits_only_its_recipe(data, tmp_path):
    batch, seconds = data
    model = Verifier("published", RECIPES["published"])
    model.observe("t", batch, seconds)
    model.save(tmp_path / "w.safetensors")
    again = Verifier("published", RECIPES["published-finetune"], seed=3)
    again.load(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(model.score("t", batch), again.score("t", batch))
    with pytest.raises(Exception, match="same recipe"):
        Verifier("published").load(tmp_path / "w.safetensors")


def test_recipes_are_checked():
    assert recipe_named("published").rate == 7e-4 and recipe_named("published").epochs == 50
    with pytest.raises(OptionError, match="published-finetune"):
        recipe_named("none such")
    for wrong in ({"steps": 0}, {"rate": 0.0}, {"optimiser": "lion"}, {"schedule": "step"}):
        with pytest.raises(OptionError, match=next(iter(wrong))):
            Recipe(**wrong)
