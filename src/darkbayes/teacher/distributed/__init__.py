"""Chains that travel between processes, each of which holds a shard of the data."""
