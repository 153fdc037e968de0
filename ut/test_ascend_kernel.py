"""The fused Ascend kernel as compiled for A2/A3 and executed by npusim: no device, but the emitted program.

`check` fails on a race, an overrun, a deadlock, a read of what nothing wrote, or a missed accuracy bound.
"""
from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton.backends.ascend", reason="needs triton-ascend (pip install triton-ascend==3.2.0)")
pytest.importorskip("ascendnpuir", reason="needs the NPU compiler (pip install ascendnpu-ir==1.2.0)")
from npusim.isolate import call  # noqa: E402
from ut.compiled import check  # noqa: E402

BF16, FP16 = torch.bfloat16, torch.float16
GROUP = 16 * 64  # tokens of a full group of chunks

# name: (kernels that must run, regime and shape)
CASES = {
    "bf16_groups": ("chunks", dict(T=GROUP, H=1, HV=1, dtype=BF16)),
    "bf16_groups_and_tail": ("chunks heads", dict(T=GROUP + 70, H=2, HV=2, K=64, dtype=BF16)),
    "fp16_groups_window_of_8": ("chunks", dict(T=GROUP, H=1, HV=9, K=16, dtype=FP16)),
    "fp32_groups_repeated_keys": ("chunks", dict(regime="repeated", T=GROUP, H=1, K=64)),
    "bf16_full_heads": ("heads", dict(T=128, H=16, HV=16, K=32, dtype=BF16)),
    "fp32_beta_2": ("heads", dict(regime="beta2_repeated", T=64, H=1, K=16)),
    "bf16_shared_keys": ("heads", dict(B=2, T=50, H=2, HV=6, K=40, dtype=BF16)),
    "packed": ("heads", dict(T=150, H=1, HV=2, K=64, cu_seqlens=[0, 0, 70, 71, 135], dtype=BF16)),
    "packed_groups": (
        "chunks heads", dict(T=GROUP + 200, H=1, HV=2, K=16, cu_seqlens=[0, 37, GROUP + 101], dtype=FP16)),
    "wide_fp32_keys": ("heads", dict(T=20, H=1, K=256)),
    "k_192": ("heads", dict(T=70, H=1, K=192, dtype=BF16)),
    "no_gates": ("heads", dict(T=64, H=2, K=16, with_g=False, with_beta=False)),
    "no_decay": ("chunks", dict(T=GROUP, H=1, K=16, with_g=False, dtype=BF16)),
    "steep_decay": ("heads", dict(regime="steep_decay", T=100, H=1, K=16)),
    "head_first": ("chunks heads", dict(T=GROUP + 40, H=1, HV=2, K=16, head_first=True, output_head_first=True)),
    "A3": ("heads", dict(target="Ascend910_9382", T=70, H=1, dtype=BF16)),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_kernel(case, device):
    if device != "cpu":
        pytest.skip(f"runs on the CPU, not on {device}")
    kernels, shape = CASES[case]
    names = call(check, "mindspeed_kkt_plugin.kernels.ascend", **shape)
    assert names == [f"kkt_solve_{kind}" for kind in kernels.split()]
