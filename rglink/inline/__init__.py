"""Inlining decisions with a GPU's costs."""
