//! Dirties memory at a rate and notices when it changes behind the guest's back.
//!
//! Each page holds four words made from its number and the round it was last written in. A round visits every page:
//! it checks the words of the round before, then writes new ones. What is read must be what was written, so a snapshot,
//! migration or fork that mixes memory of two moments prints `dirty corrupt`.
use crate::machine::Machine;
use crate::serial::{print, print_hex, print_line, print_number};
use crate::time::Clock;

const PAGE: usize = 4096;
const REGION: usize = 0x20_0000; // 2 MiB: beyond the image and its tables
const WORDS: usize = 4;
const PAGES_PER_MIB: u64 = 256;

pub struct Load {
    pub mib: u32,
    pub mib_per_second: u32,
    pub seconds: u32,
}

struct Region {
    pages: u64,
    round: u64,
    next: u64,
    sum: u64,
}

/// Runs until `seconds` are over (0: for ever). `false` when memory was not as it was left.
pub fn run(load: &Load, clock: &Clock, mut each: impl FnMut(Machine), machine: Machine) -> bool {
    let mut region = Region { pages: u64::from(load.mib.clamp(1, 2048)) * PAGES_PER_MIB, round: 1, next: 0, sum: 0 };
    let rate_pages = u64::from(load.mib_per_second.max(1)) * PAGES_PER_MIB;
    let start = clock.now_ms();
    let mut done: u64 = 0;
    let mut reported = start;
    loop {
        let now = clock.now_ms();
        let due = (now - start) * rate_pages / 1000;
        while done < due {
            if !region.touch() {
                return false;
            }
            done += 1;
            if done % 512 == 0 && clock.now_ms() > now + 100 {
                break; // slower than the rate asked for: go on reporting and answering the power button
            }
        }
        if now >= reported + 1000 {
            reported = now;
            region.report(done);
        }
        if load.seconds > 0 && now >= start + u64::from(load.seconds) * 1000 {
            region.report(done);
            return true;
        }
        each(machine);
        clock.wait_until(now + 10, || ());
    }
}

fn word(page: u64, round: u64, index: usize) -> u64 {
    (page + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round.wrapping_mul(0xbf58_476d_1ce4_e5b9).rotate_left(8 * index as u32)
}

impl Region {
    /// Checks and rewrites one page.
    fn touch(&mut self) -> bool {
        let base = REGION + self.next as usize * PAGE;
        let mut index = 0;
        while index < WORDS {
            let at = (base + index * (PAGE / WORDS)) as *mut u64;
            // SAFETY: the region lies in mapped memory that nothing else uses.
            let found = unsafe { core::ptr::read_volatile(at) };
            if self.round > 1 && found != word(self.next, self.round - 1, index) {
                print(b"dirty corrupt page=");
                print_number(self.next);
                print(b" round=");
                print_number(self.round);
                print_line(b"");
                return false;
            }
            let value = word(self.next, self.round, index);
            // SAFETY: as above.
            unsafe { core::ptr::write_volatile(at, value) };
            self.sum = self.sum.rotate_left(1) ^ value;
            index += 1;
        }
        self.next += 1;
        if self.next == self.pages {
            self.next = 0;
            self.round += 1;
        }
        true
    }

    fn report(&self, done: u64) {
        print(b"dirty pages=");
        print_number(done);
        print(b" round=");
        print_number(self.round);
        print(b" sum=");
        print_hex(self.sum);
        print_line(b"");
    }
}
