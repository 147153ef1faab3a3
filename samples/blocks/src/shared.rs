//! Statics that every block has a copy of.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use crate::thread;

/// Shared memory: a static of this type in section `.rglink.shared` exists once for each block, without a
/// value at the start.
///
/// All access is by raw pointer: a reference that lives across a barrier would promise that no other thread
/// writes.
#[repr(transparent)]
pub struct Shared<T>(UnsafeCell<MaybeUninit<T>>);

// SAFETY: the type hands out a raw pointer only; who follows it answers for the barriers.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Memory for a `T`, uninitialised.
    #[must_use]
    pub const fn uninit() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }

    /// Where the block's copy is.
    pub const fn get(&self) -> *mut T {
        self.0.get().cast()
    }
}

/// Copies the calling thread's value of `samples` to its place in the block's `tile`. A barrier must stand
/// between this and reads of what other threads have copied.
///
/// # Safety
/// `samples` is valid for a value of each thread of the grid, `tile` for one of each thread of a block.
#[inline]
pub unsafe fn stage<T: Copy>(samples: *const T, tile: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { *tile.add(thread::in_block()) = *samples.add(thread::in_grid()) }
}
