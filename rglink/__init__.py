"""rglink: link-time optimization and device linking for Rust GPU code."""

__version__ = "0.1.0"
