"""From the numbers that ATK draws to the operands of the operator; every role of a case goes through `prepare`.

Works on the CPU in float64 and rounds once to the dtypes of the case, so that all nodes get the same bits. What is
done with the operands is the executor's business.
"""
from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from mindspeed_kkt_plugin.varlen import chunk_rows, prepare_chunk_indices

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True)
class Operands:
    """Arguments of one call. k `[B, T, H, K]`, g and beta `[B, T, HV]` (axes 1 and 2 swapped when `head_first`)."""

    k: torch.Tensor
    g: torch.Tensor | None
    beta: torch.Tensor | None
    cu_seqlens: torch.Tensor | None
    chunk_indices: torch.Tensor | None
    chunk_size: int
    output_dtype: torch.dtype
    head_first: bool
    output_head_first: bool

    def to(self, device: str | torch.device) -> Operands:
        moved = {
            name: value.to(device).contiguous()
            for name, value in vars(self).items()
            if isinstance(value, torch.Tensor)
        }
        return replace(self, **moved)


def _plain(value: Any) -> Any:
    """ATK hands attributes over as Python values, 0-d tensors or bytes, depending on the version."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return value.decode() if isinstance(value, bytes) else value


def _flag(value: Any) -> bool:
    value = _plain(value)
    return value.strip().lower() in ("1", "true", "yes") if isinstance(value, str) else bool(value)


def _offsets(text: str, batch: int, length: int) -> torch.Tensor | None:
    if text.strip().lower() in ("", "none"):
        return None
    offsets = [int(part) for part in text.split(",")]
    if batch != 1:
        raise ValueError(f"cu_seqlens is {text!r} but k has batch {batch}; packed cases need batch 1")
    if offsets[0] != 0 or offsets[-1] > length or offsets != sorted(offsets):
        raise ValueError(f"cu_seqlens is {text!r}; it must start at 0, never decrease and end at or before T={length}")
    return torch.tensor(offsets, dtype=torch.int64)


def _unit(x: torch.Tensor) -> torch.Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def correlated_keys(raw: torch.Tensor, cosine: float) -> torch.Tensor:
    """Unit keys along the last axis of `[B, T, H, K]`; two keys of one head meet at about the given cosine."""
    if not 0 <= cosine <= 1:
        raise ValueError(f"key_correlation is {cosine}; allowed: 0 to 1")
    noise = _unit(raw)
    return noise if cosine == 0 else _unit(math.sqrt(cosine) * noise[:, :1] + math.sqrt(1 - cosine) * noise)


def cumulative_gate(
    steps: torch.Tensor, chunk_size: int, cu_seqlens: torch.Tensor | None, open_share: float, seed: int
) -> torch.Tensor:
    """Running sum of the decay per token `[B, T, HV]`, restarted at every chunk; a share of the tokens decays by 0."""
    if steps.numel() and steps.max() > 0:
        raise ValueError(f"g holds a positive decay per token ({steps.max().item():g}); allowed: at most 0")
    shut = torch.rand(steps.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) >= open_share
    steps = steps * shut
    rows, valid = chunk_rows(steps.shape[1], chunk_size, cu_seqlens)
    sums = torch.where(valid[..., None], steps[:, rows], 0).cumsum(2)
    out = steps.clone()
    out[:, rows[valid]] = sums[:, valid]
    return out


def prepare(values: dict[str, Any], dtypes: dict[str, str], seed: int) -> Operands:
    """Build the operands on the CPU.

    values: what ATK hands over by input name, tensors perhaps promoted; dtypes: dtype of each tensor input as the
    case states it; seed: the case's `default_seed`. Raises ValueError for a case that breaks the operator's rules.
    """
    head_first = _flag(values["head_first"])

    def drawn(name: str) -> torch.Tensor:
        raw = values[name].detach().cpu().to(DTYPES[dtypes[name]]).double()
        return raw.transpose(1, 2) if head_first else raw

    def finished(x: torch.Tensor, name: str) -> torch.Tensor:
        return (x.transpose(1, 2) if head_first else x).to(DTYPES[dtypes[name]]).contiguous()

    k = drawn("k")
    chunk_size = int(_plain(values["chunk_size"]))
    cu_seqlens = _offsets(str(_plain(values["cu_seqlens"])), k.shape[0], k.shape[1])
    g = beta = None
    if _flag(values["use_g"]):
        open_share = float(_plain(values["gate_open_share"]))
        g = finished(cumulative_gate(drawn("g"), chunk_size, cu_seqlens, open_share, seed), "g")
    if _flag(values["use_beta"]):
        beta = finished(drawn("beta"), "beta")
    asked = str(_plain(values["output_dtype"]))
    return Operands(
        k=finished(correlated_keys(k, float(_plain(values["key_correlation"]))), "k"),
        g=g,
        beta=beta,
        cu_seqlens=cu_seqlens,
        chunk_indices=None if cu_seqlens is None else prepare_chunk_indices(cu_seqlens, chunk_size),
        chunk_size=chunk_size,
        output_dtype=DTYPES[dtypes["k"] if asked == "same" else asked],
        head_first=head_first,
        output_head_first=_flag(values["output_head_first"]),
    )
