"""`compute-sanitizer --tool memcheck python -m ut.hostile.sanitize`: every kernel on fixed, tail and packed inputs.

With PYTORCH_NO_CUDA_MEMORY_CACHING=1 each tensor is an allocation of its own, so that an overrun leaves it. Run it once
without the sanitizer first: what Triton compiled is then at hand. Options narrow a run, since the slower tools take
minutes a kernel.
"""
from __future__ import annotations

import argparse
import itertools
import os
import sys

import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import status
from ut.accuracy import assert_accurate, exact
from ut.inputs import make_inputs

SHAPES = {
    "fixed": dict(B=2, T=128, H=2, HV=4),
    "tail": dict(T=101, H=1, HV=2),
    "one_token": dict(T=1, H=1),
    "many": dict(T=101, H=2, HV=320),  # too many chunks for four warps each
    "packed": dict(T=200, H=2, cu_seqlens=[0, 0, 65, 66, 130, 193]),
}
PATHS = ("portable", "two_call")
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
CHUNK_SIZES = (16, 32, 64)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ut.hostile.sanitize", description=__doc__.splitlines()[0])
    for name, choices in (("path", PATHS), ("shape", SHAPES), ("dtype", DTYPES), ("chunk-size", CHUNK_SIZES)):
        parser.add_argument(f"--{name}", choices=tuple(choices), type=type(next(iter(choices))), action="append",
                            help="default: all; may be repeated")
    options = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("needs a CUDA device")
        return 2
    calls = itertools.product(options.path or PATHS, options.dtype or DTYPES, options.chunk_size or CHUNK_SIZES,
                              options.shape or SHAPES)
    count = 0
    for path, dtype, chunk_size, shape in calls:
        os.environ["MINDSPEED_KKT_PATH"] = path
        inputs = make_inputs("cosine_95", K=60, dtype=DTYPES[dtype], chunk_size=chunk_size, device="cuda",
                             **SHAPES[shape])
        assert_accurate(fused(*inputs.args), exact(inputs), inputs)
        assert status()["last"]["path"] == path
        count += 1
        print(f"{path}, {dtype}, chunk {chunk_size}, {shape}: accurate", flush=True)
    print(f"{count} calls")
    return 0


if __name__ == "__main__":
    sys.exit(main())
