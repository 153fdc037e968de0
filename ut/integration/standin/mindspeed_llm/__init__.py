"""Starts its adaptor on any import, as the real package does."""
import os

if os.environ.get("TRAINING_BACKEND", "mcore") == "mcore":
    from mindspeed_llm.tasks import megatron_adaptor_v2 as megatron_adaptor  # noqa: F401
