"""Constrained decoding: constraint -> compiled grammar -> matcher -> token mask."""
