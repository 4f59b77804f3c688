"""The demo: training with injected stragglers, synchronously and with wait-avoiding averaging."""
