"""For MindSpeed-MM FSDP2: `training.plugin: [mindspeed_kkt_plugin.integration.fsdp2]` imports this module.

Being listed is the switch; a printed line says that it worked, since MindSpeed-MM only prints a failed import.
"""
from .routes import install_direct

install_direct()
