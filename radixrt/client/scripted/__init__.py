"""`Scripted`: a deterministic model for tests of programs.

A script (`script`) says what each `gen` and `select` gets (`replies`); a session (`session`) plays the replies as a
runtime would tell of them, once it has held them against what was asked (`checks`).
"""
