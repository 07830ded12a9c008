//! `launch`: starts one process so that it outlives everybody, with nothing that it does not need.
//!
//! Standard input carries the specification (JSON, to the end), standard output is the status pipe: JSON lines
//! `{"pid":…, "loggerPid":…, "skipped":[…]}` and, if a step fails, `{"failure":{step, errno, …}}`. The status pipe is
//! closed by the exec, so its end without a failure means that the program runs.
//!
//! ```text
//! helper ── launch ─┬─ logger (if a log is rotated): in the cgroup, ends when the last writer is gone
//!                   └─ the process: own session, cgroup, namespaces, root, no privileges → exec
//! ```
//! `launch` ends at once; both children go to the helper (a subreaper) or, when that is gone, to init.
//! A process whose reader has gone away before the exec ends instead: nobody would know of it.
mod descriptors;
mod logger;
mod privileges;
mod root;
pub mod spec;

use crate::failure::{Failure, Outcome};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{ForkResult, fork, getgid, getuid, setsid};
use spec::LaunchSpec;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

/// What cannot be done here and was left out.
type Skipped = Vec<String>;

struct Prepared {
    spec: LaunchSpec,
    rootless: bool,
    status: File,
    skipped: Skipped,
    mount_namespace: bool,
}

pub fn main() -> i32 {
    // SAFETY: descriptor 1 is ours alone from here on; standard output is never printed to in this mode.
    let status = match nix::fcntl::fcntl(unsafe { std::os::fd::BorrowedFd::borrow_raw(1) }, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(100)) {
        // SAFETY: the call made the descriptor.
        Ok(fd) => unsafe { File::from_raw_fd(fd) },
        Err(_) => return 1,
    };
    // SAFETY: see above; /dev/null takes its place later.
    unsafe { libc::close(1) };
    reset_signals();
    let mut report = status.try_clone().ok();
    match read_spec().and_then(|spec| run(spec, status)) {
        Ok(()) => 0,
        Err(failure) => {
            if let Some(report) = report.as_mut() {
                tell(report, &serde_json::json!({ "failure": failure }));
            }
            1
        }
    }
}

fn tell(status: &mut File, line: &serde_json::Value) {
    let _ = status.write_all(format!("{line}\n").as_bytes());
}

fn reset_signals() {
    // SAFETY: only default dispositions and an empty mask are set, on a zeroed set of the right size.
    unsafe {
        for signal in 1..65 {
            libc::signal(signal, libc::SIG_DFL);
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
}

fn read_spec() -> Outcome<LaunchSpec> {
    let mut text = String::new();
    std::io::stdin().take(crate::frame::MAX_FRAME_BYTES as u64).read_to_string(&mut text).map_err(|e| Failure::io("spec", "read", &e))?;
    let spec: LaunchSpec = serde_json::from_str(&text).map_err(|e| Failure::of("invalid", "spec", e.to_string()))?;
    spec::check(&spec).map_err(|message| Failure::of("invalid", "spec", message))?;
    Ok(spec)
}

fn run(spec: LaunchSpec, mut status: File) -> Outcome<()> {
    let rootless = !getuid().is_root();
    let mut skipped = Skipped::new();
    let mut spec = spec;
    if rootless {
        leave_out_what_needs_root(&mut spec, &mut skipped);
    }
    let outputs = descriptors::open(&spec)?;
    let logger_pid = match outputs.logs.is_empty() {
        true => None,
        false => Some(logger::start(outputs.logs, &spec.cgroups, status.as_raw_fd())?),
    };
    let mount_namespace = spec.root.is_none() || !rootless || enter_user_namespace(&mut skipped)?;
    if spec.namespaces.pid && (!rootless || spec.root.is_some() && mount_namespace) {
        unshare(CloneFlags::CLONE_NEWPID).map_err(|e| Failure::nix("namespace", "new pid namespace", e))?;
    } else if spec.namespaces.pid {
        skipped.push("namespaces.pid".into());
    }
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|e| Failure::nix("fork", "fork", e))? {
        ForkResult::Parent { child } => {
            tell(&mut status, &serde_json::json!({ "pid": child.as_raw(), "loggerPid": logger_pid, "skipped": skipped }));
            Ok(())
        }
        ForkResult::Child => {
            let report = status.try_clone();
            let failure = become_process(Prepared { spec, rootless, status, skipped, mount_namespace }, outputs.fds);
            if let Ok(mut report) = report {
                tell(&mut report, &serde_json::json!({ "failure": failure }));
            }
            // SAFETY: ends without running the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
    }
}

fn leave_out_what_needs_root(spec: &mut LaunchSpec, skipped: &mut Skipped) {
    let own = |c: &spec::Credentials| c.uid == getuid().as_raw() && c.gid == getgid().as_raw() && c.groups.is_empty();
    if spec.credentials.take().is_some_and(|c| !own(&c)) {
        skipped.push("credentials".into());
    }
    spec.cgroups.retain(|dir| {
        let writable = nix::unistd::access(format!("{dir}/cgroup.procs").as_str(), nix::unistd::AccessFlags::W_OK).is_ok();
        if !writable {
            skipped.push(format!("cgroup:{dir}"));
        }
        writable
    });
}

/// A user namespace in which the caller is itself and may mount. False (and noted) when the host forbids it.
fn enter_user_namespace(skipped: &mut Skipped) -> Outcome<bool> {
    let (uid, gid) = (getuid(), getgid());
    if unshare(CloneFlags::CLONE_NEWUSER).is_err() {
        skipped.push("root".into());
        return Ok(false);
    }
    let write = |name: &str, text: String| std::fs::write(format!("/proc/self/{name}"), text).map_err(|e| Failure::io("namespace", name, &e));
    write("setgroups", "deny".into())?;
    write("uid_map", format!("{uid} {uid} 1"))?;
    write("gid_map", format!("{gid} {gid} 1"))?;
    Ok(true)
}

/// Never returns when all goes well.
fn become_process(mut prepared: Prepared, fds: descriptors::Planned) -> Failure {
    match prepare(&mut prepared, fds).and_then(|exec| exec_if_watched(&prepared, &exec)) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

struct Exec {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
}

fn prepare(prepared: &mut Prepared, fds: descriptors::Planned) -> Outcome<Exec> {
    let Prepared { spec, rootless, skipped, mount_namespace, status } = prepared;
    let before = skipped.len();
    setsid().map_err(|e| Failure::nix("session", "new session", e))?;
    join_cgroups(&spec.cgroups)?;
    privileges::set_oom_score(spec.oom_score_adj, skipped)?;
    enter_namespaces(spec, *rootless, skipped)?;
    if let (Some(root), true) = (&spec.root, *mount_namespace) {
        root::enter(root, spec.credentials.as_ref())?;
    }
    let cwd = spec.cwd.as_deref().unwrap_or("/");
    nix::unistd::chdir(cwd).map_err(|e| Failure::nix("cwd", "change directory", e))?;
    privileges::set_limits(&spec.rlimits, skipped)?;
    privileges::drop(spec.credentials.as_ref(), &spec.keep_capabilities)?;
    privileges::confine();
    if skipped.len() > before {
        tell(status, &serde_json::json!({ "skipped": &skipped[before..] }));
    }
    descriptors::arrange(fds, status.as_raw_fd())?;
    let text = |t: String| CString::new(t).map_err(|_| Failure::of("invalid", "exec", "zero byte"));
    Ok(Exec {
        program: text(spec.argv[0].clone())?,
        argv: spec.argv.iter().cloned().map(text).collect::<Outcome<_>>()?,
        env: spec.env.iter().map(|(k, v)| text(format!("{k}={v}"))).collect::<Outcome<_>>()?,
    })
}

fn exec_if_watched(prepared: &Prepared, exec: &Exec) -> Outcome<std::convert::Infallible> {
    let mut poll = libc::pollfd { fd: prepared.status.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: one valid pollfd is passed.
    if unsafe { libc::poll(&mut poll, 1, 0) } > 0 && poll.revents & libc::POLLERR != 0 {
        return Err(Failure::of("system", "exec", "nobody waits for the process any more"));
    }
    match nix::unistd::execve(&exec.program, &exec.argv, &exec.env) {
        Ok(never) => Ok(never),
        Err(e) => Err(Failure::nix("exec", &exec.program.to_string_lossy(), e)),
    }
}

fn join_cgroups(dirs: &[String]) -> Outcome<()> {
    dirs.iter().try_for_each(|dir| std::fs::write(format!("{dir}/cgroup.procs"), "0").map_err(|e| Failure::io("cgroup", dir, &e)))
}

fn enter_namespaces(spec: &LaunchSpec, rootless: bool, skipped: &mut Skipped) -> Outcome<()> {
    let mut flags = CloneFlags::empty();
    flags.set(CloneFlags::CLONE_NEWNS, spec.root.is_some() && !skipped.iter().any(|s| s == "root"));
    flags.set(CloneFlags::CLONE_NEWIPC, spec.namespaces.ipc);
    flags.set(CloneFlags::CLONE_NEWUTS, spec.namespaces.uts);
    flags.set(CloneFlags::CLONE_NEWNET, spec.namespaces.net.as_deref() == Some("new"));
    if let Some(path) = spec.namespaces.net.as_deref().filter(|n| *n != "new") {
        let file = File::open(path).map_err(|e| Failure::io("namespace", "open network namespace", &e))?;
        setns(&file, CloneFlags::CLONE_NEWNET).map_err(|e| Failure::nix("namespace", "join network namespace", e))?;
    }
    match unshare(flags) {
        Ok(()) => Ok(()),
        Err(nix::errno::Errno::EPERM) if rootless && spec.root.is_none() => {
            skipped.push("namespaces".into());
            Ok(())
        }
        Err(e) => Err(Failure::nix("namespace", "new namespaces", e)),
    }
}

/// A descriptor as its number, so that it survives to the exec.
fn keep(fd: OwnedFd) -> i32 {
    fd.into_raw_fd()
}
