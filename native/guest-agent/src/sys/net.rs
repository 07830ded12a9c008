//! Sockets: the Unix and vsock listeners, and one netlink exchange.

use super::{Errno, Fd, OwnedFd, Result, errno, raw};
use crate::sys::call;

const AF_UNIX: u16 = 1;
const AF_NETLINK: u16 = 16;
const AF_VSOCK: u16 = 40;
const SOCK_STREAM: u32 = 1;
const SOCK_RAW: u32 = 3;
const SOCK_NONBLOCK: u32 = 0o4000;
const SOCK_CLOEXEC: u32 = 0o2000000;

fn socket(family: u16, kind: u32) -> Result<OwnedFd> {
    call!(raw::__NR_socket, family, kind | SOCK_CLOEXEC, 0).map(|fd| OwnedFd::new(fd as Fd))
}

fn bind_listen(socket: &OwnedFd, address: &[u8]) -> Result<()> {
    call!(raw::__NR_bind, socket.raw(), address.as_ptr(), address.len())?;
    call!(raw::__NR_listen, socket.raw(), 16).map(|_| ())
}

pub fn listen_unix(path: &[u8]) -> Result<OwnedFd> {
    if path.is_empty() || path.len() > 107 {
        return Err(Errno(errno::ENAMETOOLONG as i32));
    }
    let mut address = [0u8; 110];
    address[..2].copy_from_slice(&AF_UNIX.to_ne_bytes());
    address[2..2 + path.len()].copy_from_slice(path);
    let listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK)?;
    bind_listen(&listener, &address[..3 + path.len()])?;
    Ok(listener)
}

pub fn listen_vsock(port: u32) -> Result<OwnedFd> {
    let mut address = [0u8; 16];
    address[..2].copy_from_slice(&AF_VSOCK.to_ne_bytes());
    address[4..8].copy_from_slice(&port.to_ne_bytes());
    address[8..12].copy_from_slice(&u32::MAX.to_ne_bytes()); // any cid
    let listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK)?;
    bind_listen(&listener, &address)?;
    Ok(listener)
}

pub fn accept(listener: Fd) -> Result<OwnedFd> {
    call!(raw::__NR_accept4, listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC).map(|fd| OwnedFd::new(fd as Fd))
}

/// A socket of any family, for interface ioctls.
pub fn route_socket() -> Result<OwnedFd> {
    socket(AF_NETLINK, SOCK_RAW)
}

/// A netlink socket for kernel uevents, so that device arrival can be waited for.
pub fn uevent_socket() -> Result<OwnedFd> {
    const NETLINK_KOBJECT_UEVENT: u32 = 15;
    let fd = call!(raw::__NR_socket, AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT)?;
    let fd = OwnedFd::new(fd as Fd);
    let mut address = [0u8; 12];
    address[..2].copy_from_slice(&AF_NETLINK.to_ne_bytes());
    address[8..12].copy_from_slice(&1u32.to_ne_bytes());
    call!(raw::__NR_bind, fd.raw(), address.as_ptr(), address.len())?;
    Ok(fd)
}

pub fn send(socket: Fd, bytes: &[u8]) -> Result<usize> {
    call!(raw::__NR_sendto, socket, bytes.as_ptr(), bytes.len(), 0, 0, 0)
}

pub fn receive(socket: Fd, into: &mut [u8]) -> Result<usize> {
    call!(raw::__NR_recvfrom, socket, into.as_mut_ptr(), into.len(), 0, 0, 0)
}

/// Waits until `fd` has something to read, at most `timeout_ms`.
pub fn wait_readable(fd: Fd, timeout_ms: u64) -> bool {
    #[repr(C)]
    struct PollFd {
        fd: i32,
        events: i16,
        revents: i16,
    }
    let mut poll = PollFd { fd, events: 1, revents: 0 };
    let timeout = super::Timespec { sec: (timeout_ms / 1000) as i64, nsec: (timeout_ms % 1000 * 1_000_000) as i64 };
    call!(raw::__NR_ppoll, &raw mut poll, 1, &raw const timeout, 0, 8) == Ok(1)
}
