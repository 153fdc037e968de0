"""Packaging of mindspeed_kkt_plugin. Developer tools (npusim, patches, atk, ut) are not installed."""
import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'^__version__ = "([^"]+)"', (HERE / "mindspeed_kkt_plugin/__init__.py").read_text(), re.M).group(1)
REQUIREMENTS = [line.split("#")[0].strip() for line in (HERE / "requirements.txt").read_text().splitlines()]

setup(
    name="mindspeed-kkt-plugin",
    version=VERSION,
    description="Fused Gated DeltaNet KK^T + triangular inverse for MindSpeed on Ascend A2/A3",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="BSD-3-Clause",
    packages=find_packages(include=["mindspeed_kkt_plugin", "mindspeed_kkt_plugin.*"]),
    python_requires=">=3.10",
    install_requires=[line for line in REQUIREMENTS if line],
)
