//! Port and memory-mapped I/O, and the four memory functions the compiler calls.
use core::arch::asm;

pub fn out8(port: u16, value: u8) {
    // SAFETY: the guest owns its machine; no port write here reaches memory the compiler knows of.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

pub fn out16(port: u16, value: u16) {
    // SAFETY: as `out8`.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) };
}

pub fn out32(port: u16, value: u32) {
    // SAFETY: as `out8`.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags)) };
}

pub fn in8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: as `out8`.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

pub fn in16(port: u16) -> u16 {
    let value: u16;
    // SAFETY: as `out8`.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack, preserves_flags)) };
    value
}

pub fn in32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: as `out8`.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) };
    value
}

/// Writes a run of bytes to one port with a single instruction, which costs one exit under most hypervisors.
pub fn out_bytes(port: u16, bytes: &[u8]) {
    // SAFETY: reads exactly `bytes`.
    unsafe {
        asm!("rep outsb", in("dx") port, inout("rsi") bytes.as_ptr() => _, inout("rcx") bytes.len() => _, options(nostack, preserves_flags));
    }
}

pub fn read_mmio32(address: usize) -> u32 {
    // SAFETY: all of the first 4 GiB is mapped; device registers are read once as written here.
    unsafe { core::ptr::read_volatile(address as *const u32) }
}

pub fn write_mmio8(address: usize, value: u8) {
    // SAFETY: as `read_mmio32`.
    unsafe { core::ptr::write_volatile(address as *mut u8, value) };
}

pub fn write_mmio32(address: usize, value: u32) {
    // SAFETY: as `read_mmio32`.
    unsafe { core::ptr::write_volatile(address as *mut u32, value) };
}

pub fn read_tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: reads a counter.
    unsafe { asm!("rdtsc", out("eax") low, out("edx") high, options(nostack, nomem, preserves_flags)) };
    (u64::from(high) << 32) | u64::from(low)
}

/// Halts until the next timer interrupt. Interrupts are on only inside.
pub fn wait_for_interrupt() {
    // SAFETY: the handler saves what it uses; without `nostack` the compiler keeps nothing below the stack pointer.
    unsafe { asm!("sti", "hlt", "cli") };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8 {
    // SAFETY: the caller's contract is memcpy's.
    unsafe { asm!("rep movsb", inout("rcx") count => _, inout("rdi") to => _, inout("rsi") from => _, options(nostack, preserves_flags)) };
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, value: i32, count: usize) -> *mut u8 {
    // SAFETY: the caller's contract is memset's.
    unsafe { asm!("rep stosb", inout("rcx") count => _, inout("rdi") to => _, in("al") value as u8, options(nostack, preserves_flags)) };
    to
}

#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    let mut at = 0;
    while at < count {
        // SAFETY: the caller's contract is memcmp's.
        let (a, b) = unsafe { (core::ptr::read_volatile(left.add(at)), core::ptr::read_volatile(right.add(at))) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
        at += 1;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, count: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, count) }
}
