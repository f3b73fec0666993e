"""What all tests share."""

import contextlib
import os

import kernels  # noqa: F401  # before any test imports torch: it sets up OpenMP
import tests.kernels.triton_interpreter  # noqa: F401  # before anything imports Triton, which then cannot change its mind

with contextlib.suppress(ImportError):  # `make gpu` does without hypothesis
    from hypothesis import settings

    # The first example of a property pays for imports and warm-up, so time limits for single examples mislead. CI tries
    # the same examples every time, so that it is red for a change and not by chance; people try new ones.
    settings.register_profile("chatsrv", deadline=None, derandomize=os.environ.get("CI") == "true")
    settings.load_profile("chatsrv")
