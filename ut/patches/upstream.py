"""Small stand-ins of upstream checkouts for the tests of patches: our own lines, laid out as upstream's files are."""
from __future__ import annotations

import subprocess
from pathlib import Path

FEATURES = '''"""Features."""
from typing import List

from {package}.features_manager.other import OtherFeature


def add_fusions_features(features_list: List[object]):
    features_list.extend(
        [
            OtherFeature(),
        ]
    )
'''

FORWARD = '''"""A forward that uses the pair."""
import torch

from {operators} import chunk_scaled_dot_kkt_fwd, solve_tril


def {function}(q, k, v, g, beta, cu_seqlens=None, chunk_size: int = 64):
    # the caller's own comment
    A = chunk_scaled_dot_kkt_fwd(
        k=k, g=g, beta=beta, cu_seqlens=cu_seqlens, chunk_size=chunk_size, output_dtype=torch.float32
    )
    A = solve_tril(A=A, cu_seqlens=cu_seqlens, output_dtype=k.dtype)
{after}    return A
'''
TRANSPOSED = "    A = A.transpose(1, 2).contiguous()\n"
LLM = "mindspeed_llm/tasks/models/transformer"
MM = "mindspeed_mm/fsdp/ops/gdn"
PAIR = "operators_of_the_test"

FILES = {
    "mindspeed": {
        "mindspeed/ops/triton/solve_tril.py": "\n",
        "mindspeed/features_manager/__init__.py": FEATURES.format(package="mindspeed"),
        "docs/zh/_menu.md": "- x\n    - [y](./features/ops_flops_cal.md)\n",
        "docs/zh/ops/ops_list.md": "<table><tbody>\n</tbody></table>\n",
        "docs/zh/features/feature_list.md": "<table>\n  <tbody>\n  </tbody>\n</table>\n",
    },
    "mindspeed-llm": {
        "mindspeed_llm/__init__.py": "\n",
        "mindspeed_llm/features_manager/__init__.py": FEATURES.format(package="mindspeed_llm"),
        f"{LLM}/chunk_gated_delta_rule.py": FORWARD.format(
            operators=PAIR, function="chunk_gated_delta_rule_fwd", after=""),
        f"{LLM}/flash_gated_delta_rule.py": FORWARD.format(
            operators=PAIR, function="flash_chunk_gated_delta_rule_fwd", after=TRANSPOSED),
        "docs/zh/_menu.md": "- [y](./pytorch/features/README.md)\n",
    },
    "mindspeed-mm": {
        "mindspeed_mm/__init__.py": "\n",
        f"{MM}/chunk_gated_delta_rule.py": FORWARD.format(
            operators=PAIR, function="chunk_gated_delta_rule_fwd", after=""),
        f"{MM}/flash_chunk_gated_delta_rule.py": FORWARD.format(
            operators=PAIR, function="chunk_gated_delta_rule_fwd", after=TRANSPOSED),
        f"{MM}/flash_gated_delta_rule.py": FORWARD.format(
            operators=PAIR, function="flash_chunk_gated_delta_rule_fwd", after=TRANSPOSED),
        "docs/zh/_menu.md": "- [y](./features/chunkloss.md)\n",
    },
}


def git(folder: Path, *args: str) -> str:
    return subprocess.run(["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *args], check=True,
                          capture_output=True, text=True).stdout


def make(name: str, folder: Path) -> Path:
    """A committed checkout of the stand-in of `name`."""
    for path, text in FILES[name].items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    git(folder, "init", "-q", "-b", "master")
    for setting in ("user.name", "user.email"):
        git(folder, "config", setting, "t@t")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "base")
    return folder
