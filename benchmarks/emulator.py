#!/usr/bin/env python3
"""Lane-instructions per second of the PTX machine: straight code, loops, barriers, atomics, divergence.

    .venv/bin/python benchmarks/emulator.py [--profile NAME]

A lane-instruction is one instruction of one thread. Prints the median, the best and the worst of the repetitions; the
goals are 100 million/s on straight code and 25 million/s with barriers. The last column says how many times longer a
launch takes with all checks; the goal is 3.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rglink.emulate import load
from rglink.emulate.checks import launch_checked
from rglink.emulate.launch import Kernel

HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<24>; .reg .f32 %f<8>; .reg .b64 %rd<12>;\n"
PLACE = """
ld.param.u32 %r9, [n]; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.s32 %r4, %r1, %r2, %r3;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mul.wide.u32 %rd3, %r4, 4; add.s64 %rd1, %rd1, %rd3;
add.s64 %rd2, %rd2, %rd3;
"""
HASH = (
    "shl.b32 %r6, %r5, 13; xor.b32 %r5, %r5, %r6; shr.u32 %r6, %r5, 17; xor.b32 %r5, %r5, %r6; shl.b32 %r6, %r5, 5;"
    "xor.b32 %r5, %r5, %r6; add.s32 %r5, %r5, %r4; mul.lo.s32 %r5, %r5, 1664525;\n"
)
# No loop: nothing that all threads share, so that every instruction is a vector.
STRAIGHT = "ld.global.u32 %r5, [%rd1];\n" + 12 * HASH + "st.global.u32 [%rd2], %r5;"
SAXPY = """
setp.ge.s32 %p1, %r4, %r9; @%p1 bra END; cvta.to.global.u64 %rd1, %rd1; cvta.to.global.u64 %rd2, %rd2;
ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd2]; fma.rn.f32 %f3, %f1, 0f40490FDB, %f2; st.global.f32 [%rd2], %f3;
END:
"""
FLOATS = (
    "ld.global.f32 %f1, [%rd1];\n"
    + 12 * "mul.f32 %f2, %f1, %f1; add.f32 %f1, %f1, %f2; sub.f32 %f1, %f1, 0f3F800000;\n"
)
FLOATS += "st.global.f32 [%rd2], %f1;"
TREE = """
.shared .align 4 .b8 tile[1024]; shl.b32 %r5, %r3, 2; mov.u32 %r6, tile; add.u32 %r5, %r5, %r6;
ld.global.f32 %f1, [%rd1]; st.shared.f32 [%r5], %f1; bar.sync 0; mov.u32 %r7, 128;
L: setp.ge.u32 %p1, %r3, %r7; @%p1 bra SKIP; shl.b32 %r8, %r7, 2; add.u32 %r8, %r5, %r8; ld.shared.f32 %f1, [%r5];
ld.shared.f32 %f2, [%r8]; add.f32 %f1, %f1, %f2; st.shared.f32 [%r5], %f1;
SKIP: bar.sync 0; shr.u32 %r7, %r7, 1; setp.ne.u32 %p2, %r7, 0; @%p2 bra L;
setp.ne.u32 %p3, %r3, 0; @%p3 bra END; ld.shared.f32 %f1, [tile]; st.global.f32 [%rd2], %f1; END:
"""
TRANSPOSE = """
.shared .align 4 .b8 tile[1024]; shl.b32 %r5, %r3, 2; mov.u32 %r6, tile; add.u32 %r5, %r5, %r6;
ld.global.u32 %r10, [%rd1]; mov.u32 %r11, 0;
L: st.shared.u32 [%r5], %r10; bar.sync 0; xor.b32 %r7, %r3, %r11; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %r6;
ld.shared.u32 %r8, [%r7]; bar.sync 0; add.u32 %r10, %r10, %r8; add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 16;
@%p1 bra L; st.global.u32 [%rd2], %r10;
"""
HISTOGRAM = """
.shared .align 4 .b8 bins[1024]; shl.b32 %r5, %r3, 2; mov.u32 %r6, bins; add.u32 %r5, %r5, %r6; st.shared.u32 [%r5], 0;
bar.sync 0; ld.global.u32 %r7, [%rd1]; shr.u32 %r7, %r7, 24; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %r6;
atom.shared.add.u32 %r8, [%r7], 1; bar.sync 0; ld.shared.u32 %r8, [%r5]; st.global.u32 [%rd2], %r8;
"""
SHUFFLE = "ld.global.u32 %r5, [%rd1];\n" + "".join(
    f"shfl.sync.bfly.b32 %r6, %r5, {1 << at}, 31, -1; add.u32 %r5, %r5, %r6;\n" for at in range(5)
)
SHUFFLE += "st.global.u32 [%rd2], %r5;"
COLLATZ = """
and.b32 %r5, %r4, 1023; add.u32 %r5, %r5, 1; mov.u32 %r6, 0;
L: setp.eq.u32 %p1, %r5, 1; @%p1 bra END; and.b32 %r7, %r5, 1; setp.eq.u32 %p2, %r7, 0; @%p2 bra EVEN;
mad.lo.u32 %r5, %r5, 3, 1; bra JOIN; EVEN: shr.u32 %r5, %r5, 1; JOIN: add.u32 %r6, %r6, 1; bra L;
END: st.global.u32 [%rd2], %r6;
"""
KERNELS = {
    "saxpy": SAXPY,
    "straight integer": STRAIGHT,
    "straight float": FLOATS,
    "barriers: tree": TREE,
    "barriers: exchange": TRANSPOSE,
    "shared atomics": HISTOGRAM,
    "shuffles": SHUFFLE,
    "divergent loop": COLLATZ,
}


@dataclass(frozen=True)
class Measured:
    """Lane-instructions of one launch and its times in seconds, sorted."""

    executed: int
    times: tuple[float, ...]

    def rate(self, seconds: float) -> float:
        """Millions a second."""
        return self.executed / seconds / 1e6


def measure(launch: Callable[[], int], times: int) -> Measured:
    """Run once for warmth, then `times` times."""
    executed = launch()
    found = []
    for _ in range(times):
        start = time.perf_counter()
        launch()
        found.append(time.perf_counter() - start)
    return Measured(executed, tuple(sorted(found)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--profile", metavar="NAME", help="show where the time of one kernel goes")
    parser.add_argument("--threads", type=int, default=1 << 20)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    source = np.random.default_rng(1)
    x = source.integers(0, 2**30, options.threads, np.uint32)
    y = np.zeros(options.threads, np.uint32)
    print(f"{'kernel':20} {'lane-instructions':>18} {'median':>10} {'worst':>8} {'best':>8}  (million/s) {'checks':>7}")
    for name, body in KERNELS.items():
        if options.profile not in (None, name):
            continue
        head = f"{HEAD}.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)\n{{{REGISTERS}{PLACE}"
        program = load(f"{head}{body}\nret; }}".encode(), checks=None)

        def launch(kernel: Kernel = program["k"]) -> int:
            return kernel[options.threads // 256, 256](x, y, options.threads).executed

        if options.profile:
            profile = cProfile.Profile()
            profile.runcall(launch)
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)
        found = measure(launch, options.times)

        def checked(kernel: Kernel = program["k"]) -> int:
            done = launch_checked(kernel, options.threads // 256, 256, (x, y, options.threads))
            return done.launched.executed

        ratio = statistics.median(measure(checked, options.times).times) / statistics.median(found.times)
        rates = [found.rate(t) for t in (statistics.median(found.times), found.times[-1], found.times[0])]
        print(f"{name:20} {found.executed:18,} {rates[0]:10.0f} {rates[1]:8.0f} {rates[2]:8.0f} {ratio:19.2f}")


if __name__ == "__main__":
    main()
