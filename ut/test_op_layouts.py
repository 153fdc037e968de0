"""Packed sequences, tails, memory layouts, empty inputs and torch's modes: the same numbers whatever the wrapping."""
from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin.kernels import portable
from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from ut.accuracy import assert_accurate, exact
from ut.inputs import make_inputs

PACKINGS = {
    "one": [0, 40],
    "two_tails": [0, 33, 50],
    "zero_first": [0, 0, 20],
    "zero_middle": [0, 16, 16, 16, 37],
    "zero_last": [0, 16, 40, 40, 40],
    "only_zero": [0, 0, 0],
    "tiny": [0, 1, 3, 4, 20],
    "uncovered": [0, 18, 30],
    "nothing": [0],
    "shifted": [0, 7, 17, 33],
}
T_PACKED = 70  # beyond the last offset of every packing, so each has uncovered tokens


@pytest.mark.parametrize("int_dtype", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize("packing", PACKINGS)
def test_packed(packing, int_dtype, device):
    inputs = make_inputs("cosine_50", T=T_PACKED, H=1, HV=2, K=16, chunk_size=16, cu_seqlens=PACKINGS[packing],
                         device=device)
    out = fused(inputs.k, inputs.g, inputs.beta, inputs.cu_seqlens.to(int_dtype), 16)
    assert_accurate(out, exact(inputs), inputs)


@pytest.mark.parametrize("chunk_size", [32, 64])
def test_each_packed_sequence_equals_its_own_run(chunk_size, device):
    offsets = [0, 30, 30, 95]
    inputs = make_inputs("random", T=100, H=1, K=16, chunk_size=chunk_size, cu_seqlens=offsets, device=device)
    out = fused(*inputs.args)
    for start, end in zip(offsets, offsets[1:], strict=False):
        alone = fused(*(x[:, start:end] for x in (inputs.k, inputs.g, inputs.beta)), chunk_size=chunk_size)
        assert torch.equal(out[:, start:end], alone)


def test_given_chunk_indices_are_used_in_any_order(device):
    inputs = make_inputs("random", T=50, H=1, K=16, chunk_size=16, cu_seqlens=[0, 20, 50], device=device)
    table = prepare_chunk_indices(inputs.cu_seqlens, 16)
    assert torch.equal(fused(*inputs.args, chunk_indices=table.flip(0)), fused(*inputs.args))


@pytest.mark.parametrize("packed", [False, True], ids=["fixed", "packed"])
@pytest.mark.parametrize("output_head_first", [False, True], ids=["out_token_first", "out_head_first"])
@pytest.mark.parametrize("head_first", [False, True], ids=["in_token_first", "in_head_first"])
def test_layouts(head_first, output_head_first, packed, device):
    inputs = make_inputs("random", B=1 if packed else 2, T=37, H=1, HV=2, K=16, chunk_size=16, device=device,
                         cu_seqlens=[0, 18, 30] if packed else None)
    k, g, beta = (x.transpose(1, 2).contiguous() if head_first else x for x in (inputs.k, inputs.g, inputs.beta))
    out = fused(k, g, beta, inputs.cu_seqlens, 16, head_first=head_first, output_head_first=output_head_first)
    assert_accurate(out.transpose(1, 2) if output_head_first else out, exact(inputs), inputs)


@pytest.mark.parametrize("view", ["transposed", "offset_rows", "every_other", "expanded_heads", "k_axis_strided"])
def test_views_equal_their_contiguous_copies(view, device):
    base = make_inputs("random", T=33, H=2, K=16, chunk_size=16, device=device)
    wrap = {
        "transposed": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
        "offset_rows": lambda x: torch.cat([x, x, x], -1)[..., x.shape[-1] - 1: 2 * x.shape[-1] - 1],
        "every_other": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
        "expanded_heads": lambda x: x[:, :, :1].expand_as(x),
        "k_axis_strided": lambda x: x.repeat_interleave(2, dim=-1)[..., ::2],
    }[view]
    views = [wrap(x) for x in (base.k, base.g, base.beta)]
    assert torch.equal(fused(*views, chunk_size=16), fused(*(x.contiguous() for x in views), chunk_size=16))


@pytest.mark.parametrize("T", [1, 15, 17, 33])
def test_memory_around_the_inputs_is_never_read_into_results(T, device):
    clean = make_inputs("random", T=T, H=1, K=16, chunk_size=32, device=device)

    def poison(x):
        host = torch.full((3, x.shape[1] + 64, *x.shape[2:]), float("nan"), device=device, dtype=x.dtype)
        host[1:2, 32:32 + x.shape[1]] = x
        return host[1:2, 32:32 + x.shape[1]]

    out = fused(*(poison(x) for x in (clean.k, clean.g, clean.beta)), chunk_size=32)
    assert torch.equal(out, fused(*clean.args))


@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("chunk_size", [16, 32, 64])
@pytest.mark.parametrize("T", [1, 2, 3])
def test_shortest_sequences(T, chunk_size, B, device):
    inputs = make_inputs("cosine_50", B=B, T=T, H=1, K=8, chunk_size=chunk_size, device=device)
    assert_accurate(fused(*inputs.args), exact(inputs), inputs)


def test_a_nan_token_spoils_its_own_chunk_only_and_no_row_sixteen_before(device):
    inputs = make_inputs("random", T=128, H=1, K=16, device=device)
    clean = fused(*inputs.args)
    inputs.k[0, 40] = float("nan")
    out = fused(*inputs.args)
    assert out[0, 40].isnan().any()
    assert torch.equal(out[0, :32], clean[0, :32])
    assert torch.equal(out[0, 64:], clean[0, 64:])


@pytest.mark.parametrize("shape", [(1, 0, 2, 16), (0, 10, 2, 16), (0, 0, 1, 16)], ids=str)
@pytest.mark.parametrize("output_head_first", [False, True])
def test_empty_inputs_give_empty_results(shape, output_head_first, device):
    k = torch.empty(shape, dtype=torch.bfloat16, device=device)
    beta = torch.empty(*shape[:2], 4, device=device)
    out = fused(k, None, beta, output_head_first=output_head_first)
    rows = (4, shape[1]) if output_head_first else (shape[1], 4)
    assert out.shape == (shape[0], *rows, 64) and out.dtype == torch.bfloat16


def test_no_gradient_flows(device):
    inputs = make_inputs("random", T=16, H=1, K=16, chunk_size=16, device=device)
    inputs.k.requires_grad_()
    inputs.beta.requires_grad_()
    out = fused(*inputs.args)
    assert not out.requires_grad


@pytest.mark.parametrize("mode", ["inference", "autocast", "deterministic"])
def test_torch_modes_change_nothing(mode, device):
    inputs = make_inputs("random", T=20, H=1, K=16, chunk_size=16, cu_seqlens=[0, 9, 20], device=device)
    plain = fused(*inputs.args)
    if mode == "inference":
        with torch.inference_mode():
            out = fused(*inputs.args)
            inside = fused(*(x.clone() for x in inputs.args[:4]), 16)
        assert torch.equal(inside, plain)
    elif mode == "autocast":
        with torch.autocast(device, dtype=torch.bfloat16):
            out = fused(*inputs.args)
    else:
        torch.use_deterministic_algorithms(True)
        try:
            out = fused(*inputs.args)
        finally:
            torch.use_deterministic_algorithms(False)
    assert out.dtype == plain.dtype and torch.equal(out, plain)


def test_offsets_beyond_32_bits(device):
    """The third sample starts beyond 2^31 elements while each stride fits; pages between the samples stay untouched."""
    inputs = make_inputs("random", B=3, T=16, H=1, K=16, chunk_size=16, device=device, dtype=torch.bfloat16)
    stride = 2**30 + 64

    def spread(shape):
        return torch.empty(2 * stride + 256, dtype=torch.bfloat16, device=device).as_strided(shape, (stride, 16, 16, 1))

    k = spread(inputs.k.shape).copy_(inputs.k)
    out, (launch,) = portable.plan(k, inputs.g, inputs.beta, None, None, **_options())
    far = spread(out.shape)
    replace(launch, args={**launch.args, "out": far, "out_stride_b": stride}).run()
    assert_accurate(far, exact(inputs), inputs)


def _options() -> dict:
    return dict(chunk_size=16, output_dtype=torch.bfloat16, head_first=False, output_head_first=False, num_cores=1)
