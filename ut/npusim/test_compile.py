"""npusim.compile: what reaches the compiler, what comes back, and what is kept."""
from __future__ import annotations

import re

import pytest
import torch

from mindspeed_kkt_plugin.kernels.launch import Launch
from npusim import backend, compile, frontend
from npusim.errors import NpuCompileError, NpusimError, UnsupportedError
from npusim.isolate import call
from ut.npusim import kernels


@pytest.fixture(autouse=True, scope="module")
def own_cache(tmp_path_factory):
    """An empty cache for this module's compiles, in this process and in the worker."""
    folder = str(tmp_path_factory.mktemp("cache"))
    call(kernels.use_cache, folder)
    return folder


@pytest.mark.parametrize("target", backend.TARGETS)
def test_every_target_compiles_with_its_own_core_count(target):
    text = call(kernels.compiled, "gram", target)["hivm"]
    assert f'"CUBE_CORE_COUNT", {backend.TARGETS[target]} :' in text
    assert f'"VECTOR_CORE_COUNT", {2 * backend.TARGETS[target]} :' in text


def test_a_mixed_kernel_gives_a_cube_and_a_vector_program():
    text = call(kernels.compiled, "gram")["hivm"]
    assert "@gram_mix_aic(" in text and "@gram_mix_aiv(" in text
    assert text.startswith(("#map", "module")) and text.endswith("}\n")


def test_arguments_are_those_of_the_device_function():
    one = call(kernels.compiled, "scale")
    assert one["args"] == [("x", "tensor", "fp32"), ("scale", "tensor", "fp32"), ("out", "tensor", "fp32"),
                           ("T", "scalar", "i32")]
    header = re.search(r"func.func @scale_rows\((.*?)\) attributes", one["hivm"])[1]
    visible = [part for part in re.split(r", (?=%)", header) if "hacc.arg_type" not in part]
    assert len(visible) == len(one["args"]) + 3, "grid x, y and z follow the arguments"


def test_length_stays_a_run_time_argument():
    """One program for all lengths, also for 1, which the launcher makes a constant of other arguments."""
    programs = {call(kernels.compiled, "scale", T=T)["hivm"] for T in (1, 100, 4096)}
    assert len(programs) == 1
    assert call(kernels.compiled, "scale", T=100)["scalars"] == [("T", 100)]


def test_a_stored_program_is_used_again_and_only_for_the_same_content():
    first = call(kernels.compiled, "scale", rows=16)
    assert call(kernels.compiled_without_compiler, "scale", rows=16) == first
    for changed in ({"rows": 24}, {"rows": 16, "multibuffer": False}):
        with pytest.raises(AssertionError, match="the compiler was run"):
            call(kernels.compiled_without_compiler, "scale", **changed)


def test_a_damaged_stored_program_is_compiled_again(own_cache):
    first = call(kernels.compiled, "scale", rows=40)
    call(kernels.cut_cache_files, "scale_rows")
    assert call(kernels.compiled, "scale", rows=40) == first


@pytest.mark.parametrize("options", [
    {}, {"multibuffer": False}, {"enable_auto_bind_sub_block": False}, {"sync_solver": True, "unit_flag": True},
    {"set_workspace_multibuffer": 2, "limit_auto_multi_buffer_only_for_local_buffer": False},
    {"tile_mix_vector_loop": 4, "tile_mix_cube_loop": 2, "enable_hivm_auto_cv_balance": True},
    {"limit_auto_multi_buffer_of_local_buffer": "no-limit", "inject_barrier_all": True, "inject_block_all": True},
    {"disable_auto_inject_block_sync": True}], ids=lambda options: "-".join(options) or "defaults")
def test_options_become_the_flags_that_the_launcher_passes(options):
    """Compared with triton-ascend's own back end, its process call replaced. It alone asks for line tables."""
    launcher = [flag for flag in call(kernels.launcher_flags, options) if flag != "--enable-debug-info=true"]
    assert sorted(backend.flags("Ascend910B2", options)) == sorted(launcher)


def test_multibuffer_changes_the_program():
    on, off = (call(kernels.compiled, "gram", multibuffer=value)["hivm"] for value in (True, False))
    assert "multibuffer_unroll_factor" in on and "multibuffer_unroll_factor" not in off


def test_what_the_compiler_switched_off_is_reported():
    one = call(kernels.compiled, "scale", rows=256, width=128)
    assert any("enable-auto-multi-buffer to false" in message for message in one["retries"])
    assert call(kernels.compiled, "scale")["retries"] == ()


def test_an_experimental_flag_is_reported():
    one = call(kernels.compiled, "scale", enable_ubuf_saving=True)
    assert any("enable_ubuf_saving" in message and "refuses" in message for message in one["messages"])


def test_ub_overflow_names_memory_and_bits():
    with pytest.raises(NpuCompileError, match="ub needs [0-9]+ bits, 1572864 bits are available") as caught:
        call(kernels.compiled, "scale", rows=1024, width=128)
    error = caught.value
    assert (error.memory, error.available_bits) == ("ub", 1572864) and error.needed_bits > 1572864


def test_a_kernel_of_the_interpreter_is_refused():
    with pytest.raises(NpusimError, match="TRITON_INTERPRET=1"):
        compile.compile_launch(kernels.scale_launch())


def test_a_plain_function_is_refused():
    with pytest.raises(NpusimError, match="function; npusim compiles functions decorated with @triton.jit"):
        compile.compile_launch(Launch("plain", kernels.scale_launch, (1,), {}))


@pytest.mark.parametrize(("change", "message"), [
    ({"T": None}, "no value for parameter 'T'"), ({"extra": 1}, "has no parameter 'extra'"),
    ({"T": "long"}, "argument 'T': type str"), ({"x": torch.empty(4, dtype=torch.complex64)}, "argument 'x'")],
    ids=["missing", "unknown", "string", "complex"])
def test_arguments_that_do_not_fit_are_named(change, message):
    with pytest.raises((NpusimError, UnsupportedError), match=message):
        call(kernels.specialised_with, change)


def test_a_line_tells_the_first_error_of_a_kernel_the_front_end_refuses():
    with pytest.raises(NpuCompileError, match="kernel refused: the Triton front end refused it"):
        call(kernels.compile_refused)


def test_unsupported_generators_are_named():
    with pytest.raises(UnsupportedError, match="force_simt_only=True"):
        frontend.to_linalg(None, "Ascend910B2", {"force_simt_only": True})
