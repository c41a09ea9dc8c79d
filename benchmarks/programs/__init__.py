"""The program shapes of the SGLang paper (Zheng et al., section 6.1), and what each policy makes the kernels compute.

    python -m benchmarks.programs

Every shape is a real program of the DSL over seeded, made-up text. It is run once on the simulated model without any
reuse (`recording.py`): that says which messages a client sends, and which tokens a worker without a cache feeds to its
kernels. Then the same messages are sent to the real worker (request trees, scheduler, prefix tree, program hints) under
each setup (`replay.py`), many runs at once, and the rows that its executor writes are counted.
"""
