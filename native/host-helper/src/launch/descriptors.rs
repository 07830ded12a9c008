//! Standard streams and extra descriptors: opened with the launcher's rights, put in place just before the exec.
use super::logger::Log;
use super::spec::{Descriptor, LaunchSpec, Output};
use crate::failure::{Failure, Outcome};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

/// Where each descriptor must be when the program starts. Sources sit at 100 and above, out of the targets' way.
pub struct Planned(Vec<(OwnedFd, i32)>);

pub struct Opened {
    pub fds: Planned,
    pub logs: Vec<Log>,
}

pub fn open(spec: &LaunchSpec) -> Outcome<Opened> {
    let mut planned = Vec::new();
    let mut logs = Vec::new();
    planned.push((open_file("/dev/null", true, false)?, 0));
    let stdout = open_output(&spec.stdout, &mut logs)?;
    let stderr = match &spec.stderr {
        Output::Stdout => raise(stdout.try_clone().map_err(|e| Failure::io("log", "copy descriptor", &e))?)?,
        other => open_output(other, &mut logs)?,
    };
    planned.push((stdout, 1));
    planned.push((stderr, 2));
    for descriptor in &spec.fds {
        let source = match descriptor {
            Descriptor::Rotated { path, max_bytes, keep, .. } => open_log(path, *max_bytes, *keep, &mut logs)?,
            Descriptor::Open { path, write, .. } => open_file(path, true, *write)?,
        };
        planned.push((source, descriptor.target()));
    }
    Ok(Opened { fds: Planned(planned), logs })
}

fn open_output(output: &Output, logs: &mut Vec<Log>) -> Outcome<OwnedFd> {
    match output {
        Output::Null | Output::Stdout => open_file("/dev/null", false, true),
        Output::File { path } => OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(|e| Failure::io("log", path, &e))
            .and_then(|f| raise(f.into())),
        Output::Rotated { path, max_bytes, keep } => open_log(path, *max_bytes, *keep, logs),
    }
}

fn open_file(path: &str, read: bool, write: bool) -> Outcome<OwnedFd> {
    let file = OpenOptions::new().read(read).write(write).open(path).map_err(|e| Failure::io("descriptors", path, &e))?;
    raise(file.into())
}

fn open_log(path: &str, max_bytes: u64, keep: u32, logs: &mut Vec<Log>) -> Outcome<OwnedFd> {
    let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).map_err(|e| Failure::nix("log", "pipe", e))?;
    logs.push(Log::open(raise(read)?, path, max_bytes, keep)?);
    raise(write)
}

/// Moves a descriptor to 100 or above, close-on-exec.
fn raise(fd: OwnedFd) -> Outcome<OwnedFd> {
    use std::os::fd::FromRawFd;
    let moved = nix::fcntl::fcntl(&fd, nix::fcntl::FcntlArg::F_DUPFD_CLOEXEC(100)).map_err(|e| Failure::nix("descriptors", "move", e))?;
    // SAFETY: the call made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

/// Puts the descriptors in place and marks all others close-on-exec.
pub fn arrange(planned: Planned, status: i32) -> Outcome<()> {
    // SAFETY: only flags of descriptors are changed; everything open here is close-on-exec from now on.
    if unsafe { libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32) } != 0 {
        return Err(Failure::last("descriptors", "mark close-on-exec"));
    }
    debug_assert!(status >= 100);
    for (source, target) in planned.0 {
        // SAFETY: the source is open, the target below 64 is nobody's; dup2 leaves close-on-exec off.
        if unsafe { libc::dup2(super::keep(source), target) } < 0 {
            return Err(Failure::last("descriptors", "place"));
        }
    }
    Ok(())
}
