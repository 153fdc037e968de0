"""A small MindSpeed for tests: the documented behaviour of the patch manager and the feature list, nothing else.

Written from the contract, for machines without MindSpeed; the same tests run on the real one (MINDSPEED_SRC).
"""
