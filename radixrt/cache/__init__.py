"""The prefix cache: a radix tree of KV pages with leases and leaf-first eviction. `prefix_cache` is the way in."""
