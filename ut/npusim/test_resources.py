"""npusim.resources: counts read off small programs written out here, and off compiled kernels."""
from __future__ import annotations

import pytest

from npusim import resources
from npusim.errors import UnsupportedError
from npusim.isolate import call
from npusim.parse import parse_module
from ut.npusim import kernels

UB, GM = "#hivm.address_space<ub>", "#hivm.address_space<gm>"
HALF = f"memref<32xf32, strided<[1], offset: ?>, {GM}>"
STORE = f"hivm.hir.store ins(%t : memref<64xf32, {UB}>) outs(%v : memref<64xf32, {GM}>)"


def program(body: str, core: str = "AIV", parameters: str = f"%v: memref<64xf32, {GM}>") -> str:
    return f"""module attributes {{dlti.target_system_spec = #dlti.target_system_spec<"NPU" : #hacc.target_device_spec<\
#dlti.dl_entry<"UB_SIZE", 1572864 : i32>>>}} {{
  func.func @f_mix_{core.lower()}({parameters}, %x: i32, %y: i32, %z: i32) attributes \
{{hacc.function_kind = #hacc.function_kind<DEVICE>, hivm.func_core_type = #hivm.func_core_type<{core}>}} {{
    %c0 = arith.constant 0 : i64
    %c256 = arith.constant 256 : i64
    %i0 = arith.constant 0 : index
    %i1 = arith.constant 1 : index
    %i5 = arith.constant 5 : index
    %t = hivm.hir.pointer_cast(%c0) : memref<64xf32, {UB}>
    {body}
    return
  }}
}}
"""


def only_function(body: str):
    return parse_module(program(body)).kernels()[0]


def test_memory_is_the_highest_planned_address():
    body = f"%a = hivm.hir.pointer_cast(%c0, %c256) : memref<2x64xf32, {UB}>"
    assert resources.memory_bits(parse_module(program(body))) == {"UB": 256 * 8 + 2 * 64 * 32}


def test_a_size_known_only_at_run_time_is_an_error():
    body = f"%a = hivm.hir.pointer_cast(%c0)[%n] : memref<?xf32, {UB}>"
    with pytest.raises(UnsupportedError, match="pointer_cast of dynamic size"):
        resources.memory_bits(parse_module(program(body)))


def test_inner_loops_count_by_their_trips():
    body = f"""scf.for %i = %i0 to %n step %i1 {{
      scf.for %j = %i0 to %i5 step %i1 {{
        hivm.hir.vadd ins(%t, %t : memref<64xf32, {UB}>, memref<64xf32, {UB}>) outs(%t : memref<64xf32, {UB}>)
        hivm.hir.pipe_barrier[<PIPE_V>]
      }}
      scf.if %tail {{
        hivm.hir.vbrc ins(%k : f32) outs(%t : memref<64xf32, {UB}>)
      }} {{hivm.unlikely_condition}}
      hivm.hir.sync_block_wait[<VECTOR>, <PIPE_FIX>, <PIPE_S>] flag = 0
      {STORE}
    }}"""
    found = resources.count(only_function(body))
    assert found == resources.Counts(vector=5, gm_writes=1, waits=1, barriers=5)


def test_an_inner_loop_of_unknown_length_is_counted_once_and_said():
    body = f"""scf.for %i = %i0 to %n step %i1 {{
      scf.for %j = %i0 to %m step %i1 {{
        {STORE}
      }}
    }}"""
    assert resources.count(only_function(body)) == resources.Counts(gm_writes=1, open_loops=1)


def test_single_elements_of_a_tile_are_counted():
    body = f"""scf.for %i = %i0 to %n step %i1 {{
      scf.for %j = %i0 to %i5 step %i1 {{
        %e = memref.load %t[%j] : memref<64xf32, {UB}>
      }}
      {STORE}
    }}"""
    assert resources.count(only_function(body)).scalar == 5


@pytest.mark.parametrize(("body", "split"), [
    (STORE, "repeated"),
    (f"""%s = hivm.hir.get_sub_block_idx -> i64
    %first = arith.cmpi eq, %s, %c0 : i64
    scf.if %first {{
      {STORE}
    }}""", "repeated"),
    (f"""%s = hivm.hir.get_sub_block_idx -> i64
    %p = arith.index_cast %s : i64 to index
    %w = memref.subview %v[%p] [32] [1] : memref<64xf32, {GM}> to {HALF}
    hivm.hir.store ins(%t : memref<32xf32, {UB}>) outs(%w : {HALF})""", "shared"),
    (f"""%s = hivm.hir.get_sub_block_idx -> i64
    %p = arith.index_cast %s : i64 to index
    scf.for %i = %p to %n step %i1 {{
      {STORE}
    }}
    {STORE}""", "partly shared"),
    ("", "no writes")], ids=["all-write-all", "one-of-two-writes", "own-rows", "loop-shared-rest-not", "nothing"])
def test_split_of_the_vector_work(body, split):
    assert resources.vector_split(only_function(body)) == split


def test_a_compiled_mixed_kernel_fits_and_its_split_follows_the_options():
    """With CV pipelining at its default the compiler repeats all vector work; without, each core takes half."""
    repeated, shared = (call(kernels.measured, "gram", multibuffer=value) for value in (True, False))
    assert (repeated.split, shared.split) == ("repeated", "shared")
    assert repeated.core_type == "MIX" and repeated.workspace_bytes == 24 * repeated.workspace_bytes_per_block > 0
    for memory in ("UB", "L1", "L0C"):
        assert 0 < shared.used_bits[memory] <= shared.limit_bits[memory]
    assert shared.per_task["AIC"].cube == 1 and shared.per_task["AIC"].waits == shared.per_task["AIV"].waits == 1


def test_a_vector_kernel_has_no_split_and_no_workspace():
    found = call(kernels.measured, "scale")
    assert (found.core_type, found.split, found.workspace_bytes) == ("AIV", "one block each", 0)
    assert found.per_task["AIV"].gm_writes == 1
