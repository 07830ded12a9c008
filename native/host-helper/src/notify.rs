//! systemd's readiness protocol: one datagram to the socket that the service manager named (`sd_notify(3)`).
use crate::failure::{Failure, Outcome};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

pub fn send(socket: &str, state: &str) -> Outcome<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name.as_bytes()),
        None if socket.starts_with('/') => SocketAddr::from_pathname(socket),
        None => return Err(Failure::invalid("notify socket must be absolute or abstract")),
    }
    .map_err(|e| Failure::io("notify", "notify socket", &e))?;
    let datagram = UnixDatagram::unbound().map_err(|e| Failure::io("notify", "socket", &e))?;
    datagram.send_to_addr(state.as_bytes(), &address).map_err(|e| Failure::io("notify", "send", &e))?;
    Ok(())
}
