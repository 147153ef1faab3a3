"""Doors to NVIDIA's compilers and packers, and the proof of what came out."""
