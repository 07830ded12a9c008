//! `lock`: takes an exclusive flock on descriptor 3 without waiting, then ends. The lock belongs to the open file
//! description, which the caller shares: it holds until the caller and everybody it handed the descriptor to are gone.
//! Exit code 0: taken; 75: somebody else has it; 1: anything else, with the reason on standard error.

pub fn main() -> i32 {
    // SAFETY: flock takes no memory; a bad descriptor is an error result.
    let result = unsafe { libc::flock(3, libc::LOCK_EX | libc::LOCK_NB) };
    if result == 0 {
        return 0;
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EWOULDBLOCK) {
        return 75;
    }
    eprintln!("flock: {error}");
    1
}
