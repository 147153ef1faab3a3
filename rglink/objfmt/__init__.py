"""Bytes in, plain data out: containers and object formats."""
