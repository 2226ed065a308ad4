"""Experiments on what is kept of prompts: restarts, writing, agents, explained misses."""
