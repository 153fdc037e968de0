"""npusim: compile Triton kernels for Ascend A2/A3 without a device, run what the compiler emitted, and time it.

A developer tool: not installed with the plugin, and every time it gives is an estimate. See docs/en/npusim.md.
"""
