"""`python -m docs.numerics`: errors of ways to invert I + L, on easy and on correlated keys → data/numerics.json.

Measured here, on a CPU, in plain torch; inputs are the test suite's. Why the kernel substitutes and does not square.
"""
from __future__ import annotations

import json
import math

import torch

from mindspeed_kkt_plugin import reference
from ut.inputs import make_inputs

from .figure_data import DATA, NUMERICS

CHUNK, K, TOKENS, HEADS = 64, 128, 512, 8
REGIMES = {
    "random": ("random, the usual test", "随机（常见测试输入）"),
    "cosine_50": ("cosine 0.5, beta 1, no decay", "余弦 0.5，beta 1，无衰减"),
    "cosine_95": ("cosine 0.95, beta 0.99", "余弦 0.95，beta 0.99"),
    "four_keys": ("four keys, repeated at random", "四个键随机重复"),
    "repeated": ("one key repeated, beta 0.835", "同一个键，beta 0.835"),
    "repeated_beta1": ("one key repeated, beta 1, no decay", "同一个键，beta 1，无衰减"),
    "beta2_repeated": ("one key repeated, beta 2", "同一个键，beta 2"),
}


def substitution(low: torch.Tensor) -> torch.Tensor:
    """Row by row over all 64 rows."""
    return reference._substitute(low)


def blocks_32(low: torch.Tensor) -> torch.Tensor:
    """What the Ascend kernel does: substitution in 32x32 blocks, then A10 = A1 (-L10) A0."""
    out = torch.zeros_like(low)
    a0, a1 = substitution(low[..., :32, :32]), substitution(low[..., 32:, 32:])
    out[..., :32, :32], out[..., 32:, 32:] = a0, a1
    out[..., 32:, :32] = a1 @ (-low[..., 32:, :32] @ a0)
    return out


def squaring(low: torch.Tensor, size: int = CHUNK) -> torch.Tensor:
    """(I - L)(I + L^2)(I + L^4)… inside blocks of `size`, then merged in pairs."""
    eye = torch.eye(size, dtype=low.dtype)
    blocks = torch.stack([low[..., i:i + size, i:i + size] for i in range(0, CHUNK, size)], -3)
    inverse, power = eye - blocks, blocks
    for _ in range(int(math.log2(size)) - 1):
        power = power @ power
        inverse = inverse @ (eye + power)
    out = torch.zeros_like(low)
    for n, i in enumerate(range(0, CHUNK, size)):
        out[..., i:i + size, i:i + size] = inverse[..., n, :, :]
    while size < CHUNK:
        for i in range(0, CHUNK, 2 * size):
            a, b, c = slice(i, i + size), slice(i + size, i + 2 * size), 2 * size
            out[..., b, a] = out[..., b, b] @ (-low[..., b, a] @ out[..., a, a])
        size = c
    return out


METHODS = (
    ("substitution", "substitution, 64 rows, fp32", "64 行前代，fp32", substitution),
    ("blocks_32", "this kernel: 32x32 substitution + merge, fp32", "本 kernel：32x32 前代 + 合并，fp32", blocks_32),
    ("squaring_16", "squaring in 16x16 blocks + merge, fp32", "16x16 块内平方 + 合并，fp32",
     lambda low: squaring(low, 16)),
    ("squaring_64", "repeated squaring of 64x64, fp32", "64x64 重复平方，fp32", squaring),
    ("squaring_64_fp16", "repeated squaring of 64x64, fp16", "64x64 重复平方，fp16",
     lambda low: squaring(low.half())),
)


def lower(regime: str) -> torch.Tensor:
    """L of every chunk and head in float64, `[chunks * heads, 64, 64]`, from bf16 keys."""
    inputs = make_inputs(regime, T=TOKENS, H=HEADS, K=K, dtype=torch.bfloat16)
    low = reference.kkt(*inputs.args)
    return low.view(TOKENS // CHUNK, CHUNK, HEADS, CHUNK).movedim(2, 1).reshape(-1, CHUNK, CHUNK)


def worst(out: torch.Tensor, truth: torch.Tensor) -> float | None:
    """Worst relative Frobenius error; None when something is not finite."""
    error = ((out.double() - truth).norm(dim=(-2, -1)) / truth.norm(dim=(-2, -1))).max().item()
    return error if math.isfinite(error) else None


def measure() -> dict:
    rows = []
    for regime, (en, zh) in REGIMES.items():
        low = lower(regime)
        truth = substitution(low)
        errors = {key: worst(method(low.float()), truth) for key, _, _, method in METHODS}
        rows.append({"regime": regime, "what_en": en, "what_zh": zh,
                     "errors": errors | {"bf16": worst(truth.bfloat16(), truth)}})
    return {"kind": "measured", "device": "cpu", "torch": torch.__version__, "chunks": TOKENS // CHUNK * HEADS, "K": K,
            "methods": [{"id": key, "en": en, "zh": zh} for key, en, zh, _ in METHODS], "rows": rows}


if __name__ == "__main__":
    torch.set_num_threads(1)
    DATA.mkdir(exist_ok=True)
    (DATA / NUMERICS).write_text(json.dumps(measure(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
