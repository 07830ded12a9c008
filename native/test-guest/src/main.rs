//! A bare-metal guest for tests: does what its kernel command line says, and says so on the serial port.
//!
//! `pvh_entry` (entry.rs) -> `guest_main` -> the steps of the script (lib.rs) in order -> idle.
//! One processor, no devices but the serial port, the timer and the power registers, no memory allocation.
#![no_std]
#![no_main]

mod dirty;
mod entry;
mod machine;
mod port;
mod serial;
mod time;

use core::panic::PanicInfo;

use machine::Machine;
use serial::{print, print_line, print_number};
use test_guest::{Script, Step};
use time::Clock;

/// The part of PVH's `hvm_start_info` that is used (Xen public/arch-x86/hvm/start_info.h).
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    module_count: u32,
    modules: u64,
    command_line: u64,
}

const START_MAGIC: u32 = 0x336e_c578;
const MAX_COMMAND_LINE: usize = 4096;

struct Guest {
    machine: Machine,
    clock: Clock,
    ignore_power_button: bool,
}

extern "C" fn guest_main(info: *const StartInfo) -> ! {
    serial::init();
    print_line(b"fluxvm-test-guest: up");
    // SAFETY: the boot protocol passes a valid structure in the first 4 GiB.
    let line = unsafe { command_line(info) };
    let mut guest = Guest { machine: machine::detect(), clock: Clock::start(test_guest::find_tsc_khz(line)), ignore_power_button: false };
    print(b"fluxvm-test-guest: machine=");
    print(guest.machine.name());
    print(b" tsc_khz=");
    print_number(guest.clock.tsc_per_ms());
    print_line(b"");
    let mut rounds: u32 = 0;
    loop {
        rounds = rounds.wrapping_add(1);
        if !run_round(&mut guest, line, rounds) {
            break;
        }
    }
    guest.idle()
}

/// # Safety
/// `info` must be what the boot protocol passes.
unsafe fn command_line(info: *const StartInfo) -> &'static [u8] {
    // SAFETY: the caller's promise; the text is NUL-terminated and stays.
    unsafe {
        if (*info).magic != START_MAGIC || (*info).command_line == 0 {
            return b"";
        }
        let text = (*info).command_line as *const u8;
        let mut length = 0;
        while length < MAX_COMMAND_LINE && *text.add(length) != 0 {
            length += 1;
        }
        core::slice::from_raw_parts(text, length)
    }
}

/// One pass over the script; `true` when it says to start again.
fn run_round(guest: &mut Guest, line: &[u8], rounds: u32) -> bool {
    for step in Script::new(line) {
        match step {
            Step::Print(text) => print_text(text),
            Step::Count { every_ms, times } => guest.count(every_ms, times),
            Step::Sleep { ms } => guest.sleep(ms),
            Step::Idle => guest.idle(),
            Step::Busy => loop {
                guest.answer_power_button();
            },
            Step::Flood { kib } => flood(kib),
            Step::Dirty { mib, mib_per_second, seconds } => guest.dirty(dirty::Load { mib, mib_per_second, seconds }),
            Step::Crash => machine::triple_fault(),
            Step::Panic => machine::panic_notify(),
            Step::PowerOff => guest.machine.power_off(),
            Step::Reset => guest.machine.reset(),
            Step::Loop { times } if times == 0 || rounds < times => return true,
            Step::Loop { .. } => {} // the last round goes on behind it
            Step::PowerButton { ignore } => guest.ignore_power_button = ignore,
        }
    }
    false
}

impl Guest {
    fn answer_power_button(&self) {
        if self.machine.take_power_button() && !self.ignore_power_button {
            print_line(b"fluxvm-test-guest: power button");
            self.machine.power_off();
        }
    }

    fn sleep(&self, ms: u32) {
        self.clock.wait_until(self.clock.now_ms() + u64::from(ms), || self.answer_power_button());
    }

    fn idle(&self) -> ! {
        loop {
            port::wait_for_interrupt();
            self.answer_power_button();
        }
    }

    fn count(&self, every_ms: u32, times: u32) {
        let start = self.clock.now_ms();
        let mut number: u64 = 0;
        while times == 0 || number < u64::from(times) {
            number += 1;
            print(b"count ");
            print_number(number);
            print_line(b"");
            self.clock.wait_until(start + number * u64::from(every_ms), || self.answer_power_button());
        }
    }

    fn dirty(&self, load: dirty::Load) {
        if !dirty::run(&load, &self.clock, |_| self.answer_power_button(), self.machine) {
            machine::panic_notify();
        }
    }
}

fn print_text(text: &[u8]) {
    for part in text.split(|byte| *byte == b'_').enumerate() {
        if part.0 > 0 {
            print(b" ");
        }
        print(part.1);
    }
    print_line(b"");
}

/// Numbered lines of 64 bytes, so that a reader can tell what it lost.
fn flood(kib: u32) {
    let mut number: u64 = 0;
    while number < u64::from(kib) * 16 {
        serial::print_hex(number);
        print(b" ..............................................\n");
        number += 1;
    }
}

#[panic_handler]
fn on_panic(_: &PanicInfo) -> ! {
    print_line(b"fluxvm-test-guest: bug");
    machine::halt()
}
