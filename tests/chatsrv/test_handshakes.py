"""A listener that goes: connections that are there stay, new ones do not begin."""

from __future__ import annotations

import socket
import sys

import pytest

from chatsrv import handshakes


@pytest.mark.skipif(sys.platform != "linux", reason="the filter is Linux's")
def test_those_that_have_begun_are_accepted_and_no_others_begin() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address) as early:
            early.send(b"sent")
            handshakes.begin_no_more(listener)
            with pytest.raises(TimeoutError):
                socket.create_connection(address, timeout=0.1)
            accepted, _ = listener.accept()
            with accepted:
                early.send(b" and more")
                early.shutdown(socket.SHUT_WR)
                assert b"".join(iter(lambda: accepted.recv(100), b"")) == b"sent and more"
