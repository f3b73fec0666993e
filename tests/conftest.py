"""What all tests share."""

from hypothesis import settings

import kernels  # noqa: F401  # before any test imports torch: it sets up OpenMP
import tests.kernels.triton_interpreter  # noqa: F401  # before anything imports Triton, which then cannot change its mind

# The first example of a property pays for imports and warm-up, so time limits for single examples mislead.
settings.register_profile("chatsrv", deadline=None)
settings.load_profile("chatsrv")
