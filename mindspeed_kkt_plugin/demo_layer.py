"""A Qwen3.5 Gated DeltaNet layer from `transformers`, run on bytes of text, for the demo.

Captures what the layer computes and lets it run with another chunked attention. Nothing is downloaded: the
configuration is built here, the weights are random with a fixed seed.
"""
from __future__ import annotations

import importlib.metadata
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

CHUNK = 64
SEED = 2026


@dataclass
class Activations:
    """What the layer hands to its chunked delta rule, with k and q normalised and g summed inside chunks of 64."""

    q: torch.Tensor  # [B, T, H, K]
    k: torch.Tensor  # [B, T, H, K]
    v: torch.Tensor  # [B, T, HV, V]
    g: torch.Tensor  # [B, T, HV]
    beta: torch.Tensor  # [B, T, HV]


def text_bytes(length: int) -> torch.Tensor:
    """`[1, length]` byte values of the README, repeated if it is shorter."""
    readme = Path(__file__).resolve().parent.parent / "README.md"
    if readme.is_file():
        content = readme.read_bytes()
    else:  # installed without the repository: the package carries the README as its description
        content = str(importlib.metadata.metadata("mindspeed-kkt-plugin").get_payload()).encode()
    values = torch.tensor(list(content), dtype=torch.int64)
    return values.repeat(-(-length // len(values)))[None, :length]


class Layer:
    """One-layer Qwen3.5 text model of the real head sizes (K = V = 128, HV = 2 H) and a small width."""

    def __init__(self, device: torch.device, key_heads: int = 2):
        import transformers
        from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling
        from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig

        transformers.logging.set_verbosity_error()  # it would recommend packages that the demo does without
        self._modeling = modeling
        config = Qwen3_5TextConfig(
            vocab_size=256, hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, linear_num_key_heads=key_heads, linear_num_value_heads=2 * key_heads,
            linear_key_head_dim=128, linear_value_head_dim=128, layer_types=["linear_attention"], use_cache=False)
        torch.manual_seed(SEED)
        self.model = modeling.Qwen3_5TextModel(config).float().eval().to(device)
        self.layer = self.model.layers[0].linear_attn
        # transformers' random start forgets within a token. Trained layers start from steps of .001 to .1 per token
        # (Mamba's rule), which leaves long memories, and matrices worth inverting.
        heads = self.layer.dt_bias.numel()
        step = torch.logspace(-3, -1, heads, device=device)
        self.layer.dt_bias.data.copy_(step.expm1().log())  # softplus of it is the step

    def run(self, tokens: torch.Tensor, attention=None) -> tuple[torch.Tensor, Activations]:
        """Output of the Gated DeltaNet layer `[B, T, hidden]` and its activations.

        attention: `Activations -> [B, T, HV, V]`, used instead of transformers' chunked attention. None: its own.
        """
        seen: dict = {}
        with self._attention(attention, seen), torch.no_grad():
            hook = self.layer.register_forward_hook(lambda module, inputs, output: seen.update(output=output))
            try:
                self.model(input_ids=tokens)
            finally:
                hook.remove()
        return seen["output"], seen["activations"]

    @contextmanager
    def _attention(self, attention, seen: dict):
        original = self._modeling.torch_chunk_gated_delta_rule

        def chunked(query, key, value, g, beta, **options):
            seen["activations"] = activations = _activations(query, key, value, g, beta)
            if attention is None:
                return original(query, key, value, g=g, beta=beta, **options)
            return attention(activations).to(query.dtype), None

        self._modeling.torch_chunk_gated_delta_rule = chunked
        try:
            yield
        finally:
            self._modeling.torch_chunk_gated_delta_rule = original


def _activations(query, key, value, g, beta) -> Activations:
    q, k = (x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + 1e-6) for x in (query, key))
    decay = F.pad(g.float(), (0, 0, 0, -g.shape[1] % CHUNK))
    summed = decay.unflatten(1, (-1, CHUNK)).cumsum(2).flatten(1, 2)[:, :g.shape[1]].contiguous()
    return Activations(q, k.contiguous(), value.float(), summed, beta.float())


def chunked_attention(x: Activations, A: torch.Tensor) -> torch.Tensor:
    """Gated delta rule in chunks, `[B, T, HV, V]` in fp32, with A `[B, T, HV, 64]` taken as given.

    Inside a chunk, u = A (beta v) and w = A (beta exp(g) k) condense its updates; a scan carries the state over chunks.
    """
    heads, T = x.v.shape[2], x.v.shape[1]
    repeat = heads // x.k.shape[2]

    def chunks(y):  # [B, T, HV, ...] to [B, HV, NT, 64, ...]
        y = F.pad(y, (0, 0) * (y.dim() - 2) + (0, -T % CHUNK))
        return y.unflatten(1, (-1, CHUNK)).movedim(3, 1)

    q = chunks(x.q.repeat_interleave(repeat, 2)) * x.q.shape[-1] ** -0.5
    k = chunks(x.k.repeat_interleave(repeat, 2))
    v, g, beta, A = chunks(x.v), chunks(x.g), chunks(x.beta), chunks(A.float())
    last = (T - 1) % CHUNK
    g[:, :, -1, last + 1:] = g[:, :, -1, last, None]  # padding rows neither decay nor write
    u = A @ (beta[..., None] * v)
    w = A @ ((beta * g.exp())[..., None] * k)
    gap = g[..., :, None] - g[..., None, :]
    causal = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=g.device).tril()
    scores = (q @ k.transpose(-1, -2)) * torch.where(causal, gap, -torch.inf).exp()
    state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    out = torch.empty_like(v)
    for i in range(q.shape[2]):
        new = u[:, :, i] - w[:, :, i] @ state
        out[:, :, i] = (q[:, :, i] * g[:, :, i, :, None].exp()) @ state + scores[:, :, i] @ new
        fade = (g[:, :, i, -1:] - g[:, :, i]).exp()[..., None]
        state = state * g[:, :, i, -1, None, None].exp() + (k[:, :, i] * fade).transpose(-1, -2) @ new
    return out.movedim(1, 3).flatten(1, 2)[:, :T]
