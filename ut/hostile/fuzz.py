"""`python -m ut.hostile.fuzz` (`make fuzz`): draws good and bad calls until the time is up and counts them.

FUZZ_SECONDS: how long (600). FUZZ_SEED: where to start (the clock); a failure prints it with the smallest call.
"""
from __future__ import annotations

import os
import sys
import time

if __name__ == "__main__":  # not for a test that imports this: it may run on a device
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before triton is imported
from hypothesis import HealthCheck, given, seed, settings  # noqa: E402

from mindspeed_kkt_plugin import status  # noqa: E402
from ut.hostile.properties import bad_call_is_refused, good_call_is_right  # noqa: E402
from ut.hostile.strategies import broken, calls  # noqa: E402

ROUND = 50  # examples between looks at the clock


class _Enough(Exception):
    """The time is up in the middle of a round."""


def run(seconds: float, first_seed: int = 0) -> int:
    """Examples until `seconds` are over; a failing one is shrunk, printed and raised. Returns the exit status."""
    start, counts, failed = time.monotonic(), {"good": 0, "bad": 0}, []

    def one(kind, check):
        if not failed and time.monotonic() - start > seconds:  # a failing call is still shrunk
            raise _Enough
        try:
            check()
        except BaseException as error:
            failed.append(error)
            raise
        counts[kind] += 1

    options = settings(max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    number = first_seed
    while time.monotonic() - start < seconds:
        # Looked up here, so that a test can put a fault in.
        good = seed(number)(options(given(calls())(lambda drawn: one("good", lambda: good_call_is_right(drawn)))))
        bad = seed(number)(options(given(broken())(lambda case: one("bad", lambda: bad_call_is_refused(*case)))))
        try:
            good()
            bad()
        except _Enough:
            break
        except BaseException as error:
            print(f"failed with FUZZ_SEED={number}\n" + "\n".join(getattr(error, "__notes__", [])), flush=True)
            raise
        number += 1
    print(f"fuzz: {counts['good']} good and {counts['bad']} bad calls, {sum(counts.values())} examples in "
          f"{time.monotonic() - start:.0f} s, seeds {first_seed} to {number}; paths {status()['calls']}")
    return 0


def _patch_interpreter() -> None:
    from ut.conftest import _patch_language_once

    _patch_language_once()


if __name__ == "__main__":
    _patch_interpreter()
    sys.exit(run(float(os.environ.get("FUZZ_SECONDS", "600")),
                 int(os.environ.get("FUZZ_SEED", time.time_ns() // 10**9 % 10**6))))
