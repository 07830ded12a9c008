//! What the guest is told to do: its kernel command line, read as a script of steps.
//!
//! Words the guest does not know are skipped, because VMMs and backends add their own. Pure: no I/O, no allocation.
#![cfg_attr(not(test), no_std)]

/// One step of the script, in the order of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Prints the text; `_` stands for a space.
    Print(&'a [u8]),
    /// Prints 1, 2, 3, … one every `every_ms`; `times` 0 means for ever.
    Count {
        every_ms: u32,
        times: u32,
    },
    /// Waits, halted.
    Sleep {
        ms: u32,
    },
    /// Halts for ever, answering the power button.
    Idle,
    /// Spins for ever without halting.
    Busy,
    /// Prints `kib` KiB as fast as the port takes them.
    Flood {
        kib: u32,
    },
    /// Writes memory at a rate and checks that what it wrote before is still there; `seconds` 0 means for ever.
    Dirty {
        mib: u32,
        mib_per_second: u32,
        seconds: u32,
    },
    /// Triple fault.
    Crash,
    /// Tells the pvpanic device, if there is one, and halts with interrupts off.
    Panic,
    PowerOff,
    Reset,
    /// Starts the script again: `times` rounds in all, 0 means for ever.
    Loop {
        times: u32,
    },
    /// What the power button does from here on: power off (the default) or nothing.
    PowerButton {
        ignore: bool,
    },
}

/// Splits a command line into the steps this guest knows.
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    pub fn new(line: &'a [u8]) -> Self {
        Script { rest: line }
    }
}

impl<'a> Iterator for Script<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        loop {
            let (word, rest) = split_word(self.rest)?;
            self.rest = rest;
            if let Some(step) = parse_step(word) {
                return Some(step);
            }
        }
    }
}

/// The value of `tsc_early_khz=`, which tells Linux the counter's frequency and this guest as well.
pub fn find_tsc_khz(line: &[u8]) -> Option<u32> {
    let mut rest = line;
    while let Some((word, after)) = split_word(rest) {
        if let (b"tsc_early_khz", Some(value)) = split_at(word, b'=') {
            return number(value);
        }
        rest = after;
    }
    None
}

/// Splits off the first word; `None` when there is none.
fn split_word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut start = 0;
    while start < line.len() && line[start] == b' ' {
        start += 1;
    }
    let mut end = start;
    while end < line.len() && line[end] != b' ' {
        end += 1;
    }
    if start == end { None } else { Some((line.get(start..end)?, line.get(end..)?)) }
}

/// Unknown words and words with a value that is not of their form are no steps.
fn parse_step(word: &[u8]) -> Option<Step<'_>> {
    let (key, value) = split_at(word, b'=');
    match (key, value) {
        (b"idle", None) => Some(Step::Idle),
        (b"busy", None) => Some(Step::Busy),
        (b"crash", None) => Some(Step::Crash),
        (b"panic", None) => Some(Step::Panic),
        (b"print", Some(text)) => Some(Step::Print(text)),
        (b"sleep", Some(text)) => Some(Step::Sleep { ms: number(text)? }),
        (b"flood", Some(text)) => Some(Step::Flood { kib: number(text)? }),
        (b"loop", Some(text)) => Some(Step::Loop { times: number(text)? }),
        (b"exit", Some(b"poweroff")) => Some(Step::PowerOff),
        (b"exit", Some(b"reset")) => Some(Step::Reset),
        (b"power", Some(b"ignore")) => Some(Step::PowerButton { ignore: true }),
        (b"power", Some(b"off")) => Some(Step::PowerButton { ignore: false }),
        (b"count", Some(text)) => {
            let (every, times) = split_at(text, b'*');
            Some(Step::Count { every_ms: number(every)?, times: optional(times)? })
        }
        (b"dirty", Some(text)) => {
            let (mib, rest) = split_at(text, b'@');
            let (rate, seconds) = split_at(rest?, b'*');
            Some(Step::Dirty { mib: number(mib)?, mib_per_second: number(rate)?, seconds: optional(seconds)? })
        }
        _ => None,
    }
}

fn split_at(word: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    let mut at = 0;
    while at < word.len() && word[at] != separator {
        at += 1;
    }
    (word.get(..at).unwrap_or(&[]), word.get(at + 1..))
}

/// Absent is 0, present must be a number.
fn optional(text: Option<&[u8]>) -> Option<u32> {
    text.map_or(Some(0), number)
}

/// Decimal digits only, up to the largest `u32`.
fn number(text: &[u8]) -> Option<u32> {
    if text.is_empty() {
        return None;
    }
    let mut value: u32 = 0;
    for digit in text {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u32::from(digit - b'0'))?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(line: &str) -> Vec<Step<'_>> {
        Script::new(line.as_bytes()).collect()
    }

    #[test]
    fn steps_come_in_order() {
        assert_eq!(
            steps("print=hello_you count=100*5  sleep=7 exit=poweroff"),
            [Step::Print(b"hello_you"), Step::Count { every_ms: 100, times: 5 }, Step::Sleep { ms: 7 }, Step::PowerOff]
        );
        assert_eq!(
            steps("dirty=64@8 dirty=1@2*3 flood=4 busy idle crash panic exit=reset loop=0 power=ignore power=off"),
            [
                Step::Dirty { mib: 64, mib_per_second: 8, seconds: 0 },
                Step::Dirty { mib: 1, mib_per_second: 2, seconds: 3 },
                Step::Flood { kib: 4 },
                Step::Busy,
                Step::Idle,
                Step::Crash,
                Step::Panic,
                Step::Reset,
                Step::Loop { times: 0 },
                Step::PowerButton { ignore: true },
                Step::PowerButton { ignore: false },
            ]
        );
    }

    #[test]
    fn words_of_others_are_skipped() {
        assert_eq!(steps("console=ttyS0 reboot=t panic=-1 quiet virtio_mmio.device=512@0xfeb00e00:12"), []);
    }

    #[test]
    fn malformed_words_are_no_steps() {
        for word in [
            "",
            " ",
            "count=",
            "count=x",
            "count=1*",
            "count=1*x",
            "dirty=1",
            "dirty=1@",
            "dirty=@1",
            "exit=",
            "sleep=-1",
            "sleep=4294967296",
            "print",
            "idle=1",
            "=",
        ] {
            assert_eq!(steps(word), [], "{word}");
        }
        assert_eq!(steps("print="), [Step::Print(b"")]);
        assert_eq!(steps("sleep=4294967295"), [Step::Sleep { ms: u32::MAX }]);
    }

    #[test]
    fn the_counter_frequency_is_found_among_other_words() {
        assert_eq!(find_tsc_khz(b"console=ttyS0 tsc_early_khz=2596122 idle"), Some(2_596_122));
        assert_eq!(find_tsc_khz(b"tsc_early_khz=fast"), None);
        assert_eq!(find_tsc_khz(b"idle"), None);
    }

    #[test]
    fn any_bytes_are_taken() {
        let mut seed: u32 = 1;
        for _ in 0..2000 {
            let line: Vec<u8> = (0..64)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b"=*@ countdirty019\xff\0"[(seed >> 24) as usize % 19]
                })
                .collect();
            assert!(Script::new(&line).count() <= 64);
        }
    }
}
