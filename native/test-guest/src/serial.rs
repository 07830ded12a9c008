//! Output on the first serial port (16550 at 0x3f8). No `core::fmt`: it would be most of the binary. Buffers are not
//! initialised, because the compiler would do it in vector registers, which instruction emulators lack (README).
use core::mem::MaybeUninit;

use crate::port::{in8, out_bytes, out8};

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = DATA + 5;
const FIFO_BYTES: usize = 16;

pub fn init() {
    out8(DATA + 1, 0); // no interrupts
    out8(DATA + 2, 0x07); // FIFOs on and empty
    out8(DATA + 3, 0x03); // 8 data bits, no parity
    out8(DATA + 4, 0x03); // ready
}

/// Blocks while the transmitter is not empty, so a host that does not read slows the guest and loses nothing.
pub fn print(text: &[u8]) {
    for chunk in text.chunks(FIFO_BYTES) {
        while in8(LINE_STATUS) & 0x20 == 0 {}
        out_bytes(DATA, chunk);
    }
}

pub fn print_line(text: &[u8]) {
    print(text);
    print(b"\n");
}

pub fn print_number(value: u64) {
    let mut digits = [MaybeUninit::<u8>::uninit(); 20];
    let mut at = digits.len();
    let mut rest = value;
    loop {
        at -= 1;
        digits[at].write(b'0' + (rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    print_written(&digits[at..]);
}

pub fn print_hex(value: u64) {
    let mut digits = [MaybeUninit::<u8>::uninit(); 16];
    let mut at = 0;
    while at < 16 {
        digits[at].write(b"0123456789abcdef"[(value >> (60 - 4 * at)) as usize & 15]);
        at += 1;
    }
    print_written(&digits);
}

fn print_written(bytes: &[MaybeUninit<u8>]) {
    // SAFETY: both callers wrote every byte they pass.
    print(unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) });
}
