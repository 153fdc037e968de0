"""What turns K K^T into -L on the vector cores, at every width of the Ascend kernel."""
import triton
import triton.language as tl

from .ascend_scratch import tile


@triton.jit
def load_gate(p_gate, N: tl.constexpr, TOKENS: tl.constexpr, STRIDE: tl.constexpr):
    """g or beta of the first TOKENS tokens of N blocks or lanes, fp32 [N, TOKENS]."""
    return tl.load(tile(p_gate, N, TOKENS, STRIDE))


@triton.jit
def strength(b_g, b_beta):
    """-beta; NaN where g is NaN or infinite, which the clamp of the decay would hide."""
    return (b_g - b_g) - b_beta


@triton.jit
def decay(b_difference):
    """exp of a difference of log decays, clamped to +-50 as the two calls do."""
    low = tl.maximum(b_difference, -50.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.exp(tl.minimum(low, 50.0, propagate_nan=tl.PropagateNan.ALL))
