"""Closing a listening socket so that no connection is lost that a client believes to have.

The kernel completes handshakes by itself. Where a listener is closed, it resets connections that were not accepted yet,
on which a request may have been sent: no proxy dares to repeat a POST then. So first no handshake may begin any more.
"""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import suppress

_SO_ATTACH_FILTER = 26
_FLAGS_OFFSET, _SYN, _SYN_OR_ACK = 13, 0x02, 0x12
_DROP_SYN = (
    (0x30, 0, 0, _FLAGS_OFFSET),  # load the flags of the TCP header
    (0x54, 0, 0, _SYN_OR_ACK),  # of them these two
    (0x15, 0, 1, _SYN),  # unless it is a first packet, skip one
    (0x06, 0, 0, 0),  # drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # take it whole
)


def begin_no_more(listener: socket.socket) -> None:
    """Finish handshakes that have begun, and ignore new ones. Their clients try again after a second, or elsewhere."""
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN))
    with suppress(OSError):  # not every sandbox has it: then a connection may be lost, rarely
        option = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(program))
        listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
