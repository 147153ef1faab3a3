"""Whole kernels on the PTX machine: what threads compute alone equals the host, what they do together equals NumPy."""
