"""A PTX machine on NumPy: runs linked kernels on the CPU, exact in values, without regard to cycles."""
