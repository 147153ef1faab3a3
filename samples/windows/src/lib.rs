//! Filters over windows of samples, on the device's heap.

#![no_std]
#![feature(abi_ptx)]

extern crate alloc;

use alloc::vec::Vec;
use core::slice;

use blocks::{ScaleKernel, scale, thread};
use vecmath::lerp;

/// The kernels of other crates that this one instantiates.
#[used]
#[unsafe(link_section = ".rglink.kernels")]
static KERNELS: [ScaleKernel<f32>; 1] = [scale::<f32>];

/// The last samples, in ascending order.
struct Window {
    sorted: Vec<f32>,
}

impl Window {
    fn of(samples: &[f32]) -> Self {
        let mut sorted = Vec::with_capacity(samples.len());
        for &sample in samples {
            let at = sorted.partition_point(|&x| x < sample);
            sorted.insert(at, sample);
        }
        Self { sorted }
    }

    fn median(&self) -> Option<f32> {
        let middle = self.sorted.len() / 2;
        let &upper = self.sorted.get(middle)?;
        if self.sorted.len() % 2 == 1 {
            return Some(upper);
        }
        Some(lerp(self.sorted[middle - 1], upper, 0.5))
    }
}

/// Writes, for each sample, the median of the `width` samples that end with it (fewer at the start).
///
/// # Safety
/// `samples` and `medians` are valid for `len` values and do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn moving_median(
    samples: *const f32,
    len: usize,
    width: usize,
    medians: *mut f32,
) {
    let at = thread::in_grid();
    if at >= len {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let samples = slice::from_raw_parts(samples, len);
        let window = Window::of(&samples[(at + 1).saturating_sub(width)..=at]);
        *medians.add(at) = window.median().unwrap_or(0.0);
    }
}
