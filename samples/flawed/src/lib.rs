//! A kernel with a mistake in it, for `rgrun` to find. It is part of no program.

#![no_std]
#![feature(abi_ptx)]

use blocks::shared::{Shared, stage};
use blocks::{MAX_BLOCK, thread};

/// The block's samples.
#[unsafe(link_section = ".rglink.shared")]
static TILE: Shared<[f32; MAX_BLOCK]> = Shared::uninit();

/// Writes what each sample lacks to the next one of its block; the last one's next is the first.
///
/// The mistake: no barrier stands between the threads' stores to `TILE`, which `blocks` makes, and the loads of
/// their neighbours. On a GPU that shows now and then, where the two are in different warps.
///
/// # Safety
/// `samples` and `slopes` are valid for a value of each thread of the grid and do not overlap; blocks have at
/// most [`MAX_BLOCK`] threads.
#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn slopes(samples: *const f32, slopes: *mut f32) {
    let me = thread::in_block();
    let next = (me + 1) % thread::block_size();
    let tile: *mut f32 = TILE.get().cast();
    // SAFETY: the caller's promise, and one that this function does not keep.
    unsafe {
        stage(samples, tile);
        *slopes.add(thread::in_grid()) = *tile.add(next) - *tile.add(me);
    }
}
