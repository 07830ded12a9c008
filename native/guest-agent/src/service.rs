//! The agent beside the image's own init: configuration from a file, the transport it names, orderly stop on SIGTERM.

use guest_agent::config::{self, Config, Transport};
use guest_agent::failure::describe;

use crate::agent::{Agent, Core, Ended, StopRequest};
use crate::sys::{self, Errno, OwnedFd, raw};
use crate::log;

const MAX_CONFIG_BYTES: usize = 1 << 20;
/// How long the channel's device may take to appear.
const DEVICE_WAIT_MS: u64 = 30_000;

pub fn run(mut args: impl Iterator<Item = &'static [u8]>) -> i32 {
    let (mut config_path, mut listen) = (None, None);
    while let Some(arg) = args.next() {
        match (arg, args.next()) {
            (b"--config", Some(path)) => config_path = Some(path),
            (b"--listen", Some(address)) => listen = address.strip_prefix(b"unix:"),
            _ => {
                log!("serve takes --config FILE and --listen unix:PATH");
                return 2;
            }
        }
    }
    let Some(config_path) = config_path else {
        log!("serve needs --config FILE");
        return 2;
    };
    let text = match sys::read_file(config_path, MAX_CONFIG_BYTES) {
        Ok(text) => text,
        Err(error) => {
            log!("cannot read the configuration: {}", describe(error.0));
            return 1;
        }
    };
    let config = match config::parse(&text) {
        Ok(config) => config,
        Err(failure) => {
            log!("the configuration is wrong: {}", failure.message);
            return 1;
        }
    };
    let _ = sys::write_file(b"/proc/self/oom_score_adj", b"-900", 0);
    match serve(config, config_path, listen) {
        Ok(()) => 0,
        Err(error) => {
            log!("cannot serve: {}", describe(error.0));
            1
        }
    }
}

fn serve(config: Config, config_path: &[u8], listen: Option<&[u8]>) -> sys::Result<()> {
    let mut core = Core::new(config, false, None)?;
    core.config_path = Some(config_path.to_vec());
    let mut agent = Agent::new(core)?;
    match listen {
        Some(path) => {
            let _ = sys::unlink(path, false);
            agent.listen(sys::listen_unix(path)?)?;
        }
        None => open_transport(&mut agent)?,
    }
    loop {
        match agent.run() {
            Ended::Terminated => return Ok(()),
            Ended::Stop(request) => stop_through_init(&request),
        }
    }
}

/// Opens what the configuration names: the port's device may have to appear first.
pub fn open_transport(agent: &mut Agent) -> sys::Result<()> {
    match agent.core.config.transport.clone() {
        Transport::Vsock(port) => {
            let listener = sys::listen_vsock(port)?;
            agent.listen(listener)
        }
        Transport::Port(name) => {
            let fd = open_port(&name)?;
            agent.connect(fd, true);
            Ok(())
        }
    }
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

fn open_port(name: &str) -> sys::Result<OwnedFd> {
    let events = sys::uevent_socket()?;
    let deadline = sys::clock_ms(sys::CLOCK_BOOTTIME) + DEVICE_WAIT_MS;
    loop {
        if let Some(fd) = find_port(name) {
            return Ok(fd);
        }
        let now = sys::clock_ms(sys::CLOCK_BOOTTIME);
        if now >= deadline {
            return Err(Errno(sys::errno::ENODEV as i32));
        }
        // A uevent says that something came; a missed one costs a second.
        sys::wait_readable(events.raw(), (deadline - now).min(1000));
        sys::drain(events.raw());
    }
}

/// Asks the image's init, in the way that it understands.
fn stop_through_init(request: &StopRequest) {
    let signal = if sys::exists(b"/run/systemd/system") {
        if request.restart { 34 + 5 } else { 34 + 4 } // systemd: SIGRTMIN+5 reboots, SIGRTMIN+4 powers off
    } else {
        if request.restart { sys::SIGNAL_TERM } else { sys::SIGNAL_USR2 } // busybox init
    };
    if let Err(error) = sys::kill(1, signal) {
        log!("cannot ask init to stop: {}", describe(error.0));
    }
}
