"""The wire protocol as types: what clients may send, what the server answers. No I/O."""
