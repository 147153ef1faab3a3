"""Rust's operations on the device against the same operations on the host."""
