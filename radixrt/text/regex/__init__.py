"""Regular expressions as users mean them, translated for engines that mean something slightly different.

    pattern --parse--> nodes --anchors--> nodes without anchors --rust--> pattern for Rust's `regex` syntax

What is no regular language (lookaround, backreferences) or means different things to different people is refused with
the reason, never dropped.
"""
