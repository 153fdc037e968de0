"""Hypothesis strategies: valid calls of every shape, type, packing, layout, view and value regime, and broken ones.

A drawn call is plain data (`Drawn`), so that a failure prints as a line that can be pasted into a test.
"""
from __future__ import annotations

from dataclasses import dataclass, field

import torch
from hypothesis import strategies as st

from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from ut.hostile.memory import poisoned
from ut.inputs import REGIMES, Inputs, make_inputs

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
VIEWS = ("dense", "poisoned", "at_end", "transposed", "negated", "shared_heads")


@dataclass
class Drawn:
    regime: str
    B: int
    T: int
    H: int
    group: int
    K: int
    chunk_size: int
    dtype: str
    gate_dtype: str
    out_dtype: str | None
    offsets: list[int] | None
    int32: bool
    table: str  # none, given, reversed
    view: str
    head_first: bool
    output_head_first: bool
    with_g: bool
    with_beta: bool
    path: str
    seed: int = field(default=0)

    @property
    def dtype_of_result(self) -> torch.dtype:
        return DTYPES[self.out_dtype or self.dtype]

    def inputs(self, device: str) -> Inputs:
        """What the call means, in plain tensors."""
        inputs = make_inputs(self.regime, self.B, self.T, self.H, self.H * self.group, self.K,
                             chunk_size=self.chunk_size, cu_seqlens=self.offsets, dtype=DTYPES[self.dtype],
                             gate_dtype=DTYPES[self.gate_dtype], with_g=self.with_g, with_beta=self.with_beta,
                             device=device, seed=self.seed)
        if self.int32 and inputs.cu_seqlens is not None:
            inputs.cu_seqlens = inputs.cu_seqlens.int()
        if self.view == "shared_heads":
            inputs.k = inputs.k[:, :, :1].expand_as(inputs.k)
        return inputs

    def arguments(self, inputs: Inputs) -> dict:
        """The same as it is handed over."""
        tensors = {name: self._wrap(x) for name, x in (("k", inputs.k), ("g", inputs.g), ("beta", inputs.beta))}
        table = None
        if inputs.cu_seqlens is not None and self.table != "none":
            table = prepare_chunk_indices(inputs.cu_seqlens, self.chunk_size)
            table = table.flip(0) if self.table == "reversed" else table
        return dict(**tensors, cu_seqlens=inputs.cu_seqlens, chunk_size=self.chunk_size, chunk_indices=table,
                    output_dtype=DTYPES.get(self.out_dtype), head_first=self.head_first,
                    output_head_first=self.output_head_first)

    def _wrap(self, x: torch.Tensor | None) -> torch.Tensor | None:
        if x is None:
            return None
        if self.view == "transposed":
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        elif self.view in ("poisoned", "at_end"):
            x = poisoned(x, at_end=self.view == "at_end")
        elif self.view == "negated":
            x = torch._neg_view(-x)
        return x.transpose(1, 2) if self.head_first else x


def lengths(limit: int) -> st.SearchStrategy[list[int]]:
    one = st.one_of(st.just(0), st.integers(0, limit), st.sampled_from([1, 15, 16, 17, 31, 32, 33, 63, 64, 65]))
    return st.lists(one, max_size=6)


@st.composite
def calls(draw, tokens: int = 70, heads: int = 2) -> Drawn:
    """tokens, heads: rough limits of size, for the time a call takes."""
    offsets, T = None, draw(st.integers(0, tokens))
    if draw(st.booleans()):
        offsets = [0]
        for length in draw(lengths(tokens // 2)):
            if offsets[-1] + length <= 2 * tokens:
                offsets.append(offsets[-1] + length)
        T = offsets[-1] + draw(st.sampled_from([0, 0, 1, 5, 40]))
    return Drawn(
        regime=draw(st.sampled_from(sorted(REGIMES))),
        B=1 if offsets is not None else draw(st.integers(0, 2)),
        T=T,
        H=draw(st.integers(1, heads)),
        group=draw(st.integers(1, heads)),
        K=draw(st.one_of(st.integers(1, 40), st.sampled_from([64, 100, 128, 129, 256]))),
        chunk_size=draw(st.sampled_from([16, 16, 32, 64])),
        dtype=draw(st.sampled_from(sorted(DTYPES))),
        gate_dtype=draw(st.sampled_from(["fp32", "fp32", "bf16", "fp16"])),
        out_dtype=draw(st.sampled_from([None, *DTYPES])),
        offsets=offsets,
        int32=draw(st.booleans()),
        table=draw(st.sampled_from(["none", "given", "reversed"])),
        view=draw(st.sampled_from(VIEWS)),
        head_first=draw(st.booleans()),
        output_head_first=draw(st.booleans()),
        with_g=draw(st.sampled_from([True, True, True, False])),
        with_beta=draw(st.sampled_from([True, True, True, False])),
        path=draw(st.sampled_from(["first", "first", "two_call", "torch"])),
        seed=draw(st.integers(0, 3)),
    )


# What to break in a good call, and how; each gives a value of the argument it is named after.
BREAKS: dict[str, tuple] = {
    "k": (None, 1.0, "k", [1], torch.ones(3), torch.ones(1, 2, 3, 4, dtype=torch.float64),
          torch.ones(1, 2, 3, 0), torch.ones(1, 2, 3, 257),
          torch.ones(1, 0, 0, 4)),  # no head on either axis: no token alone would be a good call
    "g": (0.0, "g", torch.zeros(2), torch.zeros(7, 7, 7), torch.zeros(1, 4, 4, dtype=torch.int64)),
    "beta": (1, [0.5], torch.zeros(2), torch.zeros(7, 7, 7), torch.zeros(1, 4, 4, dtype=torch.bool)),
    "cu_seqlens": ([0, 1], torch.zeros(2), torch.zeros(1, 2, dtype=torch.int64), torch.zeros(0, dtype=torch.int32),
                   torch.tensor([1, 2]), torch.tensor([0, 5, 3]), torch.tensor([0, 10**6]), torch.tensor([0, -1])),
    "chunk_size": (0, -16, 8, 17, 48, 128, 64.0, "64", None, True),
    "output_dtype": (torch.float64, torch.int8, "bf16", 16),
    "chunk_indices": (0, torch.zeros(3, 2), torch.zeros(2, dtype=torch.int64),
                      torch.tensor([[10**6, 0]]), torch.tensor([[0, -1]])),
    "head_first": (0, 1, None, "yes"),
    "output_head_first": (0, 1, None, "yes"),
}


@st.composite
def broken(draw) -> tuple[Drawn, str, object]:
    """A good call, the argument to replace, and the value that no call may have."""
    name = draw(st.sampled_from(sorted(BREAKS)))
    return draw(calls()), name, draw(st.sampled_from(BREAKS[name]))
