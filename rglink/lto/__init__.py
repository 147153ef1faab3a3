"""Symbols and IR: resolve, merge, internalize, gc, lower, optimize."""
