"""`--use-fused-gdn-kkt-solve` as a MindSpeed feature: the flag, its validation, and what it registers.

Imports MindSpeed, so it is itself imported by `routes.py` only. No patch is described here; see `consumers.py`.
"""
from __future__ import annotations

import importlib
import sys
from argparse import ArgumentParser, Namespace

from mindspeed.features_manager.feature import MindSpeedFeature

from mindspeed_kkt_plugin.checks import CHUNK_SIZES

from . import log
from .consumers import CONSUMERS, Consumer
from .forward import consumer_of, wrapper_for
from .imports import loading, namespace
from .pairing import why_unpaired
from .routes import announce_waiting, patch_when_imported


class FusedGdnKktSolveFeature(MindSpeedFeature):
    """One fused operator for `solve_tril(chunk_scaled_dot_kkt_fwd(...))` in the Gated DeltaNet forwards."""

    def __init__(self) -> None:
        super().__init__("use-fused-gdn-kkt-solve", optimization_level=2)

    def register_args(self, parser: ArgumentParser) -> None:
        if "--use-fused-gdn-kkt-solve" in parser._option_string_actions:
            return
        group = parser.add_argument_group(title=self.feature_name)
        group.add_argument("--use-fused-gdn-kkt-solve", action="store_true", default=False,
                           help="Compute Gated DeltaNet's KK^T and triangular inverse in one fused operator "
                                "(needs --use-triton-gdn in MindSpeed-LLM).")

    def validate_args(self, args: Namespace) -> None:
        """args is Megatron's namespace, or a TransformerConfig without most of its names."""
        if not getattr(args, self.feature_name, None) or not hasattr(args, "use_triton_gdn"):
            return
        self.dependency_check(args, "use_triton_gdn")
        chunk_size = getattr(args, "mamba_chunk_size", None)
        if chunk_size is not None and chunk_size not in CHUNK_SIZES:
            raise ValueError(
                f"--use-fused-gdn-kkt-solve: --mamba-chunk-size is {chunk_size}, allowed are {CHUNK_SIZES}. "
                "MindSpeed-LLM uses it as the chunk size of Gated DeltaNet too, and its default is 256, which "
                "solve_tril refuses as well; add --mamba-chunk-size 64."
            )

    def register_patches(self, patch_manager, args: Namespace) -> None:
        """Register every consumer that is present and selected; the others are patched if they are ever imported."""
        registered = 0
        for consumer in CONSUMERS:
            if consumer.switch and hasattr(args, consumer.switch) and not getattr(args, consumer.switch):
                log.left_alone(consumer, f"not selected: {consumer.chosen_by} is off", warn=False)
            elif _present(consumer):
                registered += _register(patch_manager, consumer)
            else:
                patch_when_imported(consumer)
        if not registered:
            announce_waiting()


def _present(consumer: Consumer) -> bool:
    """Loaded, or selected by the arguments and in a package that is loaded. Nothing is searched for: looking up a
    submodule would import mindspeed_llm, and that starts its adaptor."""
    if consumer.module in sys.modules:
        return not loading(sys.modules[consumer.module])
    return consumer.switch is not None and consumer.package in sys.modules


def _register(patch_manager, consumer: Consumer) -> bool:
    """Here and not in the manager's apply loop: a missing name or module must not stop the training, nor plant None."""
    try:
        module = importlib.import_module(consumer.module)
    except ImportError as error:
        log.left_alone(consumer, f"its module cannot be imported ({error})")
        return False
    forward = namespace(module).get(consumer.function)
    if forward is None:
        log.left_alone(consumer, f"{consumer.module} has no {consumer.function}")
    elif not consumer_of(forward) and (reason := why_unpaired(forward)):
        log.left_alone(consumer, reason)
    else:
        patch_manager.register_patch(consumer.target, wrapper_for(consumer))
        return True
    return False
