"""Command lines, rustc and the device sysroot."""
