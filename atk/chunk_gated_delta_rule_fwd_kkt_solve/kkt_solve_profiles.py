"""The designed cases: what each accuracy and performance case looks like, as tables of `Profile`.

Only sizes and value ranges live here. The generator writes them into ATK's cases, `kkt_solve_inputs.py` turns the
drawn values into legal operator inputs.
"""
from __future__ import annotations

from dataclasses import dataclass, replace

Range = tuple[float, float]


@dataclass(frozen=True)
class Profile:
    """One case. Lengths in tokens; `decay` is the natural-log gate per token before the cumulative sum."""

    name: str
    T: int
    B: int = 1
    H: int = 2
    HV: int = 2
    K: int = 128
    dtype: str = "bf16"
    chunk_size: int = 64
    cu_seqlens: tuple[int, ...] | None = None
    decay: Range = (-0.2, -0.001)
    beta: Range = (0.05, 0.95)
    beta_dtype: str = "fp32"
    keys: Range = (-1.0, 1.0)  # drawn uniformly, then normalised over K
    key_correlation: float = 0.0  # cosine between two keys of one head; 1 repeats one key
    gate_open_share: float = 0.0  # share of tokens whose decay is set to 0
    use_g: bool = True
    use_beta: bool = True
    output_dtype: str = "same"  # the dtype of k
    head_first: bool = False
    output_head_first: bool = False

    @property
    def tasks(self) -> int:
        """(chunk, value head) pairs: what the run time of Triton's interpreter grows with."""
        ends = self.cu_seqlens or (0, self.T)
        lengths = [end - start for start, end in zip(ends, ends[1:], strict=False)]
        return self.B * self.HV * sum(-(-length // self.chunk_size) for length in lengths)


# Every dtype runs every one of these: easy values, layouts, tails and the inputs on which a wrong inverse shows.
_PER_DTYPE = (
    Profile("plain", 128),
    Profile("gva_k64", 64, H=1, HV=4, K=64),
    Profile("tail_k256", 100, K=256),
    Profile("packed", 64, cu_seqlens=(0, 17, 59, 64)),
    Profile("repeated_key_slow_decay", 128, H=1, key_correlation=1.0, decay=(-0.001, -0.001), beta=(0.835, 0.835)),
    Profile("cosine_95", 128, H=1, key_correlation=0.95, decay=(-1.0e-4, -1.0e-4), beta=(0.99, 0.99)),
    Profile("cosine_50_no_decay", 64, key_correlation=0.5, decay=(0.0, 0.0), beta=(1.0, 1.0)),
    Profile("steep_decay_tail", 100, decay=(-20.0, -20.0)),
    Profile("no_gate", 64, use_g=False),
    Profile("no_beta", 64, use_beta=False),
    Profile("neither_correlated", 64, use_g=False, use_beta=False, key_correlation=0.5),
    Profile("chunk_16", 72, chunk_size=16, HV=2, H=1),
    Profile("chunk_32", 80, chunk_size=32, HV=2, H=1),
    Profile("beta_1_to_2", 64, key_correlation=0.5, decay=(-0.01, -0.01), beta=(1.0, 2.0)),
)

_SPECIAL = (
    Profile("repeated_key_beta_2", 64, dtype="fp32", key_correlation=1.0, decay=(0.0, 0.0), beta=(2.0, 2.0)),
    Profile("repeated_key_beta_2", 64, key_correlation=1.0, decay=(0.0, 0.0), beta=(2.0, 2.0)),
    Profile("repeated_key_beta_1", 64, key_correlation=1.0, decay=(0.0, 0.0), beta=(1.0, 1.0)),
    Profile("beta_0", 64, beta=(0.0, 0.0)),
    Profile("uniform_keys", 64, keys=(0.0, 1.0), decay=(-0.05, -0.01)),
    Profile("half_open_gates", 64, dtype="fp32", decay=(-5.0, -5.0), gate_open_share=0.5, key_correlation=0.5),
    Profile("mostly_open_gates", 64, decay=(-5.0, -5.0), gate_open_share=0.9, key_correlation=0.5),
    Profile("open_or_shut_gates", 64, dtype="fp32", decay=(-80.0, -80.0), gate_open_share=0.5, key_correlation=0.95),
    Profile("wide_gates", 128, decay=(-316.0, -1.0e-4), beta=(0.0, 1.0)),
    Profile("one_token", 1),
    Profile("two_tokens_chunk_32", 2, chunk_size=32, dtype="fp32"),
    Profile("chunk_plus_one", 65, dtype="fp16"),
    Profile("chunk_minus_one", 63, dtype="fp32", key_correlation=0.95),
    Profile("k_60", 64, K=60),
    Profile("k_100", 70, K=100, dtype="fp16"),
    Profile("k_1", 64, K=1, dtype="fp32", decay=(-0.1, -0.05), beta=(0.1, 0.9)),
    Profile("gva_3_to_6", 64, H=3, HV=6, K=64),
    Profile("odd_heads", 64, H=5, HV=5, K=64, dtype="fp16"),
    Profile("batch_3_tail", 70, B=3, H=1, HV=1),
    Profile("head_first", 96, head_first=True, H=1, HV=2),
    Profile("output_head_first", 96, output_head_first=True, H=1, HV=2, dtype="fp16"),
    Profile("both_head_first", 96, head_first=True, output_head_first=True, cu_seqlens=(0, 33, 96), dtype="fp32"),
    Profile("empty_sequences", 130, H=1, HV=1, cu_seqlens=(0, 0, 64, 64, 64, 130), dtype="fp32"),
    Profile("last_offset_repeated", 40, cu_seqlens=(0, 16, 40, 40, 40)),
    Profile("tokens_outside", 100, cu_seqlens=(0, 30, 80), dtype="fp32"),
    Profile("many_short_sequences", 64, H=1, HV=1, cu_seqlens=tuple(range(0, 65, 8))),
    Profile("chunks_restart", 128, H=1, HV=1, chunk_size=32, cu_seqlens=(0, 45, 128), dtype="fp16"),
    Profile("fp32_result", 128, H=1, HV=2, output_dtype="fp32", key_correlation=0.95, decay=(-0.001, -0.001)),
    Profile("fp32_result", 64, dtype="fp16", output_dtype="fp32"),
    Profile("bf16_result", 64, dtype="fp32", output_dtype="bf16"),
    Profile("beta_bf16", 64, beta_dtype="bf16"),
    Profile("beta_fp16", 64, beta_dtype="fp16", dtype="fp16", key_correlation=0.5),
)

_MIXED_TAILS = (0, 2049, 3060, 3573, 3829, 3957, 4022, 4054, 4070, 4077, 4081, 4086, 4087)

# Too many tasks for the interpreter: these run on an accelerator only.
_LARGE = (
    Profile("large_model_heads", 4096, H=16, HV=32),
    Profile("large_mixed_tails", 4087, H=16, HV=32, cu_seqlens=_MIXED_TAILS),
    Profile("large_correlated", 4096, H=8, HV=8, key_correlation=0.95, decay=(-1.0e-4, -1.0e-4), beta=(0.99, 0.99)),
    Profile("large_fp16", 2048, B=4, H=16, HV=16, dtype="fp16"),
    Profile("large_fp32", 2048, H=8, HV=16, dtype="fp32", key_correlation=0.5),
    Profile("large_k256_tail", 2000, H=4, HV=8, K=256),
    Profile("large_head_first", 2048, B=2, H=4, HV=8, output_head_first=True),
    Profile("large_many_blocks", 8192, H=16, HV=16, K=64),
)

ACCURACY = (
    tuple(replace(p, dtype=dtype, name=f"{dtype}_{p.name}") for dtype in ("bf16", "fp16", "fp32") for p in _PER_DTYPE)
    + tuple(replace(p, name=f"{p.dtype}_{p.name}") for p in _SPECIAL + _LARGE)
)

# npusim's thirteen standard shapes, (B, T, heads, K) with as many key heads as value heads.
STANDARD_SHAPES = (
    (1, 2048, 4, 128), (1, 4096, 4, 128), (1, 4096, 8, 128), (1, 8192, 2, 128), (1, 8192, 4, 128),
    (1, 8192, 8, 128), (2, 4096, 16, 128), (4, 2048, 16, 128), (1, 8192, 16, 128), (1, 16384, 8, 128),
    (1, 4096, 32, 128), (1, 8192, 32, 128), (1, 16384, 32, 128),
)  # fmt: skip


def _shape(dtype: str, B: int, T: int, H: int, HV: int, K: int, suffix: str = "", **changes) -> Profile:
    name = f"{dtype}_b{B}_t{T}_h{H}_hv{HV}_k{K}{suffix}"
    return Profile(name, T, B=B, H=H, HV=HV, K=K, dtype=dtype, beta_dtype=dtype, **changes)


_EQUAL_PARTS = tuple(range(0, 8193, 512))
_UNEQUAL_PARTS = (0, 100, 1124, 1125, 3173, 4096, 6000, 8192)

PERFORMANCE = (
    tuple(_shape("bf16", B, T, HV, HV, K) for B, T, HV, K in STANDARD_SHAPES)
    + tuple(_shape("fp16", B, T, HV, HV, K) for B, T, HV, K in STANDARD_SHAPES)
    + tuple(_shape("fp32", B, T, HV, HV, K) for B, T, HV, K in STANDARD_SHAPES[:6])
    # The head counts of Qwen3-Next and Qwen3.5 (16 key heads, 32 or 48 value heads), whole and split over cards.
    + tuple(_shape("bf16", 1, T, 16, 32, 128) for T in (2048, 4096, 8192, 16384, 32768))
    + tuple(_shape("bf16", 1, T, 16, 48, 128) for T in (4096, 8192))
    + tuple(_shape("bf16", 1, T, 4, 8, 128) for T in (4096, 8192, 16384, 32768))
    + tuple(_shape("bf16", 1, T, 2, 4, 128) for T in (4096, 16384))
    + (
        _shape("bf16", 1, 8192, 16, 32, 128, "_packed16", cu_seqlens=_EQUAL_PARTS),
        _shape("bf16", 1, 8192, 16, 32, 128, "_packed_uneven", cu_seqlens=_UNEQUAL_PARTS),
        _shape("bf16", 1, 4087, 16, 32, 128, "_mixed_tails", cu_seqlens=_MIXED_TAILS),
        _shape("bf16", 1, 8192, 8, 8, 128, "_packed16", cu_seqlens=_EQUAL_PARTS),
        _shape("fp16", 1, 8192, 8, 16, 128, "_packed_uneven", cu_seqlens=_UNEQUAL_PARTS),
        _shape("bf16", 1, 8160, 8, 8, 128, "_tail32"),
        _shape("bf16", 1, 8001, 16, 32, 128, "_tail1"),
        _shape("bf16", 8, 1024, 16, 16, 128),
        _shape("bf16", 1, 8192, 8, 8, 64),
        _shape("bf16", 1, 8192, 16, 32, 64),
        _shape("bf16", 1, 8192, 8, 8, 256),
        _shape("bf16", 1, 4096, 16, 16, 256),
        _shape("fp16", 1, 8192, 8, 8, 64),
        _shape("fp16", 1, 8192, 16, 32, 128),
        _shape("fp32", 1, 4096, 16, 32, 128),
        _shape("bf16", 1, 8192, 8, 8, 128, "_chunk32", chunk_size=32),
        _shape("bf16", 1, 8192, 16, 32, 128, "_chunk32", chunk_size=32),
        _shape("bf16", 1, 8192, 8, 8, 128, "_chunk16", chunk_size=16),
        _shape("bf16", 1, 8192, 8, 8, 128, "_no_gate", use_g=False),
        _shape("bf16", 1, 8192, 8, 8, 128, "_no_beta", use_beta=False),
        _shape("bf16", 1, 8192, 8, 8, 128, "_fp32_result", output_dtype="fp32"),
        _shape("bf16", 1, 8192, 8, 16, 128, "_output_head_first", output_head_first=True),
    )
)
