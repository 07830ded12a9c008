//! Names of signals as people write them, `SIGTERM`, `TERM` or `15`.

const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT",
    "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

pub fn number_of(name: &str) -> Option<u8> {
    if let Ok(number) = name.parse::<u8>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let short = name.strip_prefix("SIG").unwrap_or(name);
    if let Some(after) = short.strip_prefix("RTMIN+") {
        return after.parse::<u8>().ok().filter(|n| *n <= 30).map(|n| 34 + n);
    }
    NAMES.iter().position(|n| *n == short).map(|i| i as u8 + 1)
}

pub fn name_of(number: u8) -> alloc::string::String {
    match NAMES.get(usize::from(number).wrapping_sub(1)) {
        Some(name) => alloc::format!("SIG{name}"),
        None => alloc::format!("SIGRTMIN+{}", number.saturating_sub(34)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers() {
        for (name, number) in [("SIGTERM", 15), ("KILL", 9), ("1", 1), ("SIGRTMIN+3", 37), ("64", 64)] {
            assert_eq!(number_of(name), Some(number), "{name}");
        }
        for name in ["", "0", "65", "SIGNONE", "-1", "RTMIN+31"] {
            assert_eq!(number_of(name), None, "{name}");
        }
        assert_eq!(name_of(31), "SIGSYS");
        assert_eq!(name_of(37), "SIGRTMIN+3");
    }
}
