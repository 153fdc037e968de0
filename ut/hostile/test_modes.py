"""Published failures of reproducibility, modes, devices and threads (ids R.. and X.. of cases.md)."""
from __future__ import annotations

import contextlib
import threading

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from mindspeed_kkt_plugin import chunk_gated_delta_rule_fwd_kkt_solve as fused
from mindspeed_kkt_plugin import paths, status
from mindspeed_kkt_plugin.kernels import portable
from mindspeed_kkt_plugin.kernels.launch import Launch
from mindspeed_kkt_plugin.varlen import prepare_chunk_indices
from ut.accuracy import assert_accurate, exact
from ut.hostile.properties import assert_agree
from ut.inputs import make_inputs

SMALL = dict(H=1, K=16, chunk_size=16)


def test_R01_A02_fifty_repeats_are_bit_identical_with_other_work_in_between(device):
    inputs = make_inputs("cosine_95", T=33, cu_seqlens=[0, 9, 33], device=device, **SMALL)
    first = fused(*inputs.args)
    for seed in range(50):
        if seed % 10 == 0:
            fused(*make_inputs("beta2_repeated", T=17, device=device, seed=seed, **SMALL).args)
        assert torch.equal(fused(*inputs.args), first)


@pytest.mark.parametrize("path", ["first", "two_call", "torch"])
def test_R01_a_chunk_has_the_same_bits_wherever_it_stands(path, device, monkeypatch):
    """In a batch, in a packed sequence, among other heads, at the end of a longer run: one arithmetic."""
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("cosine_95", B=2, T=48, H=2, HV=4, K=16, chunk_size=16, device=device)
    k, g, beta = inputs.args[:3]
    out = fused(*inputs.args)
    chunk = slice(16, 32)
    lone = fused(k[1:, chunk, 1:].contiguous(), g[1:, chunk, 3:].contiguous(), beta[1:, chunk, 3:].contiguous(), None,
                 16)
    assert_agree(out[1:, chunk, 3:], lone, path, device)
    flat = [x.reshape(1, 96, *x.shape[2:]) for x in (k, g, beta)]
    bounds = torch.tensor([0, 48, 48, 64, 96], device=device)
    assert_agree(fused(*flat, bounds, 16), out.reshape(1, 96, 4, 16), path, device)


def test_R07_one_call_allocates_its_result_and_nothing_else(device):
    inputs = make_inputs("random", T=40, device=device, **SMALL)
    fused(*inputs.args)
    memory = {x.untyped_storage().data_ptr() for x in inputs.args[:3]}
    seen = set(memory)

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                seen.add(out.untyped_storage().data_ptr())
            return out

    with Count():
        out = fused(*inputs.args)
    if device == "npu":
        pytest.skip("the Ascend kernel also has hand-over buffers of fixed size; see test_compiled.py")
    assert seen - memory == {out.untyped_storage().data_ptr()}


def test_R09_lengths_share_one_program_but_for_whole_chunks(device):
    constants, arguments = set(), set()
    for T in (112, 148, 205, 311, 1, 16, 17, 100_000):
        k = torch.empty(1, T, 2, 64, device="meta")
        _, (launch,) = portable.plan(k, k[..., 0], k[..., 0], None, None, chunk_size=16, output_dtype=torch.float32,
                                     head_first=False, output_head_first=False, num_cores=2)
        constants.add(tuple(launch.constants.items()))
        arguments.add(tuple(sorted(launch.args)))
    assert len(constants) == 2 and len(arguments) == 1
    assert not {"T", "NT", "g_stride_b", "out_stride_b"} & set(launch.constants)


@pytest.mark.parametrize("precision", ["tf32", "hf32", "quick", None, 3])
def test_R13_a_precision_that_does_not_exist_is_refused(precision):
    k = torch.empty(1, 16, 1, 16, device="meta")
    with pytest.raises(ValueError, match="precision is .*takes 'ieee' only"):
        portable.plan(k, None, None, None, None, chunk_size=16, output_dtype=torch.float32, head_first=False,
                      output_head_first=False, num_cores=2, precision=precision)


MODES = {
    "no_grad": lambda device: torch.no_grad(),
    "enable_grad": lambda device: torch.enable_grad(),
    "inference": lambda device: torch.inference_mode(),
    "autocast_bf16": lambda device: torch.autocast(device, torch.bfloat16),
    "default_dtype_float64": lambda device: _default(torch.float64),
    "default_device_meta": lambda device: torch.device("meta"),
    "anomaly": lambda device: torch.autograd.detect_anomaly(),
}


@contextlib.contextmanager
def _default(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("path", ["first", "two_call", "torch"])
@pytest.mark.parametrize("packing", [None, [0, 9, 9, 21]], ids=["fixed", "packed"])
@pytest.mark.parametrize("mode", MODES)
def test_R16_modes_change_no_bit_and_no_gradient_flows(mode, packing, path, device, monkeypatch):
    if path != "first":
        monkeypatch.setenv("MINDSPEED_KKT_PATH", path)
    inputs = make_inputs("cosine_95", T=25, cu_seqlens=packing, device=device, **SMALL)
    plain = fused(*inputs.args)
    inputs.k.requires_grad_()
    fresh = None if packing is None else inputs.cu_seqlens.clone()
    with MODES[mode](device):
        out = fused(*inputs.args[:3], fresh, 16)
    assert torch.equal(out, plain) and out.dtype == plain.dtype and not out.requires_grad


def test_R16_float64_is_a_clear_error(device):
    with pytest.raises(TypeError, match="k has dtype float64; allowed: bfloat16, float16, float32"):
        fused(torch.ones(1, 4, 1, 16, dtype=torch.float64, device=device))


def test_meta_and_fake_tensors_get_shapes_without_a_launch(device, monkeypatch):
    monkeypatch.setattr(Launch, "run", lambda self: pytest.fail("launched"))
    k = torch.empty(2, 40, 2, 16, dtype=torch.bfloat16, device="meta")
    out = fused(k, None, torch.empty(2, 40, 4, device="meta"), output_head_first=True)
    assert (out.shape, out.dtype, out.device.type) == ((2, 4, 40, 64), torch.bfloat16, "meta")
    offsets = torch.empty(3, dtype=torch.int32, device="meta")
    assert fused(k[:1], cu_seqlens=offsets, chunk_size=16).shape == (1, 40, 2, 16)
    if not hasattr(torch.library, "custom_op"):
        pytest.skip("fake tensors need torch.library.custom_op (torch >= 2.4)")
    with FakeTensorMode():
        k = torch.empty(1, 20, 1, 16, device=device)
        assert fused(k, chunk_size=16, output_dtype=torch.float16).dtype == torch.float16


class Late(torch.Tensor):
    """As a collective's result: memory only after torch has unwrapped it."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def unwrap(x):
            return x.inner if isinstance(x, Late) else x

        if func is torch.ops.aten.detach.default:
            return Late(args[0].inner.detach())
        return func(*(unwrap(x) for x in args), **{name: unwrap(x) for name, x in (kwargs or {}).items()})


@pytest.mark.skipif(not hasattr(torch.library, "custom_op"), reason="needs torch >= 2.4")
@pytest.mark.parametrize("name", ["k", "g", "beta"])
def test_tensors_without_memory_of_their_own_are_unwrapped_by_torch_first(name, device):
    inputs = make_inputs("cosine_95", T=25, device=device, **SMALL)
    expected = fused(*inputs.args)
    setattr(inputs, name, Late(getattr(inputs, name)))
    assert torch.equal(fused(*inputs.args), expected)


def test_function_transforms_fail_and_never_answer_wrongly(device):
    k = torch.randn(2, 1, 20, 1, 16, device=device)
    for call in (lambda: torch.vmap(lambda x: fused(x, chunk_size=16))(k),
                 lambda: torch.func.grad(lambda x: fused(x, chunk_size=16).sum())(k[0])):
        with pytest.raises(RuntimeError):
            call()


def test_threads_get_their_own_results_and_every_call_is_counted(device):
    """Backward threads recompute forwards; Triton's interpreter alone could not be called from two threads."""
    inputs = [make_inputs("cosine_95", T=20 + 9 * n, device=device, seed=n, **SMALL,
                          cu_seqlens=[0, 5 * n, 20 + 9 * n]) for n in range(4)]
    expected = [fused(*each.args) for each in inputs]
    before, wrong = sum(status()["calls"].values()), []

    def work(n):
        try:
            for _ in range(6):
                if not torch.equal(fused(*inputs[n].args), expected[n]):
                    wrong.append(n)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong
    assert sum(status()["calls"].values()) == before + 24


def test_threads_share_the_remembered_tables_safely():
    offsets = [torch.tensor([0, n, 2 * n, 200]) for n in range(1, 25)]
    expected = [prepare_chunk_indices(x.clone(), 16) for x in offsets]
    wrong = []

    def work():
        for _ in range(20):
            for x, table in zip(offsets, expected, strict=True):
                if not torch.equal(prepare_chunk_indices(x, 16), table):
                    wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong


@pytest.mark.parametrize("index", [0, 1, 3])
def test_X01_X02_launches_happen_on_the_tensors_device_and_the_current_one_comes_back(index, monkeypatch):
    """No second device here: the guard that switches is replaced by one that takes notes."""
    current = ["before"]

    @contextlib.contextmanager
    def guard(device):
        current.append(device)
        yield
        current.pop()

    class Noted:
        def run(self):
            assert current[-1] == torch.device("cuda", index)

    monkeypatch.setattr(torch.cuda, "device", guard)
    paths.run_launches([Noted(), Noted()], torch.device("cuda", index))
    assert current == ["before"]


@pytest.mark.parametrize("name", ["g", "beta", "cu_seqlens", "chunk_indices"])
def test_X04_one_tensor_elsewhere_is_a_clear_error(name, device):
    given = dict(k=torch.ones(1, 20, 1, 16), g=torch.zeros(1, 20, 1), beta=torch.ones(1, 20, 1),
                 cu_seqlens=torch.tensor([0, 20]), chunk_indices=torch.tensor([[0, 0], [0, 1]]))
    given = {key: x.to("meta" if key == name else device) for key, x in given.items()}
    with pytest.raises(ValueError, match=f"{name} is on meta but k is on {device}.*all tensors must be on one device"):
        fused(**given, chunk_size=16)


def test_X05_a_side_stream_needs_no_other_synchronisation(accelerator):
    backend = getattr(torch, accelerator)
    inputs = make_inputs("cosine_95", T=4096, H=16, cu_seqlens=[0, 1000, 4096], device=accelerator,
                         dtype=torch.bfloat16)
    expected = fused(*inputs.args)
    stream = backend.Stream()
    for _ in range(10):
        with backend.stream(stream):
            k = (inputs.k * 2).sort(dim=1).values * 0 + inputs.k  # late
            out = fused(k, inputs.g, inputs.beta, inputs.cu_seqlens.clone(), 64)
        stream.synchronize()
        assert torch.equal(out, expected)


@pytest.mark.parametrize("packed", [False, True], ids=["fixed", "packed"])
def test_R10_captured_graph_replays_with_new_values(packed, accelerator):
    if accelerator != "cuda":
        pytest.skip("graph capture is tried on CUDA only")
    bounds = [0, 100, 256] if packed else None
    first, second = (make_inputs("cosine_95", T=256, H=4, cu_seqlens=bounds, device="cuda", dtype=torch.bfloat16,
                                 seed=seed) for seed in range(2))
    table = prepare_chunk_indices(first.cu_seqlens, 64) if packed else None
    fused(*first.args, chunk_indices=table)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = fused(*first.args, chunk_indices=table)
    for held, new in zip(first.args[:3], second.args[:3], strict=True):
        held.copy_(new)
    if packed:  # other boundaries, as many chunks
        first.cu_seqlens.copy_(torch.tensor([0, 150, 256]))
        table.copy_(torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0], [1, 1]]))
    graph.replay()
    torch.cuda.synchronize()
    assert_accurate(out, exact(first), first)
