"""Replays traces of requests against the cache and the scheduler themselves, with a cost model instead of a model."""
