//! The network where the agent is init: addresses from the config disk, no DHCP. And the files that name things.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use guest_agent::config::{Config, Interface, Network};
use guest_agent::failure::describe;
use guest_agent::hex;
use guest_agent::netlink::{self, Address};

use crate::init::{devices, report};
use crate::log;
use crate::sys::{self, OwnedFd, raw};

const INTERFACE_WAIT_MS: u64 = 1000;
const MARK: &str = "# Written by the FluxVM guest agent at each boot.\n";

pub fn apply(config: &Config) {
    match &config.network {
        Some(network) => apply_addresses(network),
        None => apply_addresses(&Network::default()),
    }
    write_names(config);
}

/// Loopback, the interfaces of the configuration, and who resolves names.
pub fn apply_addresses(network: &Network) {
    let Ok(socket) = sys::route_socket() else {
        log!("the kernel has no network");
        return;
    };
    request(&socket, "bring up lo", &netlink::link_up(1, None));
    let mut used = Vec::new();
    for interface in &network.interfaces {
        apply_interface(&socket, interface, &mut used);
    }
    write_resolv_conf(network);
}

fn request(socket: &OwnedFd, what: &str, message: &[u8]) {
    let mut reply = [0u8; 4096];
    let answer = sys::send(socket.raw(), message).and_then(|_| sys::receive(socket.raw(), &mut reply));
    match answer {
        Err(error) => log!("cannot {}: {}", what, describe(error.0)),
        Ok(count) => match netlink::parse_ack(&reply[..count]) {
            Some(0) | None => {}
            Some(number) => log!("cannot {}: {}", what, describe(number)),
        },
    }
}

/// The name and number of the interface meant, once it is there.
fn find_interface(wanted: &Interface, used: &[u32]) -> Option<(String, u32)> {
    let mac = wanted.mac.map(|m| m.iter().map(|b| hex::encode(&[*b])).collect::<Vec<_>>().join(":"));
    let mut names = sys::list_directory(b"/sys/class/net", 256).ok()?;
    names.sort();
    names.into_iter().find_map(|name| {
        let read = |file: &[u8]| sys::read_file(&[b"/sys/class/net/", &name[..], file].concat(), 256).ok();
        let index: u32 = core::str::from_utf8(read(b"/ifindex")?.trim_ascii()).ok()?.parse().ok()?;
        let matches = match (&mac, &wanted.name) {
            (Some(mac), _) => read(b"/address")?.trim_ascii() == mac.as_bytes(),
            (None, Some(wanted)) => name == wanted.as_bytes(),
            (None, None) => name != b"lo",
        };
        (matches && !used.contains(&index)).then(|| (String::from_utf8_lossy(&name).into_owned(), index))
    })
}

fn apply_interface(socket: &OwnedFd, interface: &Interface, used: &mut Vec<u32>) {
    let Some((name, index)) = devices::wait_for(INTERFACE_WAIT_MS, || find_interface(interface, used)) else {
        log!("a network interface of the configuration is not there");
        return;
    };
    used.push(index);
    request(socket, &format!("bring up {name}"), &netlink::link_up(index, interface.mtu));
    for address in [&interface.address, &interface.address6].into_iter().flatten() {
        match Address::parse_with_prefix(address) {
            Some((parsed, prefix)) => request(socket, &format!("give {name} {address}"), &netlink::add_address(index, &parsed, prefix)),
            None => log!("{} is no address", address),
        }
    }
    for gateway in [&interface.gateway, &interface.gateway6].into_iter().flatten() {
        match Address::parse(gateway) {
            Some(parsed) => request(socket, &format!("route through {gateway}"), &netlink::add_default_route(index, &parsed)),
            None => log!("{} is no address", gateway),
        }
    }
}

/// Replaces what the image brought, which names the servers of whoever built it.
pub fn write_resolv_conf(network: &Network) {
    if network.nameservers.is_empty() {
        return;
    }
    let mut text = String::from(MARK);
    if !network.search.is_empty() {
        text += &format!("search {}\n", network.search.join(" "));
    }
    for server in &network.nameservers {
        text += &format!("nameserver {server}\n");
    }
    let path = b"/etc/resolv.conf";
    if sys::stat(path, false).is_ok_and(|s| s.kind() == raw::S_IFLNK) {
        let _ = sys::unlink(path, false); // a link leads to a service that does not run here
    }
    if sys::write_file(path, text.as_bytes(), 0o644).is_ok() {
        return;
    }
    // A read-only root: a file of ours over it.
    let ours = b"/run/fluxvm/resolv.conf";
    let _ = sys::mkdir(b"/run/fluxvm", 0o755);
    let result = sys::write_file(ours, text.as_bytes(), 0o644).and_then(|()| sys::mount(ours, path, b"", raw::MS_BIND, b""));
    report("write /etc/resolv.conf", result);
}

/// Host name and hosts file, unless somebody in the guest made them their own.
fn write_names(config: &Config) {
    let _ = sys::write_file(b"/etc/hostname", format!("{}\n", config.hostname).as_bytes(), 0o644);
    let existing = sys::read_file(b"/etc/hosts", 1 << 16).unwrap_or_default();
    if !existing.trim_ascii().is_empty() && !existing.starts_with(MARK.as_bytes()) {
        return;
    }
    let mut text = format!("{MARK}127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n");
    let first = config.network.iter().flat_map(|n| &n.interfaces).find_map(|i| i.address.as_ref());
    let own = first.and_then(|a| a.split('/').next()).unwrap_or("127.0.1.1");
    text += &format!("{own} {}\n", config.hostname);
    let _ = sys::write_file(b"/etc/hosts", text.as_bytes(), 0o644);
}
