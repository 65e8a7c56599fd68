"""The GPU's loops over time on a GPU, against plain steps."""

from typing import Any

import pytest
import torch
from layer_results import results

from numerate.recurrent import (
    EURNN,
    GRU,
    JANET,
    LSTM,
    NRU,
    OLSTM,
    OMLSTM,
    RNN,
    UMGRU,
    URLSTM,
    CellLayer,
    StatisticalRU,
)
from numerate.recurrent.dispatch import use_loop

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LAYERS: dict[str, tuple[type[CellLayer], int, dict[str, Any]]] = {
    "UR-LSTM": (URLSTM, 200, {}),
    "UR-LSTM 512": (URLSTM, 512, {}),
    "LSTM": (LSTM, 200, {}),
    "GRU": (GRU, 80, {}),
    "GRU of a size for cuDNN": (GRU, 3000, {}),
    "two directions": (URLSTM, 40, {"bidirectional": True}),
    "JANET in one block": (JANET, 80, {}),
    "UR-LSTM in one block": (URLSTM, 80, {}),
    "RNN": (RNN, 100, {}),
    "O-LSTM": (OLSTM, 200, {}),
    "OM-LSTM": (OMLSTM, 80, {"downsize": 8, "bidirectional": True}),
    "UM-GRU 512": (UMGRU, 512, {}),
    "UR-LSTM too large for the registers": (URLSTM, 2000, {}),
    "NRU": (NRU, 200, {"memory_size": 256, "heads": 4}),
    "NRU 512": (NRU, 512, {"memory_size": 256, "heads": 4}),
    "NRU in one block": (NRU, 80, {"memory_size": 64, "heads": 4}),
    "NRU as printed": (NRU, 80, {"memory_size": 64, "heads": 4, "head_inputs": "xhm", "head_reduce": "sum"}),
    "NRU, ReLU": (NRU, 200, {"memory_size": 256, "heads": 4, "relu_heads": True}),
    "NRU, ReLU, in one block": (NRU, 80, {"memory_size": 64, "heads": 4, "relu_heads": True}),
    "NRU 1229, ReLU": (NRU, 1229, {"memory_size": 256, "heads": 4, "relu_heads": True}),
    "SRU": (StatisticalRU, 40, {"statistics_size": 48, "summary_size": 32}),
    "SRU of psMNIST": (StatisticalRU, 80, {"statistics_size": 200, "summary_size": 64, "learn_scales": True}),
    "SRU in two directions": (StatisticalRU, 40, {"activation": "tanh", "bidirectional": True, "append_input": True}),
    "EURNN": (EURNN, 1024, {"eps": 0.01}),
    "EURNN 2048": (EURNN, 2048, {}),
    "EURNN in two directions": (EURNN, 64, {"bidirectional": True}),
    "EURNN, multiplied out": (EURNN, 128, {"dense": True}),
    "EURNN too large for the registers": (EURNN, 4096, {"dense": False}),
    "NRU too large for the registers": (NRU, 1229, {"memory_size": 256, "heads": 4, "head_inputs": "xhm"}),
}


@on_gpu
@pytest.mark.parametrize("kind", [URLSTM, LSTM, NRU], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_the_device_autocast_stores_numbers_of_that_type(kind: type[CellLayer], dtype: torch.dtype) -> None:
    layer, x = kind(3, 80).cuda(), torch.randn(20, 37, 3, device="cuda")
    expected = results(layer, x, "plain")
    with torch.autocast("cuda", dtype):
        plain, found = results(layer, x, "plain"), results(layer, x, "native")
    for wanted, rough, got in zip(expected, plain, found):
        assert got.dtype == torch.float32
        # the NRU's gradients in bfloat16 are 4 to 6 % off in plain steps too
        assert (wanted - got).norm() <= torch.fmax(5e-2 * wanted.norm(), 1.5 * (wanted - rough).norm())


@on_gpu
def test_on_the_device_second_derivatives() -> None:
    layer, x = URLSTM(3, 40).cuda(), torch.randn(20, 5, 3, device="cuda")
    found = []
    for mode in ("plain", "native"):
        with use_loop(mode):
            loss = layer(x)[0].square().sum()
        gradient = torch.autograd.grad(loss, list(layer.parameters()), create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in gradient), list(layer.parameters())))  # type: ignore
    torch.testing.assert_close(*found, atol=1e-2, rtol=1e-2)


ALSO: dict[tuple[torch.dtype, bool], list[str]] = {  # beside all in float32: type, packed or not, and which
    (torch.float32, True): [
        "UR-LSTM",
        "two directions",
        "JANET in one block",
        "OM-LSTM",
        "NRU",
        "NRU in one block",
        "NRU, ReLU",
        "NRU 1229, ReLU",
        "SRU",
        "SRU in two directions",
        "EURNN",
    ],
    (torch.bfloat16, False): [
        "UR-LSTM",
        "UR-LSTM 512",
        "GRU",
        "GRU of a size for cuDNN",
        "O-LSTM",
        "NRU",
        "NRU 512",
        "NRU, ReLU",
        "SRU",
        "EURNN",
    ],
    (torch.bfloat16, True): ["UR-LSTM in one block", "NRU in one block"],
    (torch.float16, False): ["UR-LSTM in one block", "NRU"],
}
ON_DEVICE = [(case, torch.float32, False) for case in LAYERS]
ON_DEVICE += [(case, dtype, packed) for (dtype, packed), cases in ALSO.items() for case in cases]


@on_gpu
@pytest.mark.parametrize(("case", "dtype", "packed"), ON_DEVICE, ids=str)
def test_on_the_device_loops_agree_with_plain_steps(case: str, dtype: torch.dtype, packed: bool) -> None:
    """float32: as exact as TF32 lets the weight's gradient be; others: nearer to it than plain steps of their type."""
    kind, hidden, options = LAYERS[case]
    torch.manual_seed(0)
    layer = kind(3, hidden, **options).cuda().to(dtype)
    reference = kind(3, hidden, **options).cuda()
    reference.load_state_dict(layer.state_dict())
    x = torch.randn(20, 37, 3, device="cuda", dtype=dtype)
    lengths = torch.randint(1, 21, (37,)) if packed else None
    expected, plain = results(reference, x.float(), "plain", lengths), results(layer, x, "plain", lengths)
    found, again = (results(layer, x, "native", lengths) for _ in range(2))
    for wanted, rough, got, twin in zip(expected, plain, found, again):
        exact = 5e-3 if case.endswith("cuDNN") else 2e-3  # whose products are all in TF32
        bound = (exact if dtype == torch.float32 else 2e-2) * wanted.norm()
        # fmax: plain steps of the NRU overflow in float16
        assert (wanted - got.float()).norm() <= torch.fmax(bound, (wanted - rough.float()).norm())
        assert torch.equal(got, twin) or case.endswith("cuDNN")
