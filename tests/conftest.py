"""What all tests share."""

import contextlib

import kernels  # noqa: F401  # before any test imports torch: it sets up OpenMP
import tests.kernels.triton_interpreter  # noqa: F401  # before anything imports Triton, which then cannot change its mind

with contextlib.suppress(ImportError):  # `make gpu` does without hypothesis
    from hypothesis import settings

    # The first example of a property pays for imports and warm-up, so time limits for single examples mislead.
    settings.register_profile("chatsrv", deadline=None)
    settings.load_profile("chatsrv")
