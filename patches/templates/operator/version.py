"""Of mindspeed_kkt_plugin, which the files of this package come from."""
__version__ = "@VERSION@"
