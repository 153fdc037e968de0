"""Runs `bishengir-compile` up to the last HIVM program and sorts what it printed. Knows flags and messages only.

The closed assembler `hivmc` (part of CANN) is absent here: the program just before it is what npusim reads.
"""
from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .errors import NpuCompileError, NpusimError, UnsupportedError

# Target -> cube cores (two vector cores each), as the compiler's own target table says. A2: 910B*, A3: 910_93xx,
# one die. Memory sizes are read from the compiled module.
TARGETS = {"Ascend910B1": 24, "Ascend910B2": 24, "Ascend910B2C": 24, "Ascend910B3": 20, "Ascend910B4": 20,
           "Ascend910B4-1": 20, "Ascend910_9362": 20, "Ascend910_9372": 20, "Ascend910_9381": 24,
           "Ascend910_9382": 24, "Ascend910_9391": 24, "Ascend910_9392": 24}

# Launch option -> compiler flag, as the A2/A3 back end of triton-ascend 3.2.0 passes them. None: the flag is left out.
FLAGS = {
    "multibuffer": "enable-auto-multi-buffer",
    "enable_auto_bind_sub_block": "enable-auto-bind-sub-block",
    "enable_hivm_auto_cv_balance": "enable-hivm-auto-cv-balance",
    "sync_solver": "enable-hivm-graph-sync-solver",
    "unit_flag": "enable-hivm-unit-flag-sync",
    "inject_barrier_all": "enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "enable-hivm-inject-block-all-sync",
    "limit_auto_multi_buffer_only_for_local_buffer": "limit-auto-multi-buffer-only-for-local-buffer",
    "limit_auto_multi_buffer_of_local_buffer": "limit-auto-multi-buffer-of-local-buffer",
    "set_workspace_multibuffer": "set-workspace-multibuffer",
    "tile_mix_vector_loop": "tile-mix-vector-loop",
    "tile_mix_cube_loop": "tile-mix-cube-loop",
    "disable_auto_inject_block_sync": "disable-auto-inject-block-sync",
}
# Flags this compiler has and the launcher of triton-ascend 3.2.0 cannot pass: for experiments, each use is reported.
EXPERIMENTAL_FLAGS = {
    "enable_code_motion": "enable-code-motion",
    "enable_hivm_cross_core_gss": "enable-hivm-cross-core-gss",
    "enable_ubuf_saving": "enable-ubuf-saving",
    "enable_preload": "enable-preload",
    "disable_size_align_for_cast": "disable-size-align-for-cast",
    "enable_hivm_assume_alive_loops": "enable-hivm-assume-alive-loops",
}
DEFAULTS = {"multibuffer": True, "enable_auto_bind_sub_block": True}
DUMP = re.compile(r"^// -----// IR Dump Before .*//----- //$", re.M)
OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+) bits avail", re.I)
# Lines that only say that hivmc is not installed; a real failure prints a line with ": error:" besides.
EXPECTED = re.compile(r"hivmc|returning module before running external compiler|Failed to run BiShengIR pipeline$")
DIAGNOSIS = re.compile(r"\b(error|warning|remark|note)\b|\[(INFO|WARNING|ERROR)\]|retry", re.I)
TIMEOUT_S = 300


@dataclass(frozen=True)
class BackendOutput:
    """hivm: text of the final program; messages: everything else the compiler said, one line each, in order."""

    hivm: str
    messages: tuple[str, ...]


def compiler_path() -> str:
    """`bishengir-compile` of the ascendnpu-ir package, else the one on PATH (CANN)."""
    spec = importlib.util.find_spec("ascendnpuir")
    if spec is not None:
        path = Path(spec.origin).parent / "bin" / "bishengir-compile"
        if path.is_file():
            return str(path)
    path = shutil.which("bishengir-compile")
    if path is None:
        raise NpusimError("npusim needs bishengir-compile: install the package ascendnpu-ir "
                          "(pip install ascendnpu-ir==1.2.0) or put CANN's compiler on PATH")
    return path


def cube_cores(target: str) -> int:
    """Cube cores of a target; UnsupportedError names an unknown one."""
    if target not in TARGETS:
        raise UnsupportedError(f"unknown target {target!r}; npusim knows {', '.join(TARGETS)}")
    return TARGETS[target]


def flags(target: str, options: dict) -> list[str]:
    """Compiler flags for `options`; raises UnsupportedError that names an unknown target or option."""
    cube_cores(target)
    known = {**FLAGS, **EXPERIMENTAL_FLAGS}
    without_flag = _options_without_flag()
    for name in options:
        if name not in known and name not in without_flag:
            raise UnsupportedError(f"unknown compiler option {name!r}; known: {', '.join(sorted(known))}")
    values = {**DEFAULTS, **options}
    chosen = [f"--{flag}={values[name]}" for name, flag in known.items() if values.get(name) is not None]
    return [f"--target={target}", *chosen, "--enable-hfusion-compile=true", "--enable-hivm-compile=true",
            "--enable-triton-kernel-compile=true"]


def _options_without_flag() -> set[str]:
    """Options that triton-ascend takes but that reach the front end only, or nothing at all (num_warps, …)."""
    from triton.backends.ascend.compiler import NPUOptions

    return set(NPUOptions.__dataclass_fields__)


def run(linalg: str, name: str, target: str, options: dict) -> BackendOutput:
    """Compile linalg text. Raises NpuCompileError: the memory and the bits on overflow, else the first error line."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.mlir"
        source.write_text(linalg)
        command = [compiler_path(), str(source), *flags(target, options), "--mlir-print-ir-before=convert-hivm-to-std",
                   "--mlir-disable-threading", "-o", str(Path(folder) / "kernel")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise NpuCompileError(f"kernel {name}: bishengir-compile gave no result in {TIMEOUT_S} s") from error
        except OSError as error:
            raise NpusimError(f"cannot run {command[0]}: {error}") from error
        text = (done.stderr + done.stdout).replace(folder + "/", "")
    output = split(text)
    notes = [f"option {key} is passed to the compiler by npusim only: the launcher of triton-ascend 3.2.0 refuses it"
             for key in options if key in EXPERIMENTAL_FLAGS]
    if output is None:
        raise failure(name, target, text)
    return BackendOutput(output.hivm, (*notes, *output.messages))


def split(text: str) -> BackendOutput | None:
    """Separate the last HIVM dump from the messages; None when the compiler stopped before it."""
    dumps = list(DUMP.finditer(text))
    if not dumps:
        return None
    body = text[dumps[-1].end():].lstrip("\n")
    end = body.find("\n}\n")
    if end < 0:
        return None
    hivm, rest = body[:end + 3], body[end + 3:]
    messages = _messages(text[:dumps[0].start()] + rest)
    if any(": error:" in line for line in messages):
        return None
    return BackendOutput(hivm, messages)


def _messages(text: str) -> tuple[str, ...]:
    """Lines that carry a diagnosis, each once, without the expected ones about hivmc and without IR echoes."""
    lines = (line.strip() for line in text.splitlines())
    marked = [line for line in lines if DIAGNOSIS.search(line) and not EXPECTED.search(line)]
    return tuple(dict.fromkeys(line if len(line) < 400 else line[:400] + " …" for line in marked))


def failure(name: str, target: str, text: str) -> NpuCompileError:
    """The error for output that holds no usable program."""
    overflow = max(OVERFLOW.finditer(text), key=lambda found: found.start(), default=None)
    if overflow:
        memory, needed, available = overflow[1].lower(), int(overflow[2]), int(overflow[3])
        return NpuCompileError(f"kernel {name} does not fit {target}: {memory} needs {needed} bits, "
                               f"{available} bits are available",
                               memory=memory, needed_bits=needed, available_bits=available, detail=text)
    lines = _messages(text) or tuple(line for line in text.splitlines() if line.strip() and not EXPECTED.search(line))
    first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
    return NpuCompileError(f"kernel {name}: bishengir-compile failed for {target}: {first}", detail=text)
