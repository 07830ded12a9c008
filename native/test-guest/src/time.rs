//! Time from the time-stamp counter, measured once against the interval timer (8254, 1193182 Hz) unless its frequency is
//! given as for Linux (`tsc_early_khz=`); the same timer
//! interrupts 100 times a second to wake a halted guest. A paused VM's clock stands still, as its counter does.
use crate::port::{in8, out8, read_tsc, wait_for_interrupt, write_mmio32};

const PIT_HZ: u64 = 1_193_182;
const RELOAD: u16 = 11_932; // 100 Hz
/// How long the counter is measured each time: 1 ms. A vCPU that loses its processor meanwhile may miss a turn of the
/// timer and measure too much, never too little, so the smallest of several is right.
const MEASURE_PIT_TICKS: u64 = PIT_HZ / 1000;
const MEASUREMENTS: u32 = 4;

/// The local APIC passes the interrupt controller's interrupts on through LINT0; firmware of microvm leaves it masked.
const LAPIC_SPURIOUS: usize = 0xfee0_00f0;
const LAPIC_LINT0: usize = 0xfee0_0350;

pub struct Clock {
    tsc_per_ms: u64,
}

impl Clock {
    /// Sets up timer and interrupt controller. `tsc_khz` is the counter's frequency if the command line told it;
    /// measuring takes about 4 ms.
    pub fn start(tsc_khz: Option<u32>) -> Clock {
        for (port, value) in
            [(0x20, 0x11), (0x21, 0x20), (0x21, 4), (0x21, 1), (0xa0, 0x11), (0xa1, 0x28), (0xa1, 2), (0xa1, 1), (0x21, 0xfe), (0xa1, 0xff)]
        {
            out8(port, value); // vectors from 0x20, only the timer unmasked
        }
        write_mmio32(LAPIC_SPURIOUS, 0x1ff); // enabled
        write_mmio32(LAPIC_LINT0, 0x700); // external interrupts, unmasked
        out8(0x43, 0x34); // channel 0, low then high byte, rate generator
        out8(0x40, RELOAD as u8);
        out8(0x40, (RELOAD >> 8) as u8);
        let tsc_per_ms = match tsc_khz {
            Some(khz) if khz > 0 => u64::from(khz),
            _ => (0..MEASUREMENTS).map(|_| measure_tsc_per_ms()).min().unwrap_or(1),
        };
        Clock { tsc_per_ms }
    }

    pub fn tsc_per_ms(&self) -> u64 {
        self.tsc_per_ms
    }

    pub fn now_ms(&self) -> u64 {
        read_tsc() / self.tsc_per_ms
    }

    /// Halts until `deadline_ms`, calling `each` on every wake.
    pub fn wait_until(&self, deadline_ms: u64, mut each: impl FnMut()) {
        while self.now_ms() < deadline_ms {
            wait_for_interrupt();
            each();
        }
    }
}

fn read_pit() -> u16 {
    out8(0x43, 0); // latch channel 0
    let low = in8(0x40);
    u16::from(low) | (u16::from(in8(0x40)) << 8)
}

/// Bounded: a machine without the timer gives a made-up 1 GHz instead of a hang.
fn measure_tsc_per_ms() -> u64 {
    let mut last = read_pit();
    let start = read_tsc();
    let mut passed: u64 = 0;
    let mut unchanged = 0;
    while passed < MEASURE_PIT_TICKS {
        let now = read_pit();
        let step = if now <= last { last - now } else { last + RELOAD - now };
        unchanged = if step == 0 { unchanged + 1 } else { 0 };
        if unchanged > 100_000 {
            return 1_000_000;
        }
        passed += u64::from(step);
        last = now;
    }
    let rate = (read_tsc() - start) * PIT_HZ / (passed * 1000);
    if rate == 0 { 1 } else { rate }
}
