//! What differs between machine models: power off, reset, the power button and the panic device.
//!
//! Register addresses: ICH9 and PIIX4 power management at 0x600 as SeaBIOS places it (QEMU hw/acpi/core.c); the
//! generic event device of microvm (QEMU include/hw/acpi/generic_event_device.h, include/hw/i386/microvm.h).
use core::arch::asm;

use crate::port::{in8, in16, in32, out8, out16, out32, read_mmio32, write_mmio8};

const PM1_STATUS: u16 = 0x600;
const PM1_CONTROL: u16 = 0x604;
const POWER_BUTTON_STATUS: u16 = 1 << 8;
const GED_SELECTOR: usize = 0xfea0_0000;
const GED_SLEEP_CONTROL: usize = 0xfea0_0200;
const GED_RESET: usize = 0xfea0_0202;
const GED_POWER_DOWN: u32 = 2;
const PVPANIC: u16 = 0x505;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// q35 or i440fx: PCI configuration by port, ACPI power management by port.
    Pc,
    Microvm,
}

/// A PC answers at PCI configuration port 0xcf8 with Intel's vendor id; microvm has no such port.
pub fn detect() -> Machine {
    out32(0xcf8, 0x8000_0000);
    if in32(0xcfc) & 0xffff == 0x8086 { Machine::Pc } else { Machine::Microvm }
}

impl Machine {
    pub fn name(self) -> &'static [u8] {
        match self {
            Machine::Pc => b"pc",
            Machine::Microvm => b"microvm",
        }
    }

    /// Whether the power button was pressed since the last call.
    pub fn take_power_button(self) -> bool {
        match self {
            Machine::Pc => {
                let pressed = in16(PM1_STATUS) & POWER_BUTTON_STATUS != 0;
                if pressed {
                    out16(PM1_STATUS, POWER_BUTTON_STATUS);
                }
                pressed
            }
            Machine::Microvm => {
                let events = read_mmio32(GED_SELECTOR); // reading clears
                events != u32::MAX && events & GED_POWER_DOWN != 0
            }
        }
    }

    pub fn power_off(self) -> ! {
        match self {
            Machine::Pc => out16(PM1_CONTROL, 0x2000), // sleep enable, type 0 is soft off
            Machine::Microvm => write_mmio8(GED_SLEEP_CONTROL, 5 << 2 | 0x20),
        }
        halt()
    }

    pub fn reset(self) -> ! {
        match self {
            Machine::Pc => {
                out8(0xcf9, 0x02);
                out8(0xcf9, 0x06);
            }
            Machine::Microvm => write_mmio8(GED_RESET, 0x42),
        }
        triple_fault()
    }
}

/// Tells the panic device, if there is one (it answers with its supported events), and never runs again.
pub fn panic_notify() -> ! {
    if in8(PVPANIC) & 1 != 0 && in8(PVPANIC) != 0xff {
        out8(PVPANIC, 1);
    }
    halt()
}

/// An exception with no table to handle it, and none for the exception that follows.
pub fn triple_fault() -> ! {
    static EMPTY: [u16; 5] = [0; 5];
    // SAFETY: never returns; that the next instruction faults is the purpose.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) EMPTY.as_ptr(), options(noreturn)) }
}

/// Stops the only processor for ever.
pub fn halt() -> ! {
    loop {
        // SAFETY: halts with interrupts off.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
