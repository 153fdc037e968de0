"""Under torch.compile the operator is one node of the graph, with the shapes and values of an eager call."""
from __future__ import annotations

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin.op import _traced
from ut.inputs import make_inputs

pytestmark = pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs torch >= 2.4")


def around(k, g, beta, cu_seqlens=None, head_first=False):
    A = fused(k * 1.0, g, beta, cu_seqlens, 16, output_head_first=head_first)
    return A.float().square().sum(-1)


@pytest.mark.parametrize("packing", [None, [0, 9, 9, 33]], ids=["fixed", "packed"])
@pytest.mark.parametrize("head_first", [False, True], ids=["token_first", "head_first"])
def test_whole_graph_equals_eager(packing, head_first, device):
    inputs = make_inputs("random", T=40, H=1, HV=2, K=16, chunk_size=16, cu_seqlens=packing, device=device,
                         dtype=torch.bfloat16)
    compiled = torch.compile(around, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs.args[:4], head_first), around(*inputs.args[:4], head_first))


def test_one_graph_serves_several_lengths(device):
    graphs = []

    def count(graph, example):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(around, fullgraph=True, backend=count, dynamic=True)
    for length in (20, 33, 47):
        inputs = make_inputs("random", T=length, H=1, HV=2, K=16, chunk_size=16, device=device)
        assert torch.equal(compiled(*inputs.args[:3]), around(*inputs.args[:3]))
    assert len(graphs) == 1


def test_gradients_of_the_rest_still_flow(device):
    inputs = make_inputs("random", T=20, H=1, K=16, chunk_size=16, device=device)
    weight = torch.ones(16, device=device, requires_grad=True)

    def loss(k, g, beta):
        return (fused(k * weight, g, beta, None, 16) @ weight).sum()

    torch.compile(loss, fullgraph=True, backend="aot_eager")(*inputs.args[:3]).backward()
    expected = fused(*inputs.args).sum((0, 1, 2))
    assert torch.allclose(weight.grad, expected), "only the gradient past the operator may arrive"


@pytest.mark.parametrize("output_head_first", [False, True])
def test_registration_obeys_the_rules_of_custom_operators(output_head_first, device):
    inputs = make_inputs("random", T=20, H=1, HV=2, K=16, chunk_size=16, device=device)
    torch.library.opcheck(_traced, (*inputs.args[:4], None, 16, torch.bfloat16, False, output_head_first),
                          test_utils=("test_schema", "test_faketensor"))
