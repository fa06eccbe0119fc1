"""Speed and memory of raystitch, each figure against a baseline timed in the same process: ``python -m benchmarks``."""
