"""Functions that the CUDA driver resolves in any cubin, so that they may stay undefined.

CUDA C++ Programming Guide, "Formatted Output", "Dynamic Global Memory Allocation", "Assertion".
"""

from __future__ import annotations

# Name to the type of the driver's own definition.
DRIVER_FUNCTIONS = {
    "vprintf": "i32 (ptr, ptr)",
    "malloc": "ptr (i64)",
    "free": "void (ptr)",
    "__assertfail": "void (ptr, ptr, i32, ptr, i64)",
}
