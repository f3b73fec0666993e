"""Measurements of this engine and server, beside their peers."""
