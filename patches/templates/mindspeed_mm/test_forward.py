"""The Gated DeltaNet forwards with the fused operator switched on: same A, o and final state as with the two calls.

Needs an NPU, since the surrounding operators have no CPU form.
"""
import pytest
import torch
import torch.nn.functional as F

if not (hasattr(torch, "npu") and torch.npu.is_available()):
    pytest.skip("needs an NPU", allow_module_level=True)


@pytest.mark.parametrize("offsets", [None, [0, 100, 356, 512]], ids=["fixed", "packed"])
def test_triton_forward_is_the_same(offsets):
    kkt_solve = pytest.importorskip("mindspeed.ops.triton.kkt_solve")
    from mindspeed_mm.fsdp.ops.gdn import chunk_gated_delta_rule as triton_gdn

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 512, 8, 128, device="npu", dtype=torch.bfloat16) for _ in range(3))
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    g = -0.1 * F.softplus(torch.randn(1, 512, 8, device="npu"))
    beta = torch.rand(1, 512, 8, device="npu").to(torch.bfloat16)
    cu_seqlens = None if offsets is None else torch.tensor(offsets, device="npu")
    call = dict(q=q, k=k, v=v, g=g, beta=beta, scale=128**-0.5, initial_state=None, output_final_state=True,
                cu_seqlens=cu_seqlens)
    expected = triton_gdn.chunk_gated_delta_rule_fwd(**call)
    kkt_solve.enable_fused_kkt_solve()
    try:
        got = triton_gdn.chunk_gated_delta_rule_fwd(**call)
    finally:
        kkt_solve.enable_fused_kkt_solve(False)
    assert (kkt_solve.paths.status()["last"] or {}).get("path") == "ascend"
    for name, a, b in zip(("g", "o", "A", "final_state"), expected, got, strict=True):
        assert a.shape == b.shape and a.dtype == b.dtype
        difference = (a.float() - b.float()).abs().max().item()
        assert difference <= 1e-2 * max(1.0, a.float().abs().max().item()), f"{name} differs by {difference}"
