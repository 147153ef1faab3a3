//! Where the calling thread stands in its block and grid.

use core::arch::nvptx::{_block_dim_x, _block_idx_x, _grid_dim_x, _thread_idx_x};

/// The thread's number within its block.
#[inline(always)]
pub fn in_block() -> usize {
    // SAFETY: reads a special register.
    unsafe { _thread_idx_x() as usize }
}

/// Threads in a block.
#[inline(always)]
pub fn block_size() -> usize {
    // SAFETY: reads a special register.
    unsafe { _block_dim_x() as usize }
}

/// The block's number within the grid.
#[inline(always)]
pub fn block() -> usize {
    // SAFETY: reads a special register.
    unsafe { _block_idx_x() as usize }
}

/// The thread's number within the grid.
#[inline(always)]
pub fn in_grid() -> usize {
    block() * block_size() + in_block()
}

/// Threads in the grid.
#[inline(always)]
pub fn grid_size() -> usize {
    // SAFETY: reads a special register.
    unsafe { _grid_dim_x() as usize * block_size() }
}
