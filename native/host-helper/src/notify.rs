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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_reaches_a_path_and_an_abstract_name() {
        let path = std::env::temp_dir().join(format!("fluxvm-notify-{}", std::process::id()));
        let name = format!("fluxvm-notify-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let by_name = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        for (socket, to) in [(&by_path, path.to_str().unwrap().to_string()), (&by_name, format!("@{name}"))] {
            send(&to, "READY=1").unwrap();
            let mut buffer = [0u8; 64];
            let n = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..n], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(send(path.to_str().unwrap(), "READY=1").unwrap_err().code, "ENOENT");
        assert_eq!(send("relative", "READY=1").unwrap_err().kind, "invalid");
    }
}
