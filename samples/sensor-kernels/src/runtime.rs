//! What rustc wants of a final crate: a heap and a way to die.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut u8;
    fn free(block: *mut u8);
}

/// CUDA's device heap, whose blocks are aligned to 16 bytes.
struct DeviceHeap;

// SAFETY: `malloc` returns memory of that size or null; a larger alignment is refused by null.
unsafe impl GlobalAlloc for DeviceHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() > 16 {
            return core::ptr::null_mut();
        }
        // SAFETY: any size will do.
        unsafe { malloc(layout.size()) }
    }

    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the block came from `malloc`.
        unsafe { free(block) }
    }
}

#[global_allocator]
static HEAP: DeviceHeap = DeviceHeap;

#[panic_handler]
fn panic(_info: &PanicInfo) -> ! {
    // SAFETY: ends the kernel.
    unsafe { core::arch::nvptx::trap() }
}
