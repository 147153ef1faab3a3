//! The device program of a sensor array: its own kernels and those of its libraries.

#![no_std]
#![feature(abi_ptx)]
#![cfg_attr(feature = "runtime", feature(stdarch_nvptx))]

#[cfg(feature = "runtime")]
mod runtime;

use core::slice;
use core::sync::atomic::{AtomicU32, Ordering, fence};

pub use blocks::{block_sum, calibrate, smooth};
pub use windows::moving_median;

use blocks::{ScaleKernel, scale, thread};
use vecmath::{Strided, mix, wrap_angle};

/// The kernels of other crates that this one instantiates.
#[used]
#[unsafe(link_section = ".rglink.kernels")]
static SINGLE: [ScaleKernel<f32>; 1] = [scale::<f32>];
#[used]
#[unsafe(link_section = ".rglink.kernels")]
static DOUBLE: [ScaleKernel<f64>; 1] = [scale::<f64>];

/// Samples that [`histogram`] has counted since the image was loaded; the host reads it by name.
#[unsafe(no_mangle)]
pub static SAMPLES_SEEN: AtomicU32 = AtomicU32::new(0);

/// Threads that have finished [`histogram`] in this launch.
static THREADS_DONE: AtomicU32 = AtomicU32::new(0);

/// Picks `out[i] = source[index[i]]`; an index outside of `source` ends the kernel.
///
/// # Safety
/// `source` is valid for `len` values; `index` and `out` for one of each thread of the grid.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn gather(
    source: *const f32,
    len: usize,
    index: *const u32,
    out: *mut f32,
) {
    let at = thread::in_grid();
    // SAFETY: the caller's promise.
    unsafe {
        let source = slice::from_raw_parts(source, len);
        *out.add(at) = source[*index.add(at) as usize];
    }
}

/// Counts angles by sector; the last thread to end says so through `ready`.
///
/// # Safety
/// `angles` is valid for `len` values, `bins` for `sectors` counters that start at 0, `ready` for one.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn histogram(
    angles: *const f32,
    len: usize,
    bins: *const AtomicU32,
    sectors: u32,
    ready: *const AtomicU32,
) {
    let at = thread::in_grid();
    // SAFETY: the caller's promise.
    let (angles, bins, ready) = unsafe {
        (
            slice::from_raw_parts(angles, len),
            slice::from_raw_parts(bins, sectors as usize),
            &*ready,
        )
    };
    let seen = angles.strided_fold(at, thread::grid_size(), 0, |seen, &angle| {
        let turn = wrap_angle(angle) / core::f32::consts::TAU;
        let turn = if turn < 0.0 { turn + 1.0 } else { turn };
        let sector = (turn * sectors as f32) as usize;
        bins[sector.min(bins.len() - 1)].fetch_add(1, Ordering::Relaxed);
        seen + 1
    });
    SAMPLES_SEEN.fetch_add(seen, Ordering::Relaxed);
    let threads = thread::grid_size() as u32;
    if THREADS_DONE.fetch_add(1, Ordering::AcqRel) + 1 == threads {
        THREADS_DONE.store(0, Ordering::Relaxed);
        ready.store(1, Ordering::Release);
    }
}

/// Waits for [`histogram`] and raises `alarm` once when a sector holds more than `limit`.
///
/// # Safety
/// `bins` is valid for `sectors` counters, `ready` and `alarm` for one.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn watch(
    bins: *const AtomicU32,
    sectors: usize,
    ready: *const AtomicU32,
    limit: u32,
    alarm: *const AtomicU32,
) {
    // SAFETY: the caller's promise.
    let (bins, ready, alarm) = unsafe { (slice::from_raw_parts(bins, sectors), &*ready, &*alarm) };
    if ready.load(Ordering::Acquire) == 0 {
        return;
    }
    let at = thread::in_grid();
    let crowded = bins.strided_count(at, thread::grid_size(), |bin| {
        bin.load(Ordering::Relaxed) > limit
    });
    if crowded > 0 {
        fence(Ordering::SeqCst);
        // Only the first thread to come changes 0 to its own number.
        let _ = alarm.compare_exchange(0, at as u32 + 1, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Gives each sample a reproducible random word.
///
/// # Safety
/// `words` is valid for `len` values.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn seed_noise(seed: u64, words: *mut u64, len: usize) {
    let at = thread::in_grid();
    if at < len {
        // SAFETY: the caller's promise.
        unsafe { *words.add(at) = mix(seed, at as u64) };
    }
}

/// Copies the counters out one by one; only of use while debugging, dropped from what is shipped.
///
/// # Safety
/// `bins` and `copy` are valid for `sectors` values.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn dump_histogram(
    bins: *const AtomicU32,
    sectors: usize,
    copy: *mut u32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (at, bin) in slice::from_raw_parts(bins, sectors).iter().enumerate() {
            copy.add(at).write_volatile(bin.load(Ordering::SeqCst));
        }
    }
}
