//! Kernels that use what a program uses: shared memory and barriers, atomics, warp collectives, recursion, calls by
//! pointer, the heap, and values that own others. What one thread does by itself, the host does by the same code.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx, stdarch_nvptx, asm_experimental_arch))]
#![allow(clippy::missing_safety_doc)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt::Write;

/// `per_thread!(name, |at, words| value)`: `out[at] = value` for every thread, or for every `at` on the host.
macro_rules! per_thread {
    ($name:ident, |$at:ident, $words:ident| $value:expr) => {
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $name(words: *const u32, out: *mut u64, len: usize) {
            let $at = together::in_grid();
            if $at < len {
                let $words = unsafe { core::slice::from_raw_parts(words, len) };
                unsafe { *out.add($at) = $value };
            }
        }

        #[cfg(not(target_arch = "nvptx64"))]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(words: *const u32, out: *mut u64, len: usize) {
            let $words = unsafe { core::slice::from_raw_parts(words, len) };
            for $at in 0..len {
                unsafe { *out.add($at) = $value };
            }
        }
    };
}

fn fibonacci(n: u32) -> u64 {
    if n < 2 { n.into() } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn is_even(n: u32) -> bool {
    n == 0 || is_odd(n - 1)
}

fn is_odd(n: u32) -> bool {
    n != 0 && is_even(n - 1)
}

fn quicksort(items: &mut [u32]) {
    if items.len() < 2 {
        return;
    }
    let (pivot, mut less) = (items[items.len() - 1], 0);
    for at in 0..items.len() {
        if items[at] < pivot {
            items.swap(at, less);
            less += 1;
        }
    }
    items.swap(less, items.len() - 1);
    let (left, right) = items.split_at_mut(less);
    quicksort(left);
    quicksort(&mut right[1..]);
}

fn checksum<'a>(items: impl IntoIterator<Item = &'a u32>) -> u64 {
    items.into_iter().fold(7, |sum, &item| sum.wrapping_mul(31).wrapping_add(item.into()))
}

per_thread!(recursion, |at, words| fibonacci(words[at] % 12) + u64::from(is_even(words[at] % 40)));

per_thread!(sorted_by_recursion, |at, words| {
    let mut items = [0; 12];
    for (number, item) in items.iter_mut().enumerate() {
        *item = words[(at + 5 * number) % words.len()] % 1000;
    }
    quicksort(&mut items);
    checksum(&items)
});

type Binary = fn(u32, u32) -> u32;
#[inline(never)]
fn added(a: u32, b: u32) -> u32 {
    a.wrapping_add(b)
}
#[inline(never)]
fn multiplied(a: u32, b: u32) -> u32 {
    a.wrapping_mul(b | 1)
}
#[inline(never)]
fn turned(a: u32, b: u32) -> u32 {
    a.rotate_left(b & 31)
}
static OPERATIONS: [Binary; 4] = [added, multiplied, turned, u32::abs_diff];

per_thread!(function_pointers, |at, words| {
    let mut value = words[at];
    for round in 0..6 {
        let operation = OPERATIONS[(value >> round) as usize % OPERATIONS.len()];
        value = operation(value, words[(at + round) % words.len()]);
    }
    value.into()
});

trait Shape {
    fn area(&self) -> u64;
    fn doubled(&self) -> u64 {
        2 * self.area()
    }
}
struct Square(u32);
struct Oblong(u32, u32);
struct Pile(Vec<Box<dyn Shape>>);

impl Shape for Square {
    fn area(&self) -> u64 {
        u64::from(self.0) * u64::from(self.0)
    }
}
impl Shape for Oblong {
    fn area(&self) -> u64 {
        u64::from(self.0) * u64::from(self.1)
    }
    fn doubled(&self) -> u64 {
        2 * self.area() + 1
    }
}
impl Shape for Pile {
    fn area(&self) -> u64 {
        self.0.iter().map(|shape| shape.area()).sum()
    }
}

fn shape(word: u32, depth: u32) -> Box<dyn Shape> {
    match word % 3 {
        0 => Box::new(Square(word % 100)),
        1 => Box::new(Oblong(word % 50, word % 70)),
        _ if depth == 0 => Box::new(Square(1)),
        _ => Box::new(Pile(Vec::from([shape(word / 3, depth - 1), shape(word / 5, depth - 1)]))),
    }
}

per_thread!(dynamic_calls, |at, words| {
    let shape = shape(words[at], 3);
    shape.area() + shape.doubled()
});

per_thread!(vectors, |at, words| {
    let mut items: Vec<u32> = words.iter().skip(at).take(9).map(|word| word % 77).collect();
    items.sort_unstable();
    items.dedup();
    items.retain(|item| item % 5 != 0);
    items.insert(0, 3);
    items.extend_from_slice(&[1, 2]);
    checksum(&items)
});

struct Node {
    word: u32,
    next: Option<Box<Node>>,
}

per_thread!(linked_list, |at, words| {
    let mut head: Option<Box<Node>> = None;
    for &word in words.iter().skip(at).take(6) {
        head = Some(Box::new(Node { word, next: head.take() }));
    }
    let (mut sum, mut place) = (0u64, head.as_deref());
    while let Some(node) = place {
        sum = sum.wrapping_mul(13).wrapping_add(node.word.into());
        place = node.next.as_deref();
    }
    sum
});

per_thread!(strings, |at, words| {
    let mut text = String::new();
    let word = words[at] % 100_000;
    let _ = write!(text, "{word:>7}|{:x}|{:?}", word, Some(-3i8));
    text.push_str(&text.clone().to_uppercase());
    text.bytes().fold(5, |sum: u64, byte| sum.wrapping_mul(33).wrapping_add(byte.into()))
        + text.replace('7', "seven").len() as u64
});

per_thread!(formatted_floats, |at, words| {
    let mut text = String::new();
    let value = f64::from(words[at] % 4096) / 64.0;
    let _ = write!(text, "{value} {value:e} {value:8.3}");
    text.bytes().fold(5, |sum: u64, byte| sum.wrapping_mul(33).wrapping_add(byte.into()))
});

per_thread!(parsed_floats, |at, words| {
    let mut text = String::new();
    let _ = write!(text, "{}.{:03}e{}", words[at] % 90, words[at] % 1000, words[at] % 60);
    text.parse::<f64>().map_or(1, f64::to_bits)
});

per_thread!(ordered_map, |at, words| {
    let mut map = BTreeMap::new();
    for (number, &word) in words.iter().skip(at).take(20).enumerate() {
        *map.entry(word % 16).or_insert(0u64) += number as u64;
    }
    map.remove(&3);
    map.iter().fold(1, |sum, (key, value)| sum * 7 + u64::from(*key) * 3 + value)
});

/// Counts what is dropped, in the order of the drops.
struct Counted<'a>(&'a Cell<u64>, u32);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get().wrapping_mul(3).wrapping_add(self.1.into()));
    }
}

enum Message<'a> {
    Empty,
    One(Counted<'a>),
    Text(String, Counted<'a>),
    Nested(Box<Message<'a>>, Rc<Counted<'a>>),
}

fn message<'a>(word: u32, depth: u32, count: &'a Cell<u64>, shared: &Rc<Counted<'a>>) -> Message<'a> {
    match word % 4 {
        0 => Message::Empty,
        1 => Message::One(Counted(count, word % 19)),
        2 => Message::Text(String::from("text"), Counted(count, word % 23)),
        _ if depth == 0 => Message::Empty,
        _ => Message::Nested(Box::new(message(word / 4, depth - 1, count, shared)), Rc::clone(shared)),
    }
}

fn weight(message: &Message) -> u64 {
    match message {
        Message::Empty => 0,
        Message::One(one) => one.1.into(),
        Message::Text(text, counted) => text.len() as u64 + u64::from(counted.1),
        Message::Nested(inner, shared) => 1 + weight(inner) + u64::from(shared.1),
    }
}

per_thread!(drop_glue, |at, words| {
    let count = Cell::new(0);
    let sum = {
        let shared = Rc::new(Counted(&count, 29));
        let mut messages: Vec<_> = (0..4).map(|shift| message(words[at] >> (4 * shift), 3, &count, &shared)).collect();
        let taken = messages.swap_remove(1);
        let sum: u64 = messages.iter().map(weight).sum();
        drop(taken);
        sum + Rc::strong_count(&shared) as u64
    };
    sum * 1_000_003 + count.get()
});

per_thread!(closures, |at, words| {
    let scale = words[at] % 7 + 1;
    let chosen: Box<dyn Fn(u32) -> u32> =
        if scale % 2 == 0 { Box::new(move |x| x * scale) } else { Box::new(|x| x + 1) };
    words.iter().skip(at).take(5).map(|&word| u64::from(chosen(word % 1000))).sum()
});

per_thread!(wide_numbers, |at, words| {
    let mut value = u128::from(words[at]) << 64 | u128::from(words[(at + 1) % words.len()]);
    let mut sum = 0u64;
    while value > 9 {
        sum = sum * 5 + (value % 10) as u64;
        value /= 1000;
    }
    sum
});

#[cfg(target_arch = "nvptx64")]
mod together {
    //! Kernels whose threads work together.

    use core::arch::asm;
    use core::arch::nvptx::*;
    use core::cell::UnsafeCell;
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicU32, Ordering};

    #[repr(transparent)]
    struct Shared<T>(UnsafeCell<MaybeUninit<T>>);
    unsafe impl<T> Sync for Shared<T> {}

    impl<T> Shared<T> {
        const fn uninit() -> Self {
            Self(UnsafeCell::new(MaybeUninit::uninit()))
        }
        const fn get(&self) -> *mut T {
            self.0.get().cast()
        }
    }

    #[inline(always)]
    fn in_block() -> usize {
        unsafe { _thread_idx_x() as usize }
    }
    #[inline(always)]
    fn block_size() -> usize {
        unsafe { _block_dim_x() as usize }
    }
    #[inline(always)]
    fn block() -> usize {
        unsafe { _block_idx_x() as usize }
    }
    #[inline(always)]
    pub fn in_grid() -> usize {
        block() * block_size() + in_block()
    }

    #[unsafe(link_section = ".rglink.shared")]
    static WORDS: Shared<[u32; 256]> = Shared::uninit();
    #[unsafe(link_section = ".rglink.shared")]
    static MORE: Shared<[u32; 256]> = Shared::uninit();
    #[unsafe(link_section = ".rglink.shared")]
    static TILE: Shared<[[f32; 17]; 16]> = Shared::uninit();

    /// `sums[block]` of the block's words, as a tree.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn tree_reduction(words: *const u32, sums: *mut u32) {
        let (me, shared) = (in_block(), WORDS.get().cast::<u32>());
        unsafe {
            *shared.add(me) = *words.add(in_grid());
            _syncthreads();
            let mut width = block_size() / 2;
            while width > 0 {
                if me < width {
                    *shared.add(me) = (*shared.add(me)).wrapping_add(*shared.add(me + width));
                }
                _syncthreads();
                width /= 2;
            }
            if me == 0 {
                *sums.add(block()) = *shared;
            }
        }
    }

    /// Sorts each block's words by a bitonic network; the block's size is a power of two.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn bitonic_sort(words: *mut u32) {
        let (me, shared) = (in_block(), MORE.get().cast::<u32>());
        unsafe {
            *shared.add(me) = *words.add(in_grid());
            let mut run = 2;
            while run <= block_size() {
                let mut distance = run / 2;
                while distance > 0 {
                    _syncthreads();
                    let other = me ^ distance;
                    if other > me {
                        let (low, high) = (*shared.add(me), *shared.add(other));
                        if (low > high) == (me & run == 0) {
                            *shared.add(me) = high;
                            *shared.add(other) = low;
                        }
                    }
                    distance /= 2;
                }
                run *= 2;
            }
            _syncthreads();
            *words.add(in_grid()) = *shared.add(me);
        }
    }

    /// Transposes a square matrix of `size` rows by tiles of 16 x 16, one a block.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn transpose(input: *const f32, output: *mut f32, size: usize) {
        unsafe {
            let (x, y) = (_thread_idx_x() as usize, _thread_idx_y() as usize);
            let (left, top) = (16 * _block_idx_x() as usize, 16 * _block_idx_y() as usize);
            let tile = TILE.get().cast::<[f32; 17]>();
            if left + x < size && top + y < size {
                (*tile.add(y))[x] = *input.add((top + y) * size + left + x);
            }
            _syncthreads();
            if top + x < size && left + y < size {
                *output.add((left + y) * size + top + x) = (*tile.add(x))[y];
            }
        }
    }

    /// Inclusive prefix sums within each block, by doubling between two buffers.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn scan(words: *const u32, sums: *mut u32) {
        let me = in_block();
        let (mut from, mut to) = (WORDS.get().cast::<u32>(), MORE.get().cast::<u32>());
        unsafe {
            *from.add(me) = *words.add(in_grid());
            _syncthreads();
            let mut distance = 1;
            while distance < block_size() {
                let before = if me >= distance { *from.add(me - distance) } else { 0 };
                *to.add(me) = (*from.add(me)).wrapping_add(before);
                _syncthreads();
                (from, to) = (to, from);
                distance *= 2;
            }
            *sums.add(in_grid()) = *from.add(me);
        }
    }

    /// Sums of five neighbours, from a tile with a halo of two; beyond the ends are zeros.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn stencil(words: *const u32, sums: *mut u32, len: usize) {
        let (me, at, shared) = (in_block(), in_grid(), MORE.get().cast::<u32>());
        unsafe {
            let word = |at: usize| if at < len { *words.add(at) } else { 0 };
            *shared.add(me + 2) = word(at);
            if me < 2 {
                *shared.add(me) = word(at.wrapping_sub(2));
                *shared.add(me + 2 + block_size()) = word(at + block_size());
            }
            _syncthreads();
            if at < len {
                *sums.add(at) = (0..5).fold(0u32, |sum, k| sum.wrapping_add(*shared.add(me + k)));
            }
        }
    }

    /// Counts bytes: in shared memory first, then into the grid's counters.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn byte_counts(bytes: *const u8, len: usize, counts: *const AtomicU32) {
        let shared = WORDS.get().cast::<AtomicU32>();
        let me = in_block();
        unsafe {
            for bin in (me..256).step_by(block_size()) {
                (*shared.add(bin)).store(0, Ordering::Relaxed);
            }
            _syncthreads();
            let stride = block_size() * _grid_dim_x() as usize;
            for at in (in_grid()..len).step_by(stride) {
                (*shared.add(usize::from(*bytes.add(at)))).fetch_add(1, Ordering::Relaxed);
            }
            _syncthreads();
            for bin in (me..256).step_by(block_size()) {
                let count = (*shared.add(bin)).load(Ordering::Relaxed);
                (*counts.add(bin)).fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    /// A stack without locks: each thread pushes node `in_grid() + 1`, every third pops one into `popped`.
    /// `head` is 0 where the stack is empty; a popped node is not pushed again, so no tag is needed.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn stack(head: *const AtomicU32, next: *const AtomicU32, popped: *mut u32) {
        let node = in_grid() as u32 + 1;
        unsafe {
            let head = &*head;
            let mut top = head.load(Ordering::Relaxed);
            loop {
                (*next.add(node as usize)).store(top, Ordering::Relaxed);
                match head.compare_exchange_weak(top, node, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => break,
                    Err(now) => top = now,
                }
            }
            if node % 3 == 0 {
                let mut top = head.load(Ordering::Acquire);
                while top != 0 {
                    let below = (*next.add(top as usize)).load(Ordering::Relaxed);
                    match head.compare_exchange_weak(top, below, Ordering::AcqRel, Ordering::Acquire) {
                        Ok(_) => break,
                        Err(now) => top = now,
                    }
                }
                *popped.add(node as usize - 1) = top;
            }
        }
    }

    /// A lock by tickets; who holds it adds to a plain number and notes when it came.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn ticket_lock(
        tickets: *const AtomicU32,
        serving: *const AtomicU32,
        total: *mut u32,
        order: *mut u32,
    ) {
        unsafe {
            let mine = (*tickets).fetch_add(1, Ordering::Relaxed);
            while (*serving).load(Ordering::Acquire) != mine {}
            *total += in_grid() as u32;
            *order.add(mine as usize) = in_grid() as u32;
            (*serving).store(mine + 1, Ordering::Release);
        }
    }

    #[inline(always)]
    fn shuffle_down(word: u32, distance: u32) -> u32 {
        let found;
        unsafe {
            asm!("shfl.sync.down.b32 {}, {}, {}, 31, -1;", out(reg32) found, in(reg32) word, in(reg32) distance,
                 options(nomem, nostack))
        };
        found
    }
    #[inline(always)]
    fn shuffle_xor(word: u32, mask: u32) -> u32 {
        let found;
        unsafe {
            asm!("shfl.sync.bfly.b32 {}, {}, {}, 31, -1;", out(reg32) found, in(reg32) word, in(reg32) mask,
                 options(nomem, nostack))
        };
        found
    }
    #[inline(always)]
    fn ballot(vote: bool) -> u32 {
        let found;
        unsafe {
            asm!("{{ .reg .pred p; setp.ne.u32 p, {}, 0; vote.sync.ballot.b32 {}, p, -1; }}",
                 in(reg32) u32::from(vote), out(reg32) found, options(nomem, nostack))
        };
        found
    }

    /// For each thread: the warp's sum (in lane 0, else the partial one), its largest word, and how many lanes below
    /// have an odd word.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn warp_shuffles(
        words: *const u32,
        sums: *mut u32,
        largest: *mut u32,
        below: *mut u32,
    ) {
        let at = in_grid();
        unsafe {
            let word = *words.add(at);
            let (mut sum, mut most) = (word, word);
            for step in [16, 8, 4, 2, 1] {
                sum = sum.wrapping_add(shuffle_down(sum, step));
                most = most.max(shuffle_xor(most, step));
            }
            *sums.add(at) = sum;
            *largest.add(at) = most;
            *below.add(at) = (ballot(word % 2 == 1) & ((1 << (in_block() % 32)) - 1)).count_ones();
        }
    }

    /// The last block to finish adds up what all blocks left.
    #[unsafe(no_mangle)]
    pub unsafe extern "ptx-kernel" fn last_block(
        words: *const u32,
        parts: *const AtomicU32,
        done: *const AtomicU32,
        total: *mut u32,
    ) {
        let flag = MORE.get().cast::<u32>();
        unsafe {
            (*parts.add(block())).fetch_add(*words.add(in_grid()), Ordering::Relaxed);
            _syncthreads();
            if in_block() == 0 {
                let before = (*done).fetch_add(1, Ordering::AcqRel);
                *flag = u32::from(before + 1 == _grid_dim_x() as u32);
            }
            _syncthreads();
            if *flag == 1 && in_block() == 0 {
                let blocks = _grid_dim_x() as usize;
                *total = (0..blocks).fold(0, |sum: u32, at| sum.wrapping_add((*parts.add(at)).load(Ordering::Relaxed)));
            }
        }
    }
}
