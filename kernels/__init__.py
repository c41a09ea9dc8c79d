"""Tensors in, tensors out: paged attention and the operations around it, one folder a backend.

`interface` is the contract, `registry` finds a backend by name, `reference` is plain torch and the oracle of the rest.
"""
