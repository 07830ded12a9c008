//! Namespaces, made the way the product makes them.
use super::{Fault, Verdict, classify, fault, works};
use crate::failure::Failure;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Uid, fork, getgid, getuid};

/// Any id that is not root; nobody's in Debian.
const UNPRIVILEGED: u32 = 65_534;

/// Runs `work` in a child; its fault, or none.
pub fn in_child(work: impl FnOnce() -> Result<(), Fault>) -> Result<(), Fault> {
    let (read, write) = nix::unistd::pipe().map_err(|_| fault("pipe"))?;
    // SAFETY: a probe process has one thread.
    match unsafe { fork() }.map_err(|_| fault("fork"))? {
        ForkResult::Child => {
            let (code, text) = match work() {
                Ok(()) => (0, String::new()),
                Err(Fault::Missing(text)) => (10, text),
                Err(Fault::Broken(text)) => (11, text),
            };
            let _ = nix::unistd::write(&write, text.as_bytes());
            // SAFETY: ends without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            drop(write);
            let mut text = String::new();
            let _ = std::io::Read::read_to_string(&mut std::fs::File::from(read), &mut text);
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => Ok(()),
                Ok(WaitStatus::Exited(_, 10)) => Err(Fault::Missing(text)),
                Ok(WaitStatus::Exited(_, 11)) => Err(Fault::Broken(text)),
                other => Err(Fault::Broken(format!("the probe's child ended as {other:?}"))),
            }
        }
    }
}

fn new_user_namespace() -> Result<(), Fault> {
    let (uid, gid) = (getuid(), getgid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|e| match e {
        nix::errno::Errno::ENOSPC => Fault::Broken("user.max_user_namespaces allows none".into()),
        nix::errno::Errno::EPERM => Fault::Broken("the kernel forbids it to users without privileges".into()),
        other => classify(&Failure::nix("probe", "new user namespace", other)),
    })?;
    for (name, text) in [("setgroups", "deny".to_string()), ("uid_map", format!("0 {uid} 1")), ("gid_map", format!("0 {gid} 1"))] {
        std::fs::write(format!("/proc/self/{name}"), text).map_err(|e| super::io_fault(&format!("write {name}"), &e))?;
    }
    Ok(())
}

/// As a user without privileges: root may always, which tells nothing.
pub fn user() -> Verdict {
    in_child(|| {
        if getuid().is_root() {
            let id = nix::unistd::Gid::from_raw(UNPRIVILEGED);
            nix::unistd::setgroups(&[]).map_err(|_| fault("drop groups"))?;
            nix::unistd::setresgid(id, id, id).map_err(|_| fault("drop gid"))?;
            let id = Uid::from_raw(UNPRIVILEGED);
            nix::unistd::setresuid(id, id, id).map_err(|_| fault("drop uid"))?;
            // Changing ids made /proc/self root's; the maps must be writable.
            nix::sys::prctl::set_dumpable(true).map_err(|_| fault("dumpable"))?;
        }
        new_user_namespace()?;
        unshare(CloneFlags::CLONE_NEWNS).map_err(|_| fault("new mount namespace inside"))
    })?;
    works("an unprivileged process makes one, with a mount namespace inside")
}

/// A network namespace of this process, by way of a user namespace where it is not root.
pub fn enter_private_net() -> Result<(), Fault> {
    if !getuid().is_root() {
        new_user_namespace()?;
    }
    unshare(CloneFlags::CLONE_NEWNET).map_err(|e| classify(&Failure::nix("probe", "new network namespace", e)))
}

pub fn net() -> Verdict {
    enter_private_net()?;
    match super::netlink::index_of("lo") {
        Some(_) => works("one was made, with its own loopback"),
        None => Err(Fault::Broken("the new namespace has no loopback".into())),
    }
}
