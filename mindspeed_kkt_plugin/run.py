"""`python -m mindspeed_kkt_plugin.run SCRIPT [ARGUMENT ...]`, also under `torchrun -m`: trains with the fused operator.

Installs, then runs the unedited script as `python SCRIPT ...` would. How to install is in `integration/routes.py`.
"""
from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from mindspeed_kkt_plugin.integration import install, install_direct

USAGE = """usage: python -m mindspeed_kkt_plugin.run SCRIPT [ARGUMENT ...]
       torchrun [...] -m mindspeed_kkt_plugin.run SCRIPT [ARGUMENT ...]

MindSpeed and MindSpeed-LLM on Megatron: --use-fused-gdn-kkt-solve among the script's arguments switches it on.
FSDP2 back ends (TRAINING_BACKEND=mindspeed_fsdp, or NON_MEGATRON=true): running through this launcher does."""


def on_megatron() -> bool:
    """By the variables that MindSpeed-LLM and MindSpeed-MM themselves decide with."""
    backend = os.environ.get("TRAINING_BACKEND", "mcore").lower()
    return backend == "mcore" and os.environ.get("NON_MEGATRON", "") != "true"


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(USAGE if len(sys.argv) < 2 else print(USAGE))
    script = sys.argv[1]
    if not Path(script).is_file():
        sys.exit(f"SCRIPT is {script!r}; it must be an existing Python file")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(script).resolve().parent)  # as python does; -m had put the working directory there
    install() if on_megatron() else install_direct()
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
