"""How a server answers under load: prompts, workloads, a client of its own, statistics, report."""
