//! The agent beside the image's own init: configuration from a file, the transport it names, orderly stop on SIGTERM.

use guest_agent::config::{self, Config};
use guest_agent::failure::describe;

use crate::agent::{Agent, Core, Ended, StopRequest};
use crate::log;
use crate::sys;

const MAX_CONFIG_BYTES: usize = 1 << 20;

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
        None => agent.open_transport()?,
    }
    loop {
        match agent.run() {
            Ended::Terminated => return Ok(()),
            Ended::Stop(request) => stop_through_init(&request),
        }
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
