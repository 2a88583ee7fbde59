"""Benchmarks: every figure is measured beside its limit, in the same run on the same machine."""
