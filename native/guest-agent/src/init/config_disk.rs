//! The disk that tells a guest who it is.

use alloc::vec::Vec;

use guest_agent::config::{self, Config, DISK_HEADER_BYTES};
use guest_agent::failure::{Failure, describe};

use crate::init::devices;
use crate::log;
use crate::sys::{self, raw};

const SERIAL: &[u8] = b"fluxvm-config";
/// A guest without one is a plain guest, which has to wait this long to know.
const WAIT_MS: u64 = 3000;

/// The configuration and its JSON. Without a disk, or with a wrong one, that of a plain guest.
pub fn find() -> (Config, Vec<u8>) {
    let Some(disk) = devices::wait_for_disk(SERIAL, WAIT_MS) else {
        log!("there is no config disk: nobody is served");
        return (Config::unconfigured(), Vec::new());
    };
    match read(&disk).and_then(|bytes| config::parse_disk(&bytes).map(|config| (config, bytes))) {
        Ok((config, bytes)) => {
            let length = config::parse_disk_header(&bytes).unwrap_or(0);
            (config, bytes[DISK_HEADER_BYTES..DISK_HEADER_BYTES + length].to_vec())
        }
        Err(failure) => {
            log!("{}: nobody is served", failure.message);
            (Config::unconfigured(), Vec::new())
        }
    }
}

fn read(disk: &[u8]) -> Result<Vec<u8>, Failure> {
    let failed = |error: sys::Errno| Failure::invalid(alloc::format!("The config disk cannot be read: {}", describe(error.0)));
    let device = sys::open(&[b"/dev/", disk].concat(), raw::O_RDONLY).map_err(failed)?;
    let mut bytes = alloc::vec![0u8; 4096];
    let mut have = fill(&device, &mut bytes, 0).map_err(failed)?;
    let length = config::parse_disk_header(&bytes[..have]).ok_or_else(|| Failure::invalid("The config disk does not begin with FLUXCFG1"))?;
    if DISK_HEADER_BYTES + length > have {
        bytes.resize(DISK_HEADER_BYTES + length, 0);
        have += fill(&device, &mut bytes[have..], have as u64).map_err(failed)?;
    }
    bytes.truncate(have);
    Ok(bytes)
}

fn fill(device: &sys::OwnedFd, into: &mut [u8], offset: u64) -> sys::Result<usize> {
    let mut have = 0;
    while have < into.len() {
        match sys::pread(device.raw(), &mut into[have..], offset + have as u64)? {
            0 => break,
            count => have += count,
        }
    }
    Ok(have)
}
