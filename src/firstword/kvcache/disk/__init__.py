"""KV blocks on the disk: full blocks outlive the pool, and the process."""
