//! What a C runtime and library would have given us: process entry, the four memory functions the compiler calls, a heap and the panic handler.
//!
//! The heap has power-of-two size classes with free lists, carved from 256 KiB blocks; anything above 32 KiB is its own
//! mapping and goes back to the kernel when freed, so output buffers shrink. Single thread: no locks.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr::null_mut;

use crate::sys;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the guest agent has been written and tested for x86_64 only");

global_asm!(
    ".globl _start",
    "_start:",
    "xor %ebp, %ebp",
    "mov %rsp, %rdi",
    "and $-16, %rsp",
    "call {entry}",
    "ud2",
    entry = sym entry,
    options(att_syntax)
);

/// Arguments and environment as the kernel laid them out.
pub struct Start {
    pub args: &'static [*const u8],
    pub env: &'static [*const u8],
}

unsafe extern "C" fn entry(stack: *const usize) -> ! {
    // SAFETY: the kernel puts argc, argv, a null, envp, a null at the initial stack pointer; they live as long as we do.
    let start = unsafe {
        let argc = *stack;
        let argv = stack.add(1).cast::<*const u8>();
        let envp = argv.add(argc + 1);
        let mut envc = 0;
        while !(*envp.add(envc)).is_null() {
            envc += 1;
        }
        Start { args: core::slice::from_raw_parts(argv, argc), env: core::slice::from_raw_parts(envp, envc) }
    };
    let code = crate::run(&start);
    sys::exit(code)
}

/// The bytes of a C string that the kernel gave us.
pub fn c_bytes(pointer: *const u8) -> &'static [u8] {
    // SAFETY: only called with pointers of `Start`, which are NUL-terminated and live for ever.
    unsafe { core::ffi::CStr::from_ptr(pointer.cast()).to_bytes() }
}

/// Loops are written in assembly: the compiler turns a copying loop in Rust into a call of the very function it is in.
/// Plain 8-byte moves, since `rep movsb` is quick on processors and a crawl under emulation, where this often runs.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller's contract is memcpy's; every load and store is inside the `count` bytes of its range.
    unsafe {
        asm!(
            "2: cmp {n}, 32",
            "jb 3f",
            "mov {a}, [{s}]",
            "mov {b}, [{s} + 8]",
            "mov {c}, [{s} + 16]",
            "mov {e}, [{s} + 24]",
            "mov [{d}], {a}",
            "mov [{d} + 8], {b}",
            "mov [{d} + 16], {c}",
            "mov [{d} + 24], {e}",
            "add {s}, 32",
            "add {d}, 32",
            "sub {n}, 32",
            "jmp 2b",
            "3: cmp {n}, 8",
            "jb 5f",
            "mov {a}, [{s}]",
            "mov [{d}], {a}",
            "add {s}, 8",
            "add {d}, 8",
            "sub {n}, 8",
            "jmp 3b",
            "4: mov {a:l}, [{s}]",
            "mov [{d}], {a:l}",
            "inc {s}",
            "inc {d}",
            "dec {n}",
            "5: test {n}, {n}",
            "jnz 4b",
            n = inout(reg) count => _,
            s = inout(reg) from => _,
            d = inout(reg) to => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            e = out(reg) _,
            options(nostack)
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= count {
        // SAFETY: the source is not below its copy here, and the upward copy reads each 32 bytes before it writes them.
        return unsafe { memcpy(to, from, count) };
    }
    // SAFETY: downward from the end, so that nothing is overwritten before it was read; all inside the two ranges.
    unsafe {
        asm!(
            "2: cmp {n}, 8",
            "jb 4f",
            "mov {a}, [{s} + {n} - 8]",
            "mov [{d} + {n} - 8], {a}",
            "sub {n}, 8",
            "jmp 2b",
            "3: mov {a:l}, [{s} + {n} - 1]",
            "mov [{d} + {n} - 1], {a:l}",
            "dec {n}",
            "4: test {n}, {n}",
            "jnz 3b",
            n = inout(reg) count => _,
            s = in(reg) from,
            d = in(reg) to,
            a = out(reg) _,
            options(nostack)
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    let pattern = u64::from(value as u8) * 0x0101_0101_0101_0101;
    // SAFETY: the caller's contract is memset's; every store is inside the `count` bytes.
    unsafe {
        asm!(
            "2: cmp {n}, 8",
            "jb 4f",
            "mov [{d}], {v}",
            "add {d}, 8",
            "sub {n}, 8",
            "jmp 2b",
            "3: mov [{d}], {v:l}",
            "inc {d}",
            "dec {n}",
            "4: test {n}, {n}",
            "jnz 3b",
            n = inout(reg) count => _,
            d = inout(reg) to => _,
            v = in(reg) pattern,
            options(nostack)
        );
    }
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    let mut i = 0;
    // SAFETY: both ranges are readable for `count` bytes by memcmp's contract.
    unsafe {
        while i + 8 <= count && a.add(i).cast::<u64>().read_unaligned() == b.add(i).cast::<u64>().read_unaligned() {
            i += 8;
        }
        while i < count {
            let difference = i32::from(*a.add(i)) - i32::from(*b.add(i));
            if difference != 0 {
                return difference;
            }
            i += 1;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, count: usize) -> i32 {
    // SAFETY: same contract.
    unsafe { memcmp(a, b, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(s: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: `s` is NUL-terminated by strlen's contract; volatile so that the loop is not turned into a call of itself.
    while unsafe { s.add(n).read_volatile() } != 0 {
        n += 1;
    }
    n
}

/// The precompiled `core` and `alloc` name these two; nothing unwinds, so they are never called.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::exit(70)
}

#[panic_handler]
fn on_panic(info: &PanicInfo) -> ! {
    crate::log!("panic: {}", info);
    if sys::getpid() == 1 {
        sys::sync();
        sys::reboot(sys::REBOOT_AUTOBOOT);
    }
    sys::exit(70)
}

const CLASSES: usize = 12; // 16 bytes up to 32 KiB
const LARGE: usize = 32 * 1024;
const BLOCK: usize = 256 * 1024;

struct Heap(UnsafeCell<HeapState>);
struct HeapState {
    free: [*mut u8; CLASSES],
    next: *mut u8,
    left: usize,
}
// SAFETY: one thread, and signal handlers are never installed.
unsafe impl Sync for Heap {}

#[global_allocator]
static HEAP: Heap = Heap(UnsafeCell::new(HeapState { free: [null_mut(); CLASSES], next: null_mut(), left: 0 }));

fn class_of(size: usize) -> usize {
    (size.max(16).next_power_of_two().trailing_zeros() - 4) as usize
}

fn pages(size: usize) -> usize {
    (size + 4095) & !4095
}

// SAFETY: blocks are disjoint, at least as large as asked and aligned to their power-of-two size (blocks are page-aligned).
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size().max(layout.align());
        if size > LARGE {
            return sys::map_anonymous(pages(size));
        }
        let class = class_of(size);
        // SAFETY: single thread, no reentry: nothing below allocates.
        let heap = unsafe { &mut *self.0.get() };
        let head = heap.free[class];
        if !head.is_null() {
            // SAFETY: a free block starts with the pointer to the next free one.
            heap.free[class] = unsafe { *head.cast::<*mut u8>() };
            return head;
        }
        let bytes = 16usize << class;
        let skip = (heap.next as usize).wrapping_neg() & (bytes - 1);
        if heap.left < bytes + skip {
            heap.next = sys::map_anonymous(BLOCK);
            if heap.next.is_null() {
                heap.left = 0;
                return null_mut();
            }
            heap.left = BLOCK;
        } else {
            heap.next = heap.next.wrapping_add(skip);
            heap.left -= skip;
        }
        let block = heap.next;
        heap.next = block.wrapping_add(bytes);
        heap.left -= bytes;
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let size = layout.size().max(layout.align());
        if size > LARGE {
            sys::unmap(block, pages(size));
            return;
        }
        let class = class_of(size);
        // SAFETY: single thread; the block is ours again and at least 16 bytes.
        unsafe {
            let heap = &mut *self.0.get();
            *block.cast::<*mut u8>() = heap.free[class];
            heap.free[class] = block;
        }
    }
}
