//! Where the host reaches us: an AF_VSOCK listener, or a virtio-serial port by name, which may appear later.

use guest_agent::config::Transport;

use crate::agent::{Agent, TOKEN_DEVICES};
use crate::sys::{self, OwnedFd, raw};

/// A port that is not there yet, and the socket that tells of new devices.
pub struct AwaitedPort {
    name: alloc::string::String,
    events: OwnedFd,
}

fn find_port(name: &str) -> Option<OwnedFd> {
    let ports = b"/sys/class/virtio-ports/";
    for port in sys::list_directory(ports, 256).ok()? {
        let label = sys::read_file(&[ports, &port[..], b"/name"].concat(), 256).unwrap_or_default();
        if label.trim_ascii() == name.as_bytes() {
            return sys::open(&[b"/dev/", &port[..]].concat(), raw::O_RDWR | raw::O_NONBLOCK).ok();
        }
    }
    None
}

impl Agent {
    /// Opens what the configuration names, or begins to wait for it.
    pub fn open_transport(&mut self) -> sys::Result<()> {
        match self.core.config.transport.clone() {
            Transport::Vsock(port) => {
                let listener = sys::listen_vsock(port)?;
                self.listen(listener)
            }
            Transport::Port(name) => {
                let events = sys::uevent_socket()?;
                sys::epoll_add(self.core.epoll.raw(), events.raw(), sys::EPOLLIN, TOKEN_DEVICES)?;
                self.awaited_port = Some(AwaitedPort { name, events });
                self.look_for_port();
                Ok(())
            }
        }
    }

    /// Called for each device that comes, until ours is there.
    pub fn look_for_port(&mut self) {
        let Some(awaited) = &self.awaited_port else { return };
        sys::drain(awaited.events.raw());
        if let Some(fd) = find_port(&awaited.name) {
            self.awaited_port = None;
            self.connect(fd, true);
        }
    }
}
