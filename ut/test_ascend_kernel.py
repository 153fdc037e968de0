"""The fused Ascend kernel as compiled for A2/A3 and executed by npusim: no device, but the emitted program.

`check` fails on a race, an overrun, a deadlock, a read of what nothing wrote, or a missed accuracy bound.
"""
from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton.backends.ascend", reason="needs triton-ascend (pip install triton-ascend==3.2.0)")
pytest.importorskip("ascendnpuir", reason="needs the NPU compiler (pip install ascendnpu-ir==1.2.0)")
from npusim.isolate import call  # noqa: E402
from ut.ascend_launch import launch  # noqa: E402
from ut.compiled import check, resources_by_width, results_by_width  # noqa: E402
from ut.hostile.compiled import bad_token  # noqa: E402

BF16, FP16 = torch.bfloat16, torch.float16
GROUP = 16 * 64  # tokens of a task of one head

# name: regime and shape
CASES = {
    "bf16_several_tasks_a_core": dict(T=GROUP, H=8, HV=8, K=16, dtype=BF16),
    "bf16_groups": dict(T=3 * GROUP, H=1, HV=1, dtype=BF16),
    "bf16_groups_and_tail": dict(T=GROUP + 70, H=2, HV=2, K=64, dtype=BF16),
    "fp16_9_heads": dict(T=GROUP, H=1, HV=9, K=16, dtype=FP16),
    "bf16_odd_lanes": dict(T=7 * 64, H=1, K=16, dtype=BF16),
    "bf16_several_tasks_of_3_heads": dict(T=GROUP + 200, H=1, HV=3, K=16, dtype=BF16),
    "fp32_groups_repeated_keys": dict(regime="repeated", T=3 * GROUP, H=1, K=64),
    "bf16_full_heads": dict(T=128, H=16, HV=16, K=32, dtype=BF16),
    "fp32_beta_2": dict(regime="beta2_repeated", T=64, H=1, K=16),
    "bf16_shared_keys": dict(B=2, T=50, H=2, HV=6, K=40, dtype=BF16),
    "packed": dict(T=150, H=1, HV=2, K=64, cu_seqlens=[0, 0, 70, 71, 135], dtype=BF16),
    "packed_groups": dict(T=2 * GROUP + 200, H=1, HV=2, K=16, cu_seqlens=[0, 37, 2 * GROUP + 101], dtype=FP16),
    "wide_fp32_keys": dict(T=20, H=1, K=256),
    "k_192": dict(T=70, H=1, K=192, dtype=BF16),
    "no_gates": dict(T=64, H=2, K=16, with_g=False, with_beta=False),
    "no_decay": dict(T=GROUP, H=1, K=16, with_g=False, dtype=BF16),
    "steep_decay": dict(regime="steep_decay", T=100, H=1, K=16),
    "head_first_groups_amid_a_share": dict(B=2, T=70, H=4, HV=20, K=16, dtype=BF16, head_first=True,
                                           output_head_first=True),
    "bf16_8_lanes_no_tails": dict(B=4, T=512, H=1, K=16, dtype=BF16),
    "bf16_wide": dict(T=GROUP, H=4, HV=8, K=16, dtype=BF16),
    "fp32_wide_repeated_keys": dict(regime="repeated", T=GROUP, H=8, K=16),
    "bf16_wide_steep_decay": dict(regime="steep_decay", T=GROUP, H=8, K=16, dtype=BF16),
    "wide_odd_lanes_and_tails": dict(T=GROUP + 6, H=1, HV=7, K=16, cu_seqlens=[0, 250, 1000], dtype=FP16),
    "wide_A3_head_first": dict(target="Ascend910_9382", T=GROUP - 24, H=4, HV=8, K=16, dtype=BF16, head_first=True,
                               output_head_first=True),
    "head_first": dict(T=GROUP + 40, H=1, HV=2, K=16, head_first=True, output_head_first=True),
    "A3": dict(target="Ascend910_9382", T=70, H=1, dtype=BF16),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_kernel(case, device):
    if device != "cpu":
        pytest.skip(f"runs on the CPU, not on {device}")
    names = call(check, "mindspeed_kkt_plugin.kernels.ascend", **CASES[case])
    assert names == ["kkt_solve"]


@pytest.mark.parametrize("regime", ["random", "steep_decay"])
def test_a_chunk_has_the_same_bits_at_every_width(regime, device):
    if device != "cpu":
        pytest.skip(f"runs on the CPU, not on {device}")
    found = call(results_by_width, regime, T=300, H=2, HV=4, K=16)
    assert set(found) == {8, 16, 32}
    for result in found.values():
        assert torch.equal(result, found[8])


@pytest.mark.parametrize("where, bad", [("g", float("nan")), ("k", float("inf")), ("beta", float("nan"))])
def test_a_bad_token_among_32_lanes_spoils_its_own_chunk_and_head_only(where, bad, device):
    if device != "cpu":
        pytest.skip(f"runs on the CPU, not on {device}")
    shape = dict(T=512, H=8, K=16)
    assert launch(B=2, T=512, H=8, num_cores=2).constants["LANES"] == 32
    clean, out = call(bad_token, "mindspeed_kkt_plugin.kernels.ascend", where, bad, **shape)
    kept = torch.ones(2, 512, 8, dtype=torch.bool)
    kept[1, 64:128, 0] = False
    assert torch.equal(out[kept], clean[kept])
    assert not out[~kept].isfinite().all()


@pytest.mark.parametrize("K, dtype", [(128, "bf16"), (256, "fp32")])
def test_each_width_fits_and_is_shared_by_both_vector_cores(K, dtype):
    found = call(resources_by_width, "Ascend910B2", K, dtype)
    assert set(found) == {8, 16, 32}
    for lanes, needed in found.items():
        assert needed.split == "shared", lanes
        assert all(needed.used_bits[memory] <= needed.limit_bits[memory] for memory in ("UB", "L1", "L0C")), lanes
