"""The one error of this package: something is not as expected, said in a sentence for the user."""


class PatchError(Exception):
    """Nothing was written. The message says what was found, what was expected, and what to do."""
