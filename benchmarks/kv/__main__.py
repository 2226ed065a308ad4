"""What is kept of prompts, measured: restarts, the cost of writing, agents, explained misses.

    python -m benchmarks.kv agents
    python -m benchmarks.kv restart --model gemma3:270m --tokens 30000
"""
