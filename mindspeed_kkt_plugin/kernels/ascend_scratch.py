"""What the Ascend kernel keeps in global memory between cube and vector cores, and how tiles of it are addressed."""
import triton
import triton.language as tl

# fp32 from a block on the diagonal of K K^T to the next one: in a lane 32 rows of 64 down and 32 to the right. Lanes
# are 64 further apart than their 64x64 needs, so that one lane's second block is as far from the next one's first.
BLOCK = tl.constexpr(2080)
SPACE = tl.constexpr(4160)
# fp32 numbers a lane, by buffer.
SLOTS = {"keys": SPACE.value, "inverse": 2048, "lower": 1024, "product": 2048, "gate": 64, "strength": 64}


@triton.jit
def tile(base, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    """Addresses of ROWS x COLUMNS elements, rows STRIDE apart."""
    return base + tl.arange(0, ROWS)[:, None] * STRIDE + tl.arange(0, COLUMNS)[None, :]
