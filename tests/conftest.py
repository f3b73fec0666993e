"""What all tests share."""

from hypothesis import settings

# The first example of a property pays for imports and warm-up, so time limits for single examples mislead.
settings.register_profile("chatsrv", deadline=None)
settings.load_profile("chatsrv")
