//! The few rtnetlink requests that probes need: a veth, clsact, a classifier. See rtnetlink(7).
use super::Fault;
use crate::failure::Failure;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NLM_F_REQUEST_ACK: u16 = 0x5;
const NLM_F_CREATE_EXCL: u16 = 0x600;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWQDISC: u16 = 36;
const RTM_NEWTFILTER: u16 = 44;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TC_H_CLSACT: u32 = 0xFFFF_FFF1;
const TC_H_CLSACT_INGRESS: u32 = 0xFFFF_FFF2;
const ETH_P_ALL: u16 = 3;

pub fn index_of(name: &str) -> Option<u32> {
    let name = std::ffi::CString::new(name).ok()?;
    // SAFETY: the name ends with zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => None,
        index => Some(index),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + value.len());
    out.extend(((4 + value.len()) as u16).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn text(kind: u16, value: &str) -> Vec<u8> {
    attribute(kind, &[value.as_bytes(), b"\0"].concat())
}

/// Sends one request and reads its acknowledgement.
fn request(what: &str, kind: u16, body: &[u8]) -> Result<(), Fault> {
    let fail = |errno: i32| super::classify(&Failure::errno("probe", errno, what));
    // SAFETY: no memory is passed; a result of zero or more is a descriptor that nobody else owns.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(super::fault("netlink"));
    }
    // SAFETY: see above.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let mut message = Vec::new();
    message.extend(((16 + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST_ACK | NLM_F_CREATE_EXCL).to_ne_bytes());
    message.extend([0u8; 8]);
    message.extend(body);
    let mut reply = [0u8; 4096];
    // SAFETY: both buffers have the lengths passed.
    let n = unsafe {
        libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0);
        libc::recv(socket.as_raw_fd(), reply.as_mut_ptr().cast(), reply.len(), 0)
    };
    if n < 20 {
        return Err(super::fault(what));
    }
    let errno = -i32::from_ne_bytes([reply[16], reply[17], reply[18], reply[19]]);
    if errno == 0 { Ok(()) } else { Err(fail(errno)) }
}

/// struct ifinfomsg: family, type, index, flags, change.
fn link_header(index: u32, flags: u32) -> Vec<u8> {
    [0u32, index, flags, flags].iter().flat_map(|w| w.to_ne_bytes()).collect()
}

/// A veth of that name and its peer, both up.
pub fn make_veth(name: &str) -> Result<u32, Fault> {
    let info = attribute(IFLA_LINKINFO, &text(IFLA_INFO_KIND, "veth"));
    request("make a veth", RTM_NEWLINK, &[link_header(0, libc::IFF_UP as u32), text(IFLA_IFNAME, name), info].concat())?;
    index_of(name).ok_or_else(|| Fault::Broken("the veth that was made does not show".into()))
}

/// struct tcmsg: family, index, handle, parent, info.
fn tc_header(index: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, index, handle, parent, info].iter().flat_map(|w| w.to_ne_bytes()).collect()
}

pub fn add_clsact(index: u32) -> Result<(), Fault> {
    request("add clsact", RTM_NEWQDISC, &[tc_header(index, 0xFFFF_0000, TC_H_CLSACT, 0), text(TCA_KIND, "clsact")].concat())
}

/// A direct-action eBPF classifier at ingress.
pub fn add_classifier(index: u32, program: i32) -> Result<(), Fault> {
    let flags = attribute(TCA_BPF_FLAGS, &1u32.to_ne_bytes());
    let options = [attribute(TCA_BPF_FD, &program.to_ne_bytes()), text(TCA_BPF_NAME, "probe"), flags].concat();
    let info = 1u32 << 16 | u32::from(ETH_P_ALL.to_be());
    let body = [tc_header(index, 0, TC_H_CLSACT_INGRESS, info), text(TCA_KIND, "bpf"), attribute(TCA_OPTIONS, &options)].concat();
    request("attach a classifier", RTM_NEWTFILTER, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_but_their_length_is_not() {
        assert_eq!(attribute(7, b"abc"), [7u16.to_ne_bytes().as_slice(), &7u16.to_ne_bytes(), b"abc\0"].concat());
        assert_eq!(text(1, "veth").len(), 12);
    }
}
