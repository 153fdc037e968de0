"""The two-call chain as compiled for Ascend A2/A3 and executed by npusim: no device, but the emitted program."""
from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton.backends.ascend", reason="needs triton-ascend (pip install triton-ascend==3.2.0)")
pytest.importorskip("ascendnpuir", reason="needs the NPU compiler (pip install ascendnpu-ir==1.2.0)")
from npusim.isolate import call  # noqa: E402
from ut.compiled import check  # noqa: E402

CASES = {
    "bf16": dict(T=130, H=1, HV=2, dtype=torch.bfloat16),
    "fp32_repeated_keys": dict(regime="repeated", T=100, H=1, K=64),
    "fp32_beta_2": dict(regime="beta2_repeated", T=64, H=1, K=16),
    "fp16_chunk_32": dict(B=2, T=50, H=1, HV=3, K=40, chunk_size=32, dtype=torch.float16),
    "bf16_chunk_16": dict(T=40, H=1, K=32, chunk_size=16, dtype=torch.bfloat16),
    "packed": dict(T=150, H=1, HV=2, K=64, cu_seqlens=[0, 0, 70, 71, 135], dtype=torch.bfloat16),
    "wide_keys": dict(T=20, H=1, K=256, chunk_size=16),
    "no_gates": dict(T=64, H=2, K=16, with_g=False, with_beta=False),
    "steep_decay": dict(regime="steep_decay", T=100, H=1, K=16),
    "head_first": dict(T=40, H=1, HV=2, K=16, chunk_size=32, head_first=True, output_head_first=True),
    "A3": dict(target="Ascend910_9382", T=70, H=1, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("case", CASES)
def test_compiled_chain(case, device):
    if device != "cpu":
        pytest.skip(f"runs on the CPU, not on {device}")
    names = call(check, "mindspeed_kkt_plugin.unfused", **CASES[case])
    assert names[:2] == ["kkt", "leaves_16"]
    assert len(names) == {16: 2, 32: 3, 64: 4}[CASES[case].get("chunk_size", 64)]
