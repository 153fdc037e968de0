"""One fused forward: what reaches the operator, what falls back to the original pair, and what stays unseen."""
from __future__ import annotations

import inspect
import sys
import threading
import types

import pytest
import torch

from mindspeed_kkt_plugin import integration
from mindspeed_kkt_plugin.integration import forward
from mindspeed_kkt_plugin.integration.consumers import CONSUMERS
from ut.integration.conftest import ROW

IDS = [consumer.id for consumer in CONSUMERS]


def _outputs_equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left[:3], right[:3], strict=True))


@pytest.mark.parametrize("packed", [None, [0, 30, 30, 95]], ids=["fixed", "packed-with-empty-sequence"])
@pytest.mark.parametrize("consumer", IDS)
def test_result_is_that_of_the_original_forward(consumer, packed, stack, operator, layer_inputs):
    inputs = layer_inputs(consumer, dtype=torch.bfloat16, cu_seqlens=packed)
    stack.load(consumer)
    plain = stack.forward_of(consumer)(**inputs)
    integration.install_direct()
    fused = stack.forward_of(consumer)(**inputs)
    assert _outputs_equal(plain, fused)
    assert len(operator) == 1 and stack.state(consumer) == "active"


@pytest.mark.parametrize("consumer", IDS)
def test_operator_gets_the_consumers_arguments(consumer, stack, operator, layer_inputs):
    inputs = layer_inputs(consumer, dtype=torch.bfloat16, cu_seqlens=[0, 64, 100])
    stack.load(consumer)
    integration.install_direct()
    stack.forward_of(consumer)(**inputs, chunk_size=32)
    (call,) = operator
    assert call["k"] is inputs["k"] and call["cu_seqlens"] is inputs["cu_seqlens"]
    assert (call["chunk_size"], call["output_dtype"]) == (32, torch.bfloat16)
    assert call["head_first"] is ROW[consumer].head_first_k
    assert call["g"].data_ptr() == inputs["g"].data_ptr(), "g was copied"
    assert call["g"].shape == (inputs["g"].mT.shape if call["head_first"] else inputs["g"].shape)


@pytest.mark.parametrize("consumer", IDS)
def test_saved_A_is_the_operators_own_result_without_a_copy(consumer, stack, operator, layer_inputs):
    """L2, M2 and M3 transpose A next: the operator writes it that way, so that their `.contiguous()` does nothing."""
    stack.load(consumer)
    integration.install_direct()
    saved = stack.forward_of(consumer)(**layer_inputs(consumer, dtype=torch.bfloat16))[2]
    assert saved.is_contiguous() and saved.data_ptr() == operator[0]["out"].data_ptr()
    assert saved.shape == ((1, 2, 100, 64) if ROW[consumer].head_first_A else (1, 100, 2, 64))


@pytest.mark.parametrize("arch35", [False, True], ids=["arch32", "arch35"])
def test_M3_chunk_tables_are_accepted_in_both_forms_and_not_relied_on(arch35, stack, operator, layer_inputs):
    inputs = layer_inputs("M3", cu_seqlens=[0, 64, 64, 100])
    module = stack.load("M3")
    stack.monkeypatch.setattr(module, "ARCH35", arch35)
    integration.install_direct()
    wrong_after_an_empty_sequence = torch.tensor([[0, 0], [1, 0]])
    stack.forward_of("M3")(**inputs, chunk_indices={"64": wrong_after_an_empty_sequence})
    assert len(operator) == 1


def _edit_l1(stack, old: str, new: str):
    """Load L1 with a forward whose source differs in one place."""
    module = stack.load("L1")
    source = inspect.getsource(module)
    assert source.count(old) == 1
    module.chunk_gated_delta_rule_fwd = stack.module("l1", source.replace(old, new)).chunk_gated_delta_rule_fwd


FALLBACKS = {  # id: reason, options of the inputs, chunk size, an edit of the forward's source
    "H13-gk-given": ("gk", {}, 64, ("output_dtype=torch.float32", "output_dtype=torch.float32, gk=g")),
    "A-in-float64": ("not torch.float32", {}, 64, ("output_dtype=torch.float32", "output_dtype=torch.float64")),
    "H06-chunk-128": ("chunk_size is 128", {}, 128, None),
    "K-over-256": ("K=300", {"K": 300}, 64, None),
    "float64-keys": ("float64", {"dtype": torch.float64}, 64, None),
    "packed-batch-of-2": ("batch of 2", {"B": 2, "cu_seqlens": [0, 50, 100]}, 64, None),
    "two-packings": ("different cu_seqlens", {"cu_seqlens": [0, 64, 100]}, 64,
                     ("A=A, cu_seqlens=cu_seqlens", "A=A, cu_seqlens=None")),
}


@pytest.mark.parametrize(("reason", "options", "chunk_size", "edit"), FALLBACKS.values(), ids=FALLBACKS)
def test_calls_that_the_operator_does_not_take_run_the_original_pair(
    reason, options, chunk_size, edit, stack, operator, layer_inputs, caplog
):
    inputs = layer_inputs("L1", **options)
    _edit_l1(stack, *edit) if edit else stack.load("L1")
    plain = stack.forward_of("L1")(**inputs, chunk_size=chunk_size)
    integration.install_direct()
    for _ in range(2):
        assert _outputs_equal(plain, stack.forward_of("L1")(**inputs, chunk_size=chunk_size))
    assert not operator
    said = [r.getMessage() for r in caplog.records if "original two operators" in r.getMessage()]
    assert len(said) == 1 and reason in said[0] and "L1" in said[0]


@pytest.mark.parametrize("missing", ["g", "beta"])
def test_H10_missing_gate_or_beta_reaches_the_original_kkt(missing, stack, operator, layer_inputs, caplog):
    module = stack.load("L1")
    seen = []
    stack.monkeypatch.setattr(module, "chunk_scaled_dot_kkt_fwd", lambda **kwargs: seen.append(kwargs))
    stack.monkeypatch.setattr(module, "solve_tril", lambda **kwargs: torch.zeros(1))
    integration.install_direct()
    stack.forward_of("L1")(**layer_inputs("L1") | {missing: None})
    assert seen[0][missing] is None and not operator
    assert f"{missing} is None" in caplog.text


def test_solve_without_a_dtype_gives_fp32_like_the_original(stack, operator, layer_inputs):
    _edit_l1(stack, "output_dtype=k.dtype", "output_dtype=None")
    integration.install_direct()
    stack.forward_of("L1")(**layer_inputs("L1", dtype=torch.bfloat16))
    assert operator[0]["output_dtype"] == torch.float32


def test_where_no_fused_kernel_takes_the_call_the_originals_run(stack, operator, layer_inputs, caplog):
    """On an NPU MindSpeed's own pair is the better fallback than ours; here the CPU plays the NPU."""
    stack.load("L1")
    integration.install_direct()
    stack.monkeypatch.setattr(forward, "HAS_ORIGINALS", ("cpu",))
    refusing = types.SimpleNamespace(name="portable", devices=("cpu",), refuse=lambda call: f"K is {call.k.shape[-1]}")
    stack.monkeypatch.setattr(forward.paths, "PATHS", (refusing,))
    inputs = layer_inputs("L1")
    stack.forward_of("L1")(**inputs)
    assert not operator and "portable: K is 16" in caplog.text
    refusing.refuse = lambda call: None
    stack.forward_of("L1")(**inputs)
    assert len(operator) == 1


def test_on_an_npu_wrong_shapes_reach_the_operators_own_error(stack, layer_inputs):
    stack.load("L1")
    integration.install_direct()
    stack.monkeypatch.setattr(forward, "HAS_ORIGINALS", ("cpu",))
    with pytest.raises(ValueError, match="g has shape"):
        stack.forward_of("L1")(**layer_inputs("L1") | {"g": torch.zeros(2)})


def test_P15_leaf_operators_are_untouched_and_solve_a_foreign_A_as_before(stack, operator, layer_inputs):
    module = stack.load("L1")
    leaves = [sys.modules["mindspeed.ops.triton." + name] for name in ("chunk_scaled_dot_kkt", "solve_tril")]
    before = [dict(vars(leaf)) for leaf in leaves]
    integration.install_direct()
    stack.forward_of("L1")(**layer_inputs("L1"))
    assert [dict(vars(leaf)) for leaf in leaves] == before
    foreign = torch.rand(1, 64, 2, 64).tril(-1)
    assert torch.equal(module.solve_tril(A=foreign), leaves[1].solve_tril(A=foreign))


def test_a_later_patch_of_a_helper_stays_effective(stack, operator, layer_inputs):
    """The forward's globals are read at each call, as the original reads them."""
    module = stack.load("L1")
    integration.install_direct()
    inputs = layer_inputs("L1", dtype=torch.float64)  # falls back
    stack.monkeypatch.setattr(module, "solve_tril", lambda **_: torch.full((1, 1, 1, 1), 7.0))
    assert stack.forward_of("L1")(**inputs)[2].item() == 7


def test_signature_defaults_and_documentation_are_kept(stack):
    module = stack.load("L1")
    plain = module.chunk_gated_delta_rule_fwd
    integration.install_direct()
    fused = module.chunk_gated_delta_rule_fwd
    assert fused is not plain
    assert (inspect.signature(fused), fused.__doc__, fused.__name__) == (
        inspect.signature(plain), plain.__doc__, plain.__name__)


def test_bad_arguments_fail_as_in_the_original(stack, layer_inputs):
    stack.load("L1")
    integration.install_direct()
    with pytest.raises(TypeError, match="unexpected keyword argument 'chunk'"):
        stack.forward_of("L1")(**layer_inputs("L1"), chunk=64)


def test_disagreeing_shapes_are_a_clear_error_where_the_original_would_read_wrong_memory(stack, layer_inputs):
    """MindSpeed-LLM FSDP2 flattens k but not g and beta when it packs a micro-batch of more than one."""
    stack.load("L1")
    integration.install_direct()
    inputs = layer_inputs("L1")
    inputs["g"] = inputs["g"].reshape(2, 50, 2)
    with pytest.raises(ValueError, match=r"g has shape \(2, 50, 2\)"):
        stack.forward_of("L1")(**inputs)


def test_threads_do_not_meet(stack, operator, layer_inputs):
    """Backward threads recompute forwards while the main thread runs others."""
    stack.load("L1"), stack.load("M3")
    integration.install_direct()
    inputs = {c: layer_inputs(c) for c in ("L1", "M3")}
    expected = {c: stack.forward_of(c)(**inputs[c])[2] for c in inputs}
    wrong = []

    def work(consumer):
        for _ in range(20):
            if not torch.equal(stack.forward_of(consumer)(**inputs[consumer])[2], expected[consumer]):
                wrong.append(consumer)

    threads = [threading.Thread(target=work, args=(c,)) for c in ("L1", "M3", "L1")]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


@pytest.mark.parametrize("consumer", ["L1", "M3"])
def test_with_the_real_operator_the_saved_A_is_accurate(consumer, stack, layer_inputs):
    inputs = layer_inputs(consumer, T=40, K=16, chunk_size=16)
    stack.load(consumer)
    plain = stack.forward_of(consumer)(**inputs, chunk_size=16)[2]
    integration.install_direct()
    fused = stack.forward_of(consumer)(**inputs, chunk_size=16)[2]
    assert (fused - plain).norm() <= 1e-5 * plain.norm()
