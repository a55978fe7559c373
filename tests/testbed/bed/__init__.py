"""A fleet in one machine: real hosts, a real cluster, one network namespace."""
