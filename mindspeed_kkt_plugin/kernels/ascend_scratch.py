"""What the Ascend kernel keeps in global memory between cube and vector cores, and how tiles of it are addressed."""
import triton
import triton.language as tl

# fp32 numbers of a lane, by buffer. K K^T has the lane's 64x64 and 64 more: from a block on the diagonal to the next
# one it is 32 rows of 64 down and 32 to the right in a lane, and as far from a lane's second block to the next lane.
SPACE = tl.constexpr(4160)
BLOCK = tl.constexpr(2080)
INVERSE = tl.constexpr(2048)
LOWER = tl.constexpr(1024)
PRODUCT = tl.constexpr(2048)
GATE = tl.constexpr(64)
SLOTS = {"keys": SPACE.value, "inverse": INVERSE.value, "lower": LOWER.value, "product": PRODUCT.value,
         "gate": GATE.value, "strength": GATE.value}


@triton.jit
def tile(base, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STRIDE: tl.constexpr):
    """Addresses of ROWS x COLUMNS elements, rows STRIDE apart."""
    return base + tl.arange(0, ROWS)[:, None] * STRIDE + tl.arange(0, COLUMNS)[None, :]
