//! Kernels whose threads work together: shared memory, barriers, reductions.

#![no_std]
#![feature(abi_ptx, stdarch_nvptx)]

pub mod shared;
pub mod thread;

use core::arch::nvptx::_syncthreads;
use core::slice;

use shared::Shared;
use vecmath::{Real, Strided, horner, lerp, soft_step};

/// Most threads in a block that [`block_sum`] takes.
pub const MAX_BLOCK: usize = 256;

/// Set by any thread of the block that meets a sample it cannot use.
#[unsafe(link_section = ".rglink.shared")]
static REJECTED: Shared<u32> = Shared::uninit();

/// One partial sum for each thread of the block.
#[unsafe(link_section = ".rglink.shared")]
static PARTIAL: Shared<[f32; MAX_BLOCK]> = Shared::uninit();

/// Corrects raw readings by a polynomial, a block at a time: a block that holds a NaN writes nothing but a 1
/// in `rejected[block]`.
///
/// # Safety
/// `raw` and `corrected` are valid for a value of each thread of the grid, `rejected` for one of each block,
/// `coefficients` for `degree + 1` values; none of them overlap.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn calibrate(
    raw: *const f32,
    coefficients: *const f32,
    degree: usize,
    corrected: *mut f32,
    rejected: *mut u32,
) {
    let flag = REJECTED.get();
    // SAFETY: the caller's promise; the flag is written by equal values between two barriers.
    unsafe {
        let reading = *raw.add(thread::in_grid());
        *flag = 0;
        _syncthreads();
        if reading.is_nan() {
            *flag = 1;
        }
        _syncthreads();
        let stop = *flag != 0;
        if thread::in_block() == 0 {
            *rejected.add(thread::block()) = u32::from(stop);
        }
        if stop {
            return;
        }
        let coefficients = slice::from_raw_parts(coefficients, degree + 1);
        *corrected.add(thread::in_grid()) = horner(coefficients, reading);
    }
}

/// Sums `samples` into one value for each block: a walk over the grid, then a tree in shared memory.
///
/// # Safety
/// `samples` is valid for `len` values and `sums` for one of each block; the block's size is a power of two,
/// at most [`MAX_BLOCK`].
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn block_sum(samples: *const f32, len: usize, sums: *mut f32) {
    let me = thread::in_block();
    let partial: *mut f32 = PARTIAL.get().cast();
    // SAFETY: the caller's promise; each round reads what the barrier before it has published.
    unsafe {
        let samples = slice::from_raw_parts(samples, len);
        *partial.add(me) =
            samples.strided_fold(thread::in_grid(), thread::grid_size(), 0.0, |sum, &x| {
                sum + x
            });
        _syncthreads();
        let mut width = thread::block_size() / 2;
        while width > 0 {
            if me < width {
                *partial.add(me) += *partial.add(me + width);
            }
            _syncthreads();
            width /= 2;
        }
        if me == 0 {
            *sums.add(thread::block()) = *partial;
        }
    }
}

/// Multiplies `data` by `factor` in place.
///
/// A generic kernel exists for the types that somebody names: put `scale::<T>` into a `#[used]` array in
/// section `.rglink.kernels`.
///
/// # Safety
/// `data` is valid for `len` values.
pub unsafe extern "ptx-kernel" fn scale<T: Real>(data: *mut T, len: usize, factor: T) {
    let at = thread::in_grid();
    if at < len {
        // SAFETY: the caller's promise; every thread has an element of its own.
        unsafe { *data.add(at) = *data.add(at) * factor };
    }
}

/// The address of a `scale`.
pub type ScaleKernel<T> = unsafe extern "ptx-kernel" fn(*mut T, usize, T);

/// Blends each sample with its neighbours; the ends stay as they are. The symbol is mangled: a host finds it
/// by its Rust path.
///
/// # Safety
/// `samples` and `smoothed` are valid for `len` values and do not overlap.
pub unsafe extern "ptx-kernel" fn smooth(samples: *const f32, len: usize, smoothed: *mut f32) {
    let at = thread::in_grid();
    if at >= len {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let samples = slice::from_raw_parts(samples, len);
        let blended = match samples.get(at.wrapping_sub(1)).zip(samples.get(at + 1)) {
            Some((&before, &after)) => {
                let weight = soft_step(before - after);
                lerp(samples[at], lerp(before, after, weight), 0.5)
            }
            None => samples[at],
        };
        *smoothed.add(at) = blended;
    }
}

/// Checks shared memory and the barrier against each other; for the bring-up of a board, dropped from what
/// is shipped.
///
/// # Safety
/// `failures` is valid for one value of each block, which holds at most [`MAX_BLOCK`] threads.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn blocks_selftest(failures: *mut u32) {
    let me = thread::in_block();
    let partial: *mut f32 = PARTIAL.get().cast();
    // SAFETY: the caller's promise.
    unsafe {
        *partial.add(me) = me as f32;
        _syncthreads();
        let other = thread::block_size() - 1 - me;
        if *partial.add(other) != other as f32 {
            *failures.add(thread::block()) = 1;
        }
    }
}
