"""Small kernels for the tests of npusim's tools, and what tests ask of them in a process without the interpreter.

Each `*_launch` gives one Launch on meta tensors; the functions below them run under `npusim.isolate.call`.
"""
from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

from mindspeed_kkt_plugin.kernels.launch import Launch
from npusim import backend, compile, frontend, resources


@triton.jit(do_not_specialize=["T"])
def scale_rows(x, scale, out, T, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """out = x * scale, one scale a row; vector cores only."""
    for block in range(tl.program_id(0), tl.cdiv(T, ROWS), tl.num_programs(0)):
        rows = block * ROWS + tl.arange(0, ROWS)
        places = rows[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
        tile = tl.load(x + places, mask=(rows < T)[:, None], other=0.0)
        factor = tl.load(scale + rows, mask=rows < T, other=0.0)
        tl.store(out + places, tile * factor[:, None], mask=(rows < T)[:, None])


@triton.jit(do_not_specialize=["T"])
def gram(k, gate, out, T, WIDTH: tl.constexpr, ROWS: tl.constexpr, REVERSED: tl.constexpr):
    """out = gate * (k k^T) per block of rows: cube, then vector. REVERSED adds a sum over rows that no half can own."""
    for block in range(tl.program_id(0), tl.cdiv(T, ROWS), tl.num_programs(0)):
        tile = tl.load(tl.make_block_ptr(k, (T, WIDTH), (WIDTH, 1), (block * ROWS, 0), (ROWS, WIDTH), (1, 0)))
        gates = tl.load(tl.make_block_ptr(gate, (T,), (1,), (block * ROWS,), (ROWS,), (0,)))
        product = tl.dot(tile, tl.trans(tile)) * gates[:, None]
        if REVERSED:
            product = product + tl.sum(product, 0)[None, :]
        place = tl.make_block_ptr(out, (T, ROWS), (ROWS, 1), (block * ROWS, 0), (ROWS, ROWS), (1, 0))
        tl.store(place, product.to(out.dtype.element_ty))


@triton.jit
def refused(x):
    tl.store(x, tl.load(missing))  # noqa: F821  (a name that is not there)


def scale_launch(T: int = 4096, rows: int = 32, width: int = 64, **options) -> Launch:
    x = torch.empty(T, width, device="meta")
    args = {"x": x, "scale": x[:, 0].contiguous(), "out": x, "T": T}
    return Launch("scale_rows", scale_rows, (48,), args, {"WIDTH": width, "ROWS": rows}, options)


def gram_launch(reversed_rows: bool = False, **options) -> Launch:
    k = torch.empty(4096, 128, dtype=torch.bfloat16, device="meta")
    args = {"k": k, "gate": torch.empty(4096, device="meta"), "out": torch.empty(4096, 64, device="meta"), "T": 4096}
    return Launch("gram", gram, (24,), args, {"WIDTH": 128, "ROWS": 64, "REVERSED": reversed_rows}, options)


LAUNCHES = {"scale": scale_launch, "gram": gram_launch}


def compiled(sample: str, target: str = "Ascend910B2", **how) -> dict:
    """Text, messages, run-time arguments and grid of a sample's program."""
    one = compile.compile_launch(LAUNCHES[sample](**how), target)
    return {"hivm": one.hivm, "messages": one.messages, "retries": one.retries, "grid": one.grid,
            "args": [(a.name, a.kind, a.dtype) for a in one.args], "scalars": [(a.name, a.value) for a in one.scalars]}


def use_cache(folder: str) -> None:
    os.environ["NPUSIM_CACHE"] = folder


def cut_cache_files(kernel: str) -> None:
    """Leave the first half of every stored program of `kernel`."""
    for path in compile.cache_folder().glob(f"{kernel}-*.json"):
        path.write_text(path.read_text()[:path.stat().st_size // 2])


def specialised_with(change: dict) -> None:
    """Specialise scale_rows with some values replaced; None leaves one out."""
    launch = scale_launch()
    values = {**launch.args, **launch.constants, **change}
    frontend.specialise(launch.kernel, {name: value for name, value in values.items() if value is not None})


def compile_refused() -> None:
    compile.compile_launch(Launch("refused", refused, (1,), {"x": torch.empty(4, device="meta")}))


def measured(sample: str, **how) -> resources.Resources:
    return resources.measure(compile.compile_launch(LAUNCHES[sample](**how)))


def compiled_without_compiler(sample: str, **how) -> dict:
    """Like `compiled`, but any run of the compiler fails: only what is stored can come back."""
    def refuse(*_args, **_kwargs):
        raise AssertionError("the compiler was run")

    original, backend.run = backend.run, refuse
    try:
        return compiled(sample, **how)
    finally:
        backend.run = original


def launcher_flags(options: dict) -> list[str]:
    """Flags that triton-ascend's own back end hands to the compiler for these options, its process call replaced."""
    from triton.backends.ascend import compiler as ascend

    seen = []

    def note(command, **_kwargs):
        seen.extend(flag for flag in command if flag.startswith("--"))
        raise InterruptedError

    class Target:
        def get_arch(self):
            return "Ascend910B2"

    replaced = {"NPUUtils": Target, "_get_npucompiler_path": lambda: "bishengir-compile",
                "_check_bishengir_api_change": lambda: True, "_check_bishengir_is_regbased": lambda: False}
    originals = {name: getattr(ascend, name) for name in replaced}
    run, ascend.subprocess.run = ascend.subprocess.run, note
    vars(ascend).update(replaced)
    try:
        metadata = dict(ascend.NPUOptions(**options).__dict__)
        linalg = 'func.func @f(%arg0: i32) attributes {mix_mode = "aiv", parallel_mode = "simd"}'
        ascend.linalg_to_bin_enable_npu_compile_A2_A3(linalg, metadata, None)
    except InterruptedError:
        return seen
    finally:
        ascend.subprocess.run = run
        vars(ascend).update(originals)
