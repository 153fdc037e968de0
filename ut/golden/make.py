"""`python -m ut.golden.make --out DIR` on a CUDA machine with fla-core 0.6.0: runs FLA's kernels and ours, keeps both.

Writes golden.json (hashes, device, versions, errors against float64) and golden.pt (the results themselves).
"""
from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
from pathlib import Path

import torch

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve, reference, status
from mindspeed_kkt_plugin.bench_rivals import LOG2_E
from ut.accuracy import chunk_errors, mean_relative
from ut.golden.cases import CASES, CHUNK, digest, make


def errors(out: torch.Tensor, truth: torch.Tensor, cu_seqlens) -> dict[str, float]:
    return {"worst_chunk": chunk_errors(out, truth, CHUNK, cu_seqlens).max().item(),
            "mean_relative": mean_relative(out, truth)}


def fla(k, g, beta, cu_seqlens) -> tuple[torch.Tensor, torch.Tensor]:
    """Results of FLA's fused kernel and of its two calls; its gates are in base 2."""
    from fla.ops.common.chunk_scaled_dot_kkt import chunk_scaled_dot_kkt_fwd
    from fla.ops.gated_delta_rule.chunk_fwd import chunk_gated_delta_rule_fwd_kkt_solve_kernel
    from fla.ops.utils import prepare_chunk_indices, solve_tril

    B, T, H, _ = k.shape
    HV, g = beta.shape[2], g * LOG2_E
    indices = None if cu_seqlens is None else prepare_chunk_indices(cu_seqlens, CHUNK)
    NT = -(-T // CHUNK) if indices is None else len(indices)
    A = torch.zeros(B, T, HV, CHUNK, device=k.device, dtype=k.dtype)
    chunk_gated_delta_rule_fwd_kkt_solve_kernel[(NT, B * HV)](
        k=k, g=g, beta=beta, A=A, cu_seqlens=cu_seqlens, chunk_indices=indices, T=T, H=H, HV=HV, K=k.shape[-1],
        BT=CHUNK, BC=16)
    two = chunk_scaled_dot_kkt_fwd(k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, output_dtype=torch.float32)
    return A, solve_tril(two, cu_seqlens=cu_seqlens, output_dtype=k.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ut.golden.make", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    cases, results = {}, {}
    for name, case in CASES.items():
        host = make(case)
        device = [None if x is None else x.cuda() for x in host]
        ours = chunk_gated_delta_rule_fwd_kkt_solve(*device)
        ran = status()["last"]["path"]
        if ran != "portable":
            raise SystemExit(f"{name}: path '{ran}' ran, not the portable kernel: {status()['last']['why']}")
        fused, two = fla(*device)
        truth = reference.kkt_solve(*host, CHUNK)
        cases[name] = {
            "inputs_sha256": digest(*host[:3]),
            "ours": errors(ours, truth, host[3]),
            "fla_fused": errors(fused, truth, host[3]),
            "fla_two_calls": errors(two, truth, host[3]),
            "rounding_floor": errors(truth.to(case.dtype), truth, host[3]),
            "ours_against_fla_fused": mean_relative(ours, fused),
        }
        results[name] = {"ours": ours.cpu(), "fla_fused": fused.cpu()}
    versions = {package: importlib.metadata.version(package) for package in ("torch", "triton", "fla-core")}
    about = {"kind": "measured", "device": torch.cuda.get_device_name(), "versions": versions,
             "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(), "cases": cases}
    out.mkdir(parents=True, exist_ok=True)
    (out / "golden.json").write_text(json.dumps(about, indent=1) + "\n")
    torch.save(results, out / "golden.pt")


if __name__ == "__main__":
    main()
