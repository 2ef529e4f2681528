import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from encoders import POSITIONS, make_encoder
from fala_export.graph.cost import cost


def test_operations_and_parameters_equal_torchs_counts():
    encoder = make_encoder("attention", layers=1)
    counted = cost(encoder.graph(), encoder.longest)
    for length in (16, POSITIONS):
        ids = torch.ones(1, length, dtype=torch.long)
        # torch counts attention only as products, not as one fused operator.
        with FlopCounterMode(display=False) as counter, sdpa_kernel([SDPBackend.MATH]):
            encoder.module(ids, ids)
        # Nor does it count a matrix times a vector: the attention's query.
        query = encoder.module.end.pooler.query.numel()
        assert counted["flops"][str(length)] == counter.get_total_flops() + 2 * length * query
    assert list(counted["flops"]) == ["16", "64"]
    weights = sum(part.numel() for part in encoder.module.parameters())
    # A graph has a few constants besides. Equal ones are stored once, such as biases of zeros.
    assert 0.94 * weights < counted["parameters"] <= 1.005 * weights
