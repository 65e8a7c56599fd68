"""Parameter counts of the papers' tasks, with a linear readout."""

import numpy as np
import pytest
import torch

from numerate.recurrent import DNC, EURNN, GORU, GRU, JANET, LSTM, NRU, RMA, RMC, RNN, StatisticalRU

COPY, DIGITS, LETTERS = (10, 9), (1, 10), (50, 50)
ONE = {"recurrent_bias": False}


def nru(memory: int, heads: int = 4) -> dict[str, int]:
    return {"memory_size": memory, "heads": heads}


@pytest.mark.parametrize(
    ("layer", "size", "task", "options", "count"),
    [
        (RNN, 143, COPY, {"layer_norm": True}, 23_604),
        (LSTM, 70, COPY, ONE, 23_319),
        (LSTM, 70, COPY, {}, 23_599),
        (GRU, 82, COPY, ONE, 23_625),
        (JANET, 101, COPY, {}, 23_542),
        (NRU, 80, COPY, nru(64), 23_569),
        (NRU, 68, COPY, nru(81), 23_501),
        (NRU, 28, COPY, nru(144), 23_377),
        (EURNN, 1024, COPY, {}, 25_609),
        (GORU, 64, COPY, {}, 11_081),
        (GORU, 128, COPY, {}, 38_601),
        (RNN, 399, DIGITS, {"layer_norm": True}, 164_797),
        (LSTM, 201, DIGITS, ONE, 165_232),
        (LSTM, 200, DIGITS, {}, 164_410),
        (GRU, 232, DIGITS, ONE, 165_194),
        (JANET, 284, DIGITS, {}, 165_298),
        (NRU, 212, DIGITS, nru(256), 165_554),
        (EURNN, 1024, DIGITS, {}, 17_418),
        (EURNN, 1024, DIGITS, {"complex": True}, 24_586),
        (EURNN, 1000, DIGITS, {"capacity": 2}, 999 + 1000 + 1000 + 10_010),
        (EURNN, 1000, DIGITS, {"capacity": 2, "complex": True}, 2 * 999 + 1000 + 2000 + 1000 + 10_010),
        (GORU, 256, DIGITS, {}, 136_202),
        (RNN, 1416, LETTERS, {"layer_norm": True}, 2_150_954),
        (LSTM, 702, LETTERS, ONE, 2_149_574),
        (GRU, 813, LETTERS, ONE, 2_147_996),
        (JANET, 1000, LETTERS, {}, 2_152_050),
        (NRU, 1229, LETTERS, nru(256), 2_151_340),
        (EURNN, 2048, LETTERS, {}, 218_162),
        (GORU, 1024, LETTERS, {}, 2_310_194),
        *((NRU, 200, DIGITS, nru(256, k), n) for k, n in [(1, 123_772), (4, 155_762), (9, 189_580), (16, 225_226)]),
        *((NRU, 200, DIGITS, nru(m), n) for m, n in [(100, 88_898), (400, 223_378)]),
        *((NRU, d, DIGITS, nru(256), n) for d, n in [(50, 57_662), (100, 85_362), (300, 246_162)]),
    ],
)
def test_sizes_of_the_experiments(layer, size, task, options, count):
    inputs, outputs = task
    model = layer(inputs, size, device="meta", **options)
    assert sum(p.numel() for p in model.parameters()) + (size + 1) * outputs == count


def test_statistical_unit():
    n, o, phi, r, scales = 3, 7, 20, 6, 5
    model = StatisticalRU(n, o, statistics_size=phi, summary_size=r)
    expected = scales * phi * r + r + (n + r + 1) * phi + (scales * phi + 1) * o
    assert sum(p.numel() for p in model.parameters()) == expected


@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (EURNN, {}),
        (EURNN, {"capacity": 2}),
        (GORU, {}),
        (LSTM, {"num_layers": 2}),
        (NRU, {"memory_size": 16, "heads": 4}),
        (StatisticalRU, {"statistics_size": 4, "summary_size": 2}),
        (DNC, {"slots": 3, "width": 2, "outputs": 5}),
        (RMC, {"slots": 3, "heads": 2, "blocks": 2}),
        (RMA, {"encoder": (4, 2), "rows": 3, "top_k": 2}),
    ],
    ids=str,
)
def test_whole_numbers_of_numpy_are_whole_numbers(layer, options):
    def of_numpy(value):
        kinds = {int: np.int64, tuple: lambda widths: tuple(map(np.int64, widths))}
        return kinds.get(type(value), lambda same: same)(value)

    one, two = layer(3, 8, **options), layer(np.int64(3), np.int64(8), **{k: of_numpy(v) for k, v in options.items()})
    assert repr(two) == repr(one)
    two.load_state_dict(one.state_dict())
    x = torch.randn(4, 2, 3)
    torch.testing.assert_close(two(x), one(x))


def test_meta_layers_hold_no_memory():
    assert all(p.device == torch.device("meta") for p in LSTM(3, 4, device="meta").parameters())
