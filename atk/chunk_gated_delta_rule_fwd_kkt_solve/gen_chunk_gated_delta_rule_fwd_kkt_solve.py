"""ATK generator plugin: turns ATK's independent random draws into cases that the operator accepts.

The first cases are the designed ones of `kkt_solve_profiles.py`; further ones are drawn here, from a seed of this
file's own, so that a case depends on its number only and not on how ATK spends its random numbers.
"""
from __future__ import annotations

import os
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kkt_solve_profiles import ACCURACY, PERFORMANCE, Profile  # noqa: E402
from kkt_solve_standards import accuracy_standard  # noqa: E402

try:
    from atk.case_generator.generator.base_generator import CaseGenerator
    from atk.case_generator.generator.generate_types import GENERATOR_REGISTRY
except ModuleNotFoundError as error:  # the tables and `apply` are of use without ATK
    if (error.name or "").split(".")[0] != "atk":
        raise
    CaseGenerator = GENERATOR_REGISTRY = None

OPERATOR = "chunk_gated_delta_rule_fwd_kkt_solve"
SEED = int(os.environ.get("KKT_SOLVE_CASE_SEED", "20261201"))


def random_profile(index: int, max_tasks: int = 16) -> Profile:
    """A legal case of about `max_tasks` (chunk, head) pairs at most, decided by `SEED` and `index` alone."""
    draw = random.Random(f"{SEED}:{index}")
    dtype = draw.choice(("bf16", "fp16", "fp32"))
    H, group = draw.choice((1, 2, 3)), draw.choice((1, 2, 4))
    chunk_size = draw.choice((16, 32, 64))
    T = draw.randint(1, chunk_size * max(1, max_tasks // (2 * H * group)))
    cuts = None
    if draw.random() < 0.5:
        cuts = (0, *sorted(draw.randint(0, T) for _ in range(draw.randint(0, 2))), T)
    low = -(10 ** draw.uniform(-3, 1.3))
    return Profile(
        f"{dtype}_random_{index}",
        T,
        H=H,
        HV=H * group,
        K=draw.choice((16, 48, 64, 100, 128, 256)),
        dtype=dtype,
        chunk_size=chunk_size,
        cu_seqlens=cuts,
        decay=(round(low, 5), round(low * draw.random(), 5)),
        use_g=draw.random() < 0.8,
        key_correlation=draw.choice((0.0, 0.5, 0.95, 1.0)),
    )


def input_values(profile: Profile) -> dict[str, dict]:
    """What each input of the case is set to: shape, dtype and range of a tensor, value of an attribute."""
    heads = (profile.HV, profile.T) if profile.head_first else (profile.T, profile.HV)
    keys = (profile.H, profile.T) if profile.head_first else (profile.T, profile.H)
    offsets = "none" if profile.cu_seqlens is None else ",".join(map(str, profile.cu_seqlens))
    gates = [profile.B, *heads]
    values = {
        "k": {"shape": [profile.B, *keys, profile.K], "dtype": profile.dtype, "range_values": list(profile.keys)},
        "g": {"shape": gates, "dtype": "fp32", "range_values": list(profile.decay)},
        "beta": {"shape": list(gates), "dtype": profile.beta_dtype, "range_values": list(profile.beta)},
        "cu_seqlens": {"range_values": offsets},
    }
    for name in (
        "chunk_size",
        "output_dtype",
        "head_first",
        "output_head_first",
        "use_g",
        "use_beta",
        "key_correlation",
        "gate_open_share",
    ):
        values[name] = {"range_values": getattr(profile, name)}
    return values


def apply(case, profile: Profile, index: int):
    """Write `profile` into an ATK case and return it."""
    values = input_values(profile)
    for entry in case.inputs:
        for field, value in values[entry.name].items():
            setattr(entry, field, value)
    case.name = f"{OPERATOR}_{profile.name}"
    case.default_seed = SEED + index
    output_dtype = profile.dtype if profile.output_dtype == "same" else profile.output_dtype
    case.standard.acc = accuracy_standard("cv_fused_double_benchmark", output_dtype)
    return case


def _profile(table: tuple[Profile, ...], index: int) -> Profile:
    return table[index] if index < len(table) else random_profile(index)


if GENERATOR_REGISTRY is not None:

    @GENERATOR_REGISTRY.register("generator_kkt_solve")
    class KktSolveGenerator(CaseGenerator):
        def __init__(self, config):
            super().__init__(config)
            self._count = -1  # ATK numbers the cases only after this hook

        def after_case_config(self, case_config):
            self._count += 1
            return apply(case_config, _profile(ACCURACY, self._count), self._count)

    @GENERATOR_REGISTRY.register("generator_kkt_solve_perf")
    class KktSolvePerfGenerator(CaseGenerator):
        def __init__(self, config):
            super().__init__(config)
            self._count = -1

        def after_case_config(self, case_config):
            self._count += 1
            return apply(case_config, _profile(PERFORMANCE, self._count), self._count)
