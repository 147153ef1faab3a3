"""Kernels for the checks: each with what makes it right, and what is left when that is taken away."""

from __future__ import annotations

from tests.emulate.support import kernel

FILES = '.file 1 "src/lib.rs"\n.file 2 "dep/src/lib.rs"\n'
TWO = ".param .u64 a, .param .u64 b"
# %r0 thread in the grid, %r1 in the block, %r2 the block, %r3 threads of a block; %rd0 and %rd1 the two arrays,
# %rd2 = &a[%r0], %rd3 = &b[%r0].
BEGIN = """
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r0, %r2, %r3, %r1;
ld.param.u64 %rd0, [a]; ld.param.u64 %rd1, [b];
cvta.to.global.u64 %rd0, %rd0; cvta.to.global.u64 %rd1, %rd1;
mul.wide.u32 %rd4, %r0, 4; add.u64 %rd2, %rd0, %rd4; add.u64 %rd3, %rd1, %rd4;
mul.wide.u32 %rd5, %r1, 4; mov.u64 %rd6, buf; add.u64 %rd7, %rd6, %rd5;
"""
SHARED = ".shared .align 16 .b8 buf[1024];\n"


def text(body: str) -> str:
    """A kernel `k(a, b)` over 32-bit words."""
    return kernel(SHARED + BEGIN + body, TWO, FILES)


def reduction(barrier: str = "bar.sync 0;") -> str:
    """A tree over the block in shared memory; b[block] = the sum."""
    return text(f"""
ld.global.u32 %r4, [%rd2];
.loc 1 10 0
st.shared.u32 [%rd7], %r4;
shr.u32 %r5, %r3, 1;
L1: {barrier}
setp.ge.u32 %p1, %r1, %r5; @%p1 bra L2;
mul.wide.u32 %rd8, %r5, 4; add.u64 %rd8, %rd7, %rd8;
.loc 2 20 0
ld.shared.u32 %r6, [%rd8];
ld.shared.u32 %r7, [%rd7]; add.u32 %r7, %r7, %r6;
.loc 1 12 0
st.shared.u32 [%rd7], %r7;
L2: shr.u32 %r5, %r5, 1; setp.ne.u32 %p1, %r5, 0; @%p1 bra L1;
setp.ne.u32 %p1, %r1, 0; @%p1 bra L3;
mul.wide.u32 %rd8, %r2, 4; add.u64 %rd8, %rd1, %rd8; st.global.u32 [%rd8], %r7;
L3:""")


def last_block(release: str = "membar.gl;", acquire: str = "membar.gl;", barrier: str = "bar.sync 0;") -> str:
    """Every block writes a[block + 1], the last one to count in a[0] adds them up into b[0]."""
    return text(f"""
setp.ne.u32 %p1, %r1, 0; @%p1 bra L1;
mul.wide.u32 %rd8, %r2, 4; add.u64 %rd8, %rd0, %rd8; add.u32 %r4, %r2, 1;
.loc 1 5 0
st.global.u32 [%rd8+4], %r4;
{release}
mov.u32 %r5, %nctaid.x;
atom.global.inc.u32 %r6, [%rd0], %r5;
{acquire}
sub.u32 %r5, %r5, 1; setp.eq.u32 %p2, %r6, %r5; selp.u32 %r7, 1, 0, %p2;
.loc 1 8 0
st.shared.u32 [buf], %r7;
L1: {barrier}
.loc 1 9 0
ld.shared.u32 %r7, [buf];
setp.eq.u32 %p1, %r7, 0; @%p1 bra L4;
mov.u32 %r8, %nctaid.x; setp.ge.u32 %p1, %r1, %r8; @%p1 bra L4;
.loc 1 11 0
ld.global.u32 %r9, [%rd2+4];
L4:""").replace(
        "ld.global.u32 %r9, [%rd2+4];",
        "add.u64 %rd9, %rd0, %rd5; ld.global.u32 %r9, [%rd9+4];\nred.global.add.u32 [%rd1], %r9;",
    )


def lock(
    take: str = "atom.acquire.gpu.global.cas.b32", after: str = "", before: str = "", give: str = "st.release.gpu"
) -> str:
    """Threads add to b[0] under the lock a[0]: thread 0 of each block."""
    return text(f"""
setp.ne.u32 %p1, %r1, 0; @%p1 bra L3;
L1: {take} %r4, [%rd0], 0, 1; setp.ne.u32 %p1, %r4, 0; @%p1 bra L1;
{after}
.loc 1 7 0
ld.global.u32 %r5, [%rd1];
add.u32 %r5, %r5, 1;
.loc 1 8 0
st.global.u32 [%rd1], %r5;
{before}
{give}.global.u32 [%rd0], 0;
L3:""")


def histogram(update: str = "red.shared.add.u32 [%rd9], 1;") -> str:
    """Counts of a[i] & 15 in shared memory, then added to b."""
    return text(f"""
mov.u32 %r8, 0;
setp.ge.u32 %p1, %r1, 16; @!%p1 st.shared.u32 [%rd7], %r8;
bar.sync 0;
ld.global.u32 %r4, [%rd2]; and.b32 %r4, %r4, 15;
mul.wide.u32 %rd9, %r4, 4; add.u64 %rd9, %rd6, %rd9;
.loc 1 6 0
{update}
bar.sync 0;
@%p1 bra L3;
ld.shared.u32 %r5, [%rd7]; add.u64 %rd8, %rd1, %rd5; red.global.add.u32 [%rd8], %r5;
L3:""")


def warp_exchange(sync: str = "bar.warp.sync 0xffffffff;", partner: int = 1) -> str:
    """Lanes of a warp swap words through shared memory."""
    return text(f"""
.loc 1 3 0
st.shared.u32 [%rd7], %r1;
{sync}
xor.b32 %r4, %r1, {partner}; mul.wide.u32 %rd8, %r4, 4; add.u64 %rd8, %rd6, %rd8;
.loc 1 4 0
ld.shared.u32 %r5, [%rd8];
st.global.u32 [%rd3], %r5;""")


def publish(give: str = "st.release.gpu", take: str = "ld.acquire.gpu", before: str = "", after: str = "") -> str:
    """Block 0 writes a[1] and raises the flag a[0], block 1 waits for it and reads."""
    return text(f"""
setp.ne.u32 %p1, %r1, 0; @%p1 bra L3;
setp.ne.u32 %p1, %r2, 0; @%p1 bra L1;
.loc 1 4 0
st.global.u32 [%rd0+4], 42;
{before}
{give}.global.u32 [%rd0], 1;
bra L3;
L1: {take}.global.u32 %r4, [%rd0]; setp.eq.u32 %p1, %r4, 0; @%p1 bra L1;
{after}
.loc 1 9 0
ld.global.u32 %r5, [%rd0+4]; st.global.u32 [%rd1], %r5;
L3:""")


def named_barrier(wait: str = "bar.sync 1, 64;") -> str:
    """The first warp produces, the second waits for it."""
    return text(f"""
setp.ge.u32 %p1, %r1, 32; @%p1 bra L1;
.loc 1 3 0
st.shared.u32 [%rd7], %r1;
bar.arrive 1, 64;
bra L3;
L1: {wait}
.loc 1 6 0
ld.shared.u32 %r4, [%rd7+-128]; st.global.u32 [%rd3], %r4;
L3:""")


def flag(value: str = "1") -> str:
    """Every thread stores `value` to one word of shared memory."""
    return text(f"""
mov.u32 %r5, {value};
.loc 1 3 0
st.shared.u32 [buf], %r5;
bar.sync 0;
ld.shared.u32 %r4, [buf]; st.global.u32 [%rd3], %r4;""")


def async_copy(wait: str = "cp.async.wait_all;", barrier: str = "bar.sync 0;", first: str = "") -> str:
    """Words of a go to shared memory asynchronously, the neighbour's is read."""
    return text(f"""
.loc 1 3 0
cp.async.ca.shared.global [%rd7], [%rd2], 4;
cp.async.commit_group;
{first}
{wait}
{barrier}
xor.b32 %r4, %r1, 33; mul.wide.u32 %rd8, %r4, 4; add.u64 %rd8, %rd6, %rd8;
.loc 1 8 0
ld.shared.u32 %r5, [%rd8]; st.global.u32 [%rd3], %r5;""")


def stencil(overlap: int = 0) -> str:
    """b[i] = a[i - 1] + a[i + 1] in place or not: `overlap` 1 writes to the neighbour as well."""
    extra = ".loc 1 6 0\nst.global.u32 [%rd3+4], %r6;" if overlap else ""
    return text(f"""
ld.global.u32 %r4, [%rd2]; ld.global.u32 %r5, [%rd2+8]; add.u32 %r6, %r4, %r5;
.loc 1 5 0
st.global.u32 [%rd3], %r6;
{extra}""")


def transpose(barrier: str = "bar.sync 0;", pitch: int = 17) -> str:
    """A tile of 16 by 16 words, one block of 256 threads."""
    return kernel(
        ".shared .align 4 .b8 buf[1152];"
        + BEGIN
        + f"""
and.b32 %r4, %r1, 15; shr.u32 %r5, %r1, 4;
mad.lo.u32 %r6, %r5, {pitch}, %r4; mul.wide.u32 %rd8, %r6, 4; add.u64 %rd8, %rd6, %rd8;
ld.global.u32 %r7, [%rd2];
.loc 1 4 0
st.shared.u32 [%rd8], %r7;
{barrier}
mad.lo.u32 %r6, %r4, {pitch}, %r5; mul.wide.u32 %rd8, %r6, 4; add.u64 %rd8, %rd6, %rd8;
.loc 1 6 0
ld.shared.u32 %r7, [%rd8]; st.global.u32 [%rd3], %r7;""",
        TWO,
        FILES,
    )


def grid_stride(step: str = "mul.lo.u32 %r6, %r3, %r5;") -> str:
    """b[i] = a[i] for i < 1000 with all threads of the grid as the step."""
    return text(f"""
mov.u32 %r5, %nctaid.x; {step}
mov.u32 %r7, %r0;
L1: setp.ge.u32 %p1, %r7, 1000; @%p1 bra L2;
mul.wide.u32 %rd8, %r7, 4; add.u64 %rd9, %rd0, %rd8; add.u64 %rd10, %rd1, %rd8;
ld.global.u32 %r8, [%rd9]; add.u32 %r8, %r8, %r0;
.loc 1 5 0
st.global.u32 [%rd10], %r8;
add.u32 %r7, %r7, %r6; bra L1;
L2:""")


def shuffles() -> str:
    """A warp reduction by shuffles, lane 0 adds to b[0]."""
    steps = "\n".join(
        f"shfl.sync.down.b32 %r5, %r4, {n}, 31, 0xffffffff; add.u32 %r4, %r4, %r5;" for n in (16, 8, 4, 2, 1)
    )
    return text(f"""
ld.global.u32 %r4, [%rd2];
{steps}
and.b32 %r6, %r1, 31; setp.ne.u32 %p1, %r6, 0; @%p1 bra L1;
red.global.add.u32 [%rd1], %r4;
L1:""")


def bytes_apart(loads: str = "ld.global.u8 %r5, [%rd8];") -> str:
    """Each thread writes its own byte of b and reads it back, or more than that."""
    return text(f"""
cvt.u64.u32 %rd8, %r0; add.u64 %rd8, %rd1, %rd8; cvt.u16.u32 %h1, %r0;
.loc 1 3 0
st.global.u8 [%rd8], %h1;
{loads}""")


def counter(update: str = "atom.global.add.u32 %r4, [%rd0], 1;", read: str = "") -> str:
    """Threads of all blocks count in a[0]."""
    return text(f"""
.loc 1 3 0
{update}
.loc 1 4 0
{read}""")


def double_buffer(second: str = "bar.sync 0;") -> str:
    """Two rounds over one buffer, with a barrier before it is written again."""
    return text(f"""
mov.u32 %r8, 0;
L1: st.shared.u32 [%rd7], %r8;
bar.sync 0;
xor.b32 %r4, %r1, 63; mul.wide.u32 %rd8, %r4, 4; add.u64 %rd8, %rd6, %rd8;
.loc 1 6 0
ld.shared.u32 %r5, [%rd8];
{second}
.loc 1 8 0
st.shared.u32 [%rd7], %r1;
bar.sync 0;
add.u32 %r8, %r8, 1; setp.lt.u32 %p1, %r8, 3; @%p1 bra L1;""")


def block_flag(scope: str = "cta") -> str:
    """Thread 0 publishes to thread 40 of its block, through global memory, with release and acquire."""
    return text(f"""
mul.wide.u32 %rd8, %r2, 8; add.u64 %rd8, %rd0, %rd8;
setp.eq.u32 %p1, %r1, 0; @!%p1 bra L1;
st.global.u32 [%rd8+4], 7; st.release.{scope}.global.u32 [%rd8], 1; bra L3;
L1: setp.ne.u32 %p1, %r1, 40; @%p1 bra L3;
L2: ld.acquire.{scope}.global.u32 %r4, [%rd8]; setp.eq.u32 %p1, %r4, 0; @%p1 bra L2;
ld.global.u32 %r5, [%rd8+4];
L3:""")


def mbarrier(wait: str = "mbarrier.test_wait.shared.b64 %p2, [buf+1016], %rd8; @!%p2 bra L1;") -> str:
    """Threads of a block meet at an mbarrier between a write and the neighbour's read."""
    return text(f"""
setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [buf+1016], 64;
bar.sync 0;
.loc 1 5 0
st.shared.u32 [%rd7], %r1;
mbarrier.arrive.shared.b64 %rd8, [buf+1016];
L1: {wait}
xor.b32 %r4, %r1, 33; mul.wide.u32 %rd9, %r4, 4; add.u64 %rd9, %rd6, %rd9;
.loc 1 9 0
ld.shared.u32 %r5, [%rd9]; st.global.u32 [%rd3], %r5;""")


def copy_to_mbarrier(wait: str = "mbarrier.test_wait.shared.b64 %p2, [buf+1016], %rd8; @!%p2 bra L1;") -> str:
    """A bulk copy of 256 bytes by thread 0, which an mbarrier signals to all."""
    return text(f"""
setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [buf+1016], 64;
bar.sync 0;
@!%p1 bra L2;
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [buf+1016], 256;
.loc 1 5 0
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buf], [%rd0], 256, [buf+1016];
L2: mbarrier.arrive.shared.b64 %rd8, [buf+1016];
L1: {wait}
.loc 1 9 0
ld.shared.u32 %r5, [%rd7]; st.global.u32 [%rd3], %r5;""")


def copy_handed_over(signal: str = "cp.async.mbarrier.arrive.noinc.shared.b64 [buf+1016];") -> str:
    """cp.async whose end an mbarrier signals; each thread reads what its neighbour copied."""
    return text(f"""
setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [buf+1016], 128;
bar.sync 0;
.loc 1 5 0
cp.async.ca.shared.global [%rd7], [%rd2], 4;
{signal}
mbarrier.arrive.shared.b64 %rd8, [buf+1016];
L1: mbarrier.test_wait.shared.b64 %p2, [buf+1016], %rd8; @!%p2 bra L1;
xor.b32 %r4, %r1, 33; mul.wide.u32 %rd9, %r4, 4; add.u64 %rd9, %rd6, %rd9;
.loc 1 9 0
ld.shared.u32 %r5, [%rd9]; st.global.u32 [%rd3], %r5;""")
