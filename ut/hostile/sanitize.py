"""`compute-sanitizer --tool memcheck python -m ut.hostile.sanitize`: every kernel on fixed, tail and packed inputs.

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor is an allocation of its own, so that an overrun leaves it.
"""
from __future__ import annotations

import os
import sys

import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from ut.accuracy import assert_accurate, exact
from ut.inputs import make_inputs

SHAPES = {
    "fixed": dict(B=2, T=128, H=2, HV=4),
    "tail": dict(T=101, H=1, HV=2),
    "one_token": dict(T=1, H=1),
    "packed": dict(T=200, H=2, cu_seqlens=[0, 0, 65, 66, 130, 193]),
}


def main() -> int:
    if not torch.cuda.is_available():
        print("needs a CUDA device")
        return 2
    calls = 0
    for path in ("portable", "two_call"):
        os.environ["MINDSPEED_KKT_PATH"] = path
        for shape in SHAPES.values():
            for dtype in (torch.bfloat16, torch.float32):
                for chunk_size in (16, 32, 64):
                    inputs = make_inputs("cosine_95", K=60, dtype=dtype, chunk_size=chunk_size, device="cuda", **shape)
                    assert_accurate(fused(*inputs.args), exact(inputs), inputs)
                    calls += 1
    print(f"{calls} calls, {', '.join(SHAPES)}: accurate")
    return 0


if __name__ == "__main__":
    sys.exit(main())
