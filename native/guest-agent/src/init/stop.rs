//! The end of a guest whose init is the agent.

use guest_agent::signals;

use crate::agent::{Agent, StopRequest};
use crate::init::mounts;
use crate::log;
use crate::sys;

const KILL_WAIT_MS: u64 = 2000;

/// The image's program gets its signal and the grace, everybody else the rest of it; then nobody is left.
pub fn stop(agent: &mut Agent, request: &StopRequest, stop_signal: &str) {
    let signal = signals::number_of(stop_signal).unwrap_or(sys::SIGNAL_TERM);
    let deadline = agent.core.now_ms + request.grace_ms;
    if let Some(workload) = agent.core.execs.values().find(|e| e.id == "workload" && !e.is_ended()) {
        let _ = workload.signal(signal, false);
        agent.run_until(deadline, |core| !core.execs.values().any(|e| e.id == "workload" && !e.is_ended()));
    }
    let _ = sys::kill(-1, sys::SIGNAL_TERM);
    agent.run_until(deadline.min(agent.core.now_ms + request.grace_ms), |core| core.execs.values().all(|e| e.is_ended()));
    let _ = sys::kill(-1, sys::SIGNAL_KILL);
    agent.run_until(agent.core.now_ms + KILL_WAIT_MS, |core| core.execs.values().all(|e| e.is_ended()));
    log!("{}", if request.restart { "restarting" } else { "powering off" });
}

/// Writes back what is cached and ends the machine.
pub fn halt(by_reset: bool) -> ! {
    sys::sync();
    mounts::unmount_all();
    sys::sync();
    if !by_reset {
        sys::reboot(sys::REBOOT_POWER_OFF);
    }
    // Also where the machine has no power switch.
    sys::reboot(sys::REBOOT_AUTOBOOT);
    sys::exit(0)
}
