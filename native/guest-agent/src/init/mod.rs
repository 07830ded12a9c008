//! PID 1 of the initrd: from the kernel to a served guest.
//!
//! ```text
//! mount /proc /sys /dev ─► modules ─► config disk ─► entropy, clock, host name ─► root disk ─► grow ─► into the root
//!                                        │ none: plain guest, serves nobody      │ none: stay in the initrd
//!      ┌─────────────────────────────────────────────────────────────────────────┘
//!      ├─ image init, systemd: unit file in /run, exec init
//!      ├─ image init, other:   fork a serving agent, exec init
//!      └─ agent init:          mounts, network, workload, serve, reap ─► stop: TERM, KILL, sync, unmount, power off
//! ```
//! No step sleeps: what has to appear is waited for by kernel events. A step that fails is said on the console and the
//! boot goes on where that makes sense, since a guest that answers can be repaired.

mod config_disk;
mod devices;
mod image_init;
mod mounts;
mod network;
mod stop;

use alloc::string::ToString;
use alloc::vec::Vec;

use guest_agent::config::{Config, Init, Root, Transport};
use guest_agent::failure::describe;

use crate::agent::{Agent, Core, Ended, StopRequest, ops};
use crate::log;
use crate::rt::Start;
use crate::sys::{self, raw};

const ROOT_WAIT_MS: u64 = 10_000;
/// From the writing of the configuration to its reading, at most.
const LONGEST_START_MS: u64 = 600_000;

pub fn run(start: &Start) -> ! {
    mounts::mount_kernel();
    mounts::open_console();
    devices::load_modules(b"/etc/fluxvm/modules");
    let (config, text) = config_disk::find();
    apply(&config);
    load_more_modules(&config);
    let root = config.root.as_ref().and_then(enter_root);
    if root.is_some() && image_init::is_wanted(config.init) {
        image_init::start(&config, &text, start.env);
        log!("the image's init could not be run; the agent takes its place");
    }
    serve(config)
}

/// While the initrd is still there: what this guest's devices need, and, in no hurry, what its image may use.
fn load_more_modules(config: &Config) {
    if matches!(config.transport, Transport::Vsock(_)) {
        devices::load_modules(b"/etc/fluxvm/modules.vsock");
    }
    if devices::has_disk(b"fluxvm-seed") {
        devices::load_modules(b"/etc/fluxvm/modules.seed");
    }
    devices::load_modules_aside(b"/etc/fluxvm/modules.late");
}

/// What needs no disk.
fn apply(config: &Config) {
    if !config.entropy.is_empty() {
        report("add entropy", sys::add_entropy(&config.entropy));
    }
    if let Some(wall_ms) = config.wall_clock_ms {
        // The configuration was written before the machine started, so its time is a little behind. A machine with a clock
        // of its own is right already; one without, or with a wrong one, is not.
        let now = sys::clock_ms(sys::CLOCK_REALTIME);
        if now + 500 < wall_ms || now > wall_ms + LONGEST_START_MS {
            report("set the clock", sys::clock_set_ms(wall_ms));
        }
    }
    report("set the host name", sys::set_hostname(config.hostname.as_bytes()));
}

pub fn report(what: &str, result: sys::Result<()>) {
    if let Err(error) = result {
        log!("cannot {}: {}", what, describe(error.0));
    }
}

/// Mounts the root disk, grows it and makes it `/`.
fn enter_root(root: &Root) -> Option<()> {
    let Some(disk) = devices::wait_for_disk(root.serial.as_bytes(), ROOT_WAIT_MS) else {
        log!("there is no disk with serial {}", root.serial);
        return None;
    };
    let device = [b"/dev/", &disk[..]].concat();
    let _ = sys::mkdir(b"/newroot", 0o755);
    let flags = if root.readonly { raw::MS_RDONLY } else { 0 } | raw::MS_NOATIME;
    if let Err(error) = sys::mount(&device, b"/newroot", root.fstype.as_bytes(), flags, b"") {
        log!("cannot mount the root disk as {}: {}", root.fstype, describe(error.0));
        return None;
    }
    if root.grow && !root.readonly && root.fstype == "ext4" {
        report("grow the root file system", devices::grow_ext4(&disk, b"/newroot"));
    }
    match mounts::switch_root() {
        Ok(()) => Some(()),
        Err(error) => {
            log!("cannot enter the root disk: {}", describe(error.0));
            None
        }
    }
}

fn serve(config: Config) -> ! {
    mounts::mount_for_programs();
    network::apply(&config);
    let workload = config.workload.clone().filter(|w| !w.argv.is_empty());
    let console = sys::open(b"/dev/console", raw::O_WRONLY | raw::O_NONBLOCK | raw::O_NOCTTY).ok();
    let has_token = !config.token.is_empty();
    let by_reboot = config.power_off_by_reboot;
    let stop_signal = workload.as_ref().map(|w| w.stop_signal.to_string()).unwrap_or_default();
    let agent = Core::new(config, true, console).and_then(Agent::new);
    let mut agent = match agent {
        Ok(agent) => agent,
        Err(error) => {
            log!("cannot serve: {}", describe(error.0));
            stop::halt(true)
        }
    };
    if has_token {
        report("open the channel to the host", agent.open_transport());
    }
    if let Some(failure) = workload.and_then(|w| ops::start_workload(&mut agent.core, &w).err()) {
        log!("{}", failure.message);
        agent.core.workload_error = Some(failure.message);
    }
    let request = match agent.run() {
        Ended::Stop(request) => request,
        Ended::Terminated => StopRequest { restart: false, grace_ms: 0 },
    };
    stop::stop(&mut agent, &request, &stop_signal);
    stop::halt(request.restart || by_reboot)
}

pub fn is_auto_or(wanted: Init, also: Init) -> bool {
    wanted == Init::Auto || wanted == also
}

/// Paths that exist, of some.
pub fn first_existing(paths: &[&'static [u8]]) -> Option<Vec<u8>> {
    paths.iter().find(|p| sys::exists(p)).map(|p| p.to_vec())
}
