"""The GPUs of this machine, for `--arch native`."""

from __future__ import annotations

from rglink.arch import Arch, parse_arch
from rglink.diagnostics import UsageError


def native_arches() -> tuple[Arch, ...]:
    """The architectures of the GPUs that the driver shows, each once, sorted; empty without a GPU or a driver."""
    try:
        from cuda.bindings import driver
    except ImportError:
        return ()
    try:
        if driver.cuInit(0)[0] != driver.CUresult.CUDA_SUCCESS:
            return ()
        capabilities = {_capability(index) for index in range(driver.cuDeviceGetCount()[1])}
    except RuntimeError:  # cuda.bindings found no driver library
        return ()
    found = []
    for capability in sorted(capabilities):
        try:
            found.append(parse_arch(f"sm_{capability}"))
        except UsageError:
            continue  # older or newer than what we compile for
    return tuple(found)


def _capability(index: int) -> int:
    from cuda.bindings import driver as cuda

    attribute = cuda.CUdevice_attribute
    device = cuda.cuDeviceGet(index)[1]
    major = cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)[1]
    minor = cuda.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)[1]
    return int(major) * 10 + int(minor)
