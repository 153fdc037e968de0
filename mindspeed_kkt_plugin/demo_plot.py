"""The demo's picture: error of every chunk, and what one chunk's A looks like."""
from __future__ import annotations

from pathlib import Path

import torch


def draw(path: Path, errors: dict[str, torch.Tensor], A: torch.Tensor, title: str) -> None:
    """Write a PNG. errors: name → relative error per chunk `[NT]`; A: one chunk and head, `[64, 64]`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.colors import SymLogNorm

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    markers = iter("osv^Dx")
    for name, values in errors.items():
        left.semilogy(values.clamp_min(1e-10).tolist(), marker=next(markers), markersize=5, label=name)
    left.set_xlabel("chunk of 64 tokens")
    left.set_ylabel("relative Frobenius error, worst head")
    left.set_title("Error against float64 forward substitution")
    left.grid(True, which="major", alpha=0.3)
    left.legend(fontsize=8)

    values = A.double().cpu().numpy()
    image = right.imshow(values, cmap="RdBu_r", norm=SymLogNorm(1e-3, vmin=-1, vmax=1), interpolation="nearest")
    right.set_title("A = (I + L)⁻¹ of chunk 0, head 0")
    right.set_xlabel("column j")
    right.set_ylabel("row i")
    figure.colorbar(image, ax=right, label="A[i, j], symmetric log scale")
    figure.suptitle(title, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
