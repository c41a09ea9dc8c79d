"""FlashInfer's paged attention on an NVIDIA GPU, and Triton's kernels for the rest.

`rows` says which rows of a step go to which of FlashInfer's wrappers, `wrappers` plans and runs them, `backend` is the
contract's object. Only `availability` can be imported without FlashInfer.
"""
