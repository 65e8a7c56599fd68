"""A layer between an embedding and the words it predicts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from numerate.recurrent import LSTM, WordModel


@pytest.mark.parametrize("shared", [True, False])
def test_logits_are_the_embedded_words_through_layer_and_readout(shared):
    model = WordModel(LSTM(6, 6 if shared else 4), 11, shared=shared)
    ids = torch.randint(11, (5, 3))
    logits, state = model(ids)
    output, expected = model.layer(model.embedding.weight[ids])
    own: Any = model.weight
    weight = model.embedding.weight if own is None else own
    assert (model.weight is None) == shared
    torch.testing.assert_close(logits, F.linear(output, weight, model.bias))
    torch.testing.assert_close(state, expected)
    started = model(ids, model.initial_state(ids))[0]
    torch.testing.assert_close(started, logits)


def test_embeddings_are_dropped_in_training_alone():
    model, ids = WordModel(LSTM(6, 6), 11, dropout=0.5), torch.randint(11, (5, 3))
    assert not torch.equal(model(ids)[0], model(ids)[0])
    assert torch.equal(model.eval()(ids)[0], model(ids)[0])


def test_layers_that_cannot_share_are_refused():
    with pytest.raises(ValueError, match="as many outputs as inputs, got 4 and 6"):
        WordModel(LSTM(6, 4), 11)
