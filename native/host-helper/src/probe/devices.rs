//! Device nodes: opened and used, not only found.
use super::{Fault, Verdict, fault, io_fault, namespaces, works, works_with};
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

/// Numbers of `linux/kvm.h`.
const KVM_GET_API_VERSION: u64 = 0xAE00;
const KVM_CREATE_VM: u64 = 0xAE01;
const KVM_CREATE_VCPU: u64 = 0xAE41;
/// Of `linux/vhost.h`: `_IO(0xAF, 1)` and `_IOR(0xAF, 0, u64)`.
const VHOST_SET_OWNER: u64 = 0xAF01;
const VHOST_GET_FEATURES: u64 = 0x8008_AF00;

fn open(path: &str) -> Result<File, Fault> {
    OpenOptions::new().read(true).write(true).open(path).map_err(|e| io_fault(path, &e))
}

fn ioctl(fd: i32, request: u64, argument: u64) -> Result<i32, std::io::Error> {
    // SAFETY: the requests used with this function take a number, or a pointer the caller keeps valid.
    let result = unsafe { libc::ioctl(fd, request as _, argument) };
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) }
}

/// Only the interface: whether guests really run is found out by running one (the daemon's part).
pub fn kvm() -> Verdict {
    let device = open("/dev/kvm")?;
    let version = ioctl(device.as_raw_fd(), KVM_GET_API_VERSION, 0).map_err(|e| io_fault("ask for the API version", &e))?;
    if version != 12 {
        return Err(Fault::Broken(format!("API version {version}, not 12")));
    }
    let vm = ioctl(device.as_raw_fd(), KVM_CREATE_VM, 0).map_err(|e| io_fault("create a VM", &e))?;
    // SAFETY: the call made the descriptor.
    let vm = unsafe { OwnedFd::from_raw_fd(vm) };
    let vcpu = ioctl(vm.as_raw_fd(), KVM_CREATE_VCPU, 0).map_err(|e| io_fault("create a vCPU", &e))?;
    // SAFETY: the call made the descriptor.
    drop(unsafe { OwnedFd::from_raw_fd(vcpu) });
    works_with("API version 12, creates VMs and vCPUs", json!({ "apiVersion": version }))
}

pub fn vhost(path: &str) -> Verdict {
    let device = open(path)?;
    ioctl(device.as_raw_fd(), VHOST_SET_OWNER, 0).map_err(|e| io_fault("own the device", &e))?;
    let mut features = 0u64;
    ioctl(device.as_raw_fd(), VHOST_GET_FEATURES, &raw mut features as u64).map_err(|e| io_fault("read features", &e))?;
    works_with("opened and owned", json!({ "features": format!("{features:#x}") }))
}

/// Makes a tap of a name and gives its descriptor, which holds it.
pub fn make_tap(name: &str) -> Result<File, Fault> {
    let device = open("/dev/net/tun")?;
    // SAFETY: ifreq is plain data, filled within its bounds.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as i16;
    ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request as u64).map_err(|e| io_fault("make a tap", &e))?;
    Ok(device)
}

pub fn tun() -> Verdict {
    namespaces::enter_private_net()?;
    let _tap = make_tap("fluxvm-probe")?;
    match std::fs::exists("/sys/class/net").is_ok() && super::netlink::index_of("fluxvm-probe").is_some() {
        true => works("a tap was made in a private network namespace"),
        false => Err(Fault::Broken("the tap that was made does not show".into())),
    }
}

/// FICLONE between two unnamed files of the folder.
pub fn reflink(dir: &str) -> Verdict {
    let temporary = || {
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(dir).map_err(|e| io_fault("make a file there", &e))
    };
    let (from, to) = (temporary()?, temporary()?);
    from.set_len(1 << 16).map_err(|e| io_fault("size a file", &e))?;
    std::io::Write::write_all(&mut &from, &[7; 8192]).map_err(|e| io_fault("write a file", &e))?;
    match ioctl(to.as_raw_fd(), libc::FICLONE, from.as_raw_fd() as u64) {
        Ok(_) => works("blocks are shared between files"),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EXDEV | libc::EINVAL | libc::ENOTTY)) => {
            Err(Fault::Missing("the file system cannot share blocks between files".into()))
        }
        Err(_) => Err(fault("share blocks")),
    }
}
