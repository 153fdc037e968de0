"""From a `@triton.jit` kernel to the linalg text that the NPU compiler reads. No device, no driver.

Specialises as triton-ascend's launcher does. Running the NPU compiler is backend.py; caching is compile.py.
"""
from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import Any

from .errors import NpuCompileError, NpusimError, UnsupportedError

# Front-end options that select another code generator than the SIMD one of A2/A3.
OTHER_GENERATORS = {"compile_on_910_95": False, "force_simt_only": False, "force_simt_template": False,
                    "compile_mode": "simd", "parallel_mode": "simd"}


@dataclass(frozen=True)
class Argument:
    """One run-time argument. kind: "tensor" or "scalar"; dtype in Triton's spelling (bf16, fp32, i32, …)."""

    name: str
    kind: str
    dtype: str
    value: Any


@dataclass(frozen=True)
class Specialised:
    """A kernel with everything known that its compiled form depends on."""

    kernel: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    attrs: Any
    args: tuple[Argument, ...]


def require_triton():
    """The `triton` module with an Ascend back end, or an error that says what to install."""
    try:
        import triton
        import triton.backends.ascend.compiler  # noqa: F401
    except ImportError as error:
        raise NpusimError(f"npusim needs the package triton-ascend (module triton.backends.ascend): {error}. "
                          "Install it with: pip install triton-ascend==3.2.0") from error
    return triton


def unwrap(kernel, values: dict[str, Any]):
    """The JITFunction under `triton.heuristics` wrappers, and `values` with what those heuristics add."""
    triton = require_triton()
    from triton.runtime.interpreter import InterpretedFunction

    while isinstance(kernel, triton.runtime.Heuristics):
        values = {**values, **{name: rule(values) for name, rule in kernel.values.items()}}
        kernel = kernel.fn
    if isinstance(kernel, InterpretedFunction):
        raise NpusimError(f"kernel {kernel.fn.__name__} was imported with TRITON_INTERPRET=1, so it has no compiled "
                          "form. Compile in a process without that variable, for example with python -m npusim.")
    if isinstance(kernel, triton.runtime.Autotuner):
        raise UnsupportedError(f"kernel {kernel.base_fn.__name__} is autotuned: npusim has no device to tune on. "
                               "Pass the function under @triton.autotune and its constants.")
    if not isinstance(kernel, triton.runtime.JITFunction):
        raise NpusimError(f"kernel is {type(kernel).__name__}; npusim compiles functions decorated with @triton.jit")
    return kernel, values


def specialise(kernel, values: dict[str, Any]) -> Specialised:
    """Split `values` (run-time arguments and constants by name) the way triton-ascend's launcher does.

    An int equal to 1 and None become constants, and multiples of 16 are marked, unless the kernel says otherwise.
    """
    kernel, values = unwrap(kernel, values)
    from triton.backends.ascend.compiler import AscendAttrsDescriptor

    ordered = []
    for parameter in kernel.params:
        if parameter.name in values:
            ordered.append(values[parameter.name])
        elif parameter.has_default:
            ordered.append(parameter.default)
        else:
            raise NpusimError(f"kernel {kernel.__name__}: no value for parameter {parameter.name!r}")
    unknown = sorted(set(values) - {parameter.name for parameter in kernel.params})
    if unknown:
        raise NpusimError(f"kernel {kernel.__name__} has no parameter {unknown[0]!r}")

    attrs = AscendAttrsDescriptor(kernel.params, ordered)
    pinned = attrs.get_constants()
    signature, constants, args = {}, {}, []
    for parameter, value in zip(kernel.params, ordered, strict=True):
        if not parameter.is_constexpr:
            signature[parameter.name] = parameter.annotation_type or _type_name(kernel, parameter, value)
        if parameter.is_constexpr or parameter.num in pinned or value is None:
            constants[parameter.name] = value
        else:
            dtype = signature[parameter.name]
            kind = "tensor" if dtype.startswith("*") else "scalar"
            args.append(Argument(parameter.name, kind, dtype.lstrip("*").removeprefix("k"), value))
    return Specialised(kernel, signature, constants, attrs, tuple(args))


def _type_name(kernel, parameter, value) -> str:
    try:
        return kernel._type_of(kernel._key_of(value), parameter.is_const)
    except (TypeError, KeyError) as error:
        raise UnsupportedError(f"kernel {kernel.__name__}, argument {parameter.name!r}: type {type(value).__name__} "
                               f"({value!r:.60}) is neither tensor, int, float, bool nor None") from error


def to_linalg(special: Specialised, target: str, options: dict[str, Any]) -> str:
    """Linalg text of the kernel, `mix_mode` stripped, as the NPU compiler takes it.

    Raises NpuCompileError when the front end rejects the kernel, UnsupportedError for options of other targets.
    """
    from triton._C.libtriton import ir
    from triton.backends.ascend import compiler as ascend
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    for name, default in OTHER_GENERATORS.items():
        if options.get(name, default) != default:
            raise UnsupportedError(f"option {name}={options[name]!r}: npusim models the SIMD form of A2/A3 only")
    gpu_target = GPUTarget("npu", target, 0)
    backend = ascend.AscendBackend(gpu_target)
    npu_options = backend.parse_options(options)
    name = special.kernel.__name__
    source = ASTSource(special.kernel, special.signature, special.constants, special.attrs)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    metadata = {"hash": "npusim", "target": gpu_target, **npu_options.__dict__}
    try:
        module = source.make_ir(npu_options, backend.get_codegen_implementation(), backend.get_module_map(), context)
        module = ascend.make_ttir(module, metadata, npu_options)
        linalg = ascend.ttir_to_linalg(module, metadata, npu_options, named_ops=True)
    except subprocess.CalledProcessError as error:
        detail = error.stderr.decode(errors="replace")
        raise NpuCompileError(f"kernel {name}: TTIR to linalg failed: {_first_error(detail)}", detail=detail) from error
    except Exception as error:  # the front end raises its own CompilationError, but also plain Python errors
        raise NpuCompileError(f"kernel {name}: the Triton front end refused it: {error}", detail=str(error)) from error
    return ascend._parse_linalg_metadata(linalg, metadata)[0]


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
