//! The cell that hostile bytes are handled in.
//!
//! ```text
//! supervisor ── stage ── worker (pid 1 of its pid namespace)
//!     │           │         no_new_privs, few capabilities in its own user namespace, Landlock, seccomp, rlimits
//!     │           └ mount namespace with nothing but the view as its root; then user, network, ipc, uts, pid namespaces
//!     └ writes the id maps; parses nothing
//! ```
//! As root, the mounts are made before the user namespace is, so that inside nobody has power over them, and the ids
//! are shifted to a range that no account has: root in the cell is nobody outside. Each process dies with its parent.
use super::failure::{Failure, Kind, Outcome, last_errno};
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Gid, Pid, Uid, chdir, fork, pivot_root, setgroups, setresgid, setresuid};
use seccompiler::{BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// First outside id of the shifted range, and its length.
const SHIFT: u32 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdMap {
    /// Ids 0 to 2^30 of the cell are SHIFT and following outside.
    Shifted,
    /// Every id is itself: we are in a user namespace that lacks the range.
    Same(String, String),
    /// Not root: one id, which is root inside.
    Single,
}

impl IdMap {
    pub fn choose() -> IdMap {
        if !Uid::effective().is_root() {
            return IdMap::Single;
        }
        let uids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        let gids = fs::read_to_string("/proc/self/gid_map").unwrap_or_default();
        if covers_shift(&uids) && covers_shift(&gids) { IdMap::Shifted } else { IdMap::Same(identity(&uids), identity(&gids)) }
    }

    /// The id outside of root inside.
    pub fn root(&self) -> (Uid, Gid) {
        match self {
            IdMap::Shifted => (Uid::from_raw(SHIFT), Gid::from_raw(SHIFT)),
            IdMap::Same(..) => (Uid::from_raw(0), Gid::from_raw(0)),
            IdMap::Single => (Uid::effective(), Gid::effective()),
        }
    }

    fn write(&self, pid: Pid) -> std::io::Result<()> {
        let shifted = format!("0 {SHIFT} {SHIFT}\n");
        let (uids, gids) = match self {
            IdMap::Shifted => (shifted.clone(), shifted),
            IdMap::Same(uids, gids) => (uids.clone(), gids.clone()),
            IdMap::Single => {
                fs::write(format!("/proc/{pid}/setgroups"), "deny")?;
                (format!("0 {} 1\n", Uid::effective()), format!("0 {} 1\n", Gid::effective()))
            }
        };
        fs::write(format!("/proc/{pid}/uid_map"), uids)?;
        fs::write(format!("/proc/{pid}/gid_map"), gids)
    }
}

fn extents(map: &str) -> Vec<(u64, u64)> {
    map.lines()
        .filter_map(|line| {
            let mut fields = line.split_whitespace().map(|f| f.parse::<u64>().ok());
            Some((fields.next()??, fields.nth(1)??))
        })
        .collect()
}

fn covers_shift(map: &str) -> bool {
    extents(map).iter().any(|&(first, count)| first <= u64::from(SHIFT) && first + count >= 2 * u64::from(SHIFT))
}

fn identity(map: &str) -> String {
    extents(map).iter().map(|(first, count)| format!("{first} {first} {count}\n")).collect()
}

/// What the worker sees as its root directory.
pub enum View<'a> {
    /// The staging directory itself.
    Staging(&'a Path),
    /// An empty file system at `at` with the host's libraries, mke2fs, the staging directory and the disk's file.
    Mke2fs { at: &'a Path, tool: &'a Path, staging: &'a Path, disk: &'a Path },
}

/// Runs `body` in the cell; its result is the exit code. `inherited` are dropped in the supervisor once started.
pub fn run(view: View<'_>, ids: &IdMap, body: impl FnOnce() -> i32) -> Outcome<i32> {
    let fail = |e| Failure::errno("make a pipe", e);
    let (ready_read, ready_write) = nix::unistd::pipe().map_err(fail)?;
    let (go_read, go_write) = nix::unistd::pipe().map_err(fail)?;
    let (errors_read, errors_write) = nix::unistd::pipe().map_err(fail)?;
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|e| Failure::errno("fork", e))? {
        ForkResult::Child => {
            drop((ready_read, go_write, errors_read));
            let code = match stage(&view, ids, Gate { ready: ready_write, go: go_read }, body) {
                Ok(code) => code,
                Err(failure) => {
                    let _ = fs::File::from(errors_write).write_all(failure.message.as_bytes());
                    STAGE_FAILED
                }
            };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => {
            drop((ready_write, go_read, errors_write));
            let mapped = if wait_byte(ready_read) { ids.write(child).map_err(|e| Failure::io("write the id maps", &e)) } else { Ok(()) };
            if mapped.is_ok() {
                let _ = fs::File::from(go_write).write_all(b"g");
            } else {
                drop(go_write);
            }
            let code = wait(child)?;
            mapped?;
            if code == STAGE_FAILED {
                let mut message = String::new();
                let _ = fs::File::from(errors_read).take(4096).read_to_string(&mut message);
                return Err(Failure::new(Kind::System, if message.is_empty() { "the cell was not made".into() } else { message }));
            }
            Ok(code)
        }
    }
}

const STAGE_FAILED: i32 = 126;
const SANDBOX_FAILED: i32 = 125;

struct Gate {
    ready: OwnedFd,
    go: OwnedFd,
}

impl Gate {
    /// Lets the supervisor write the id maps and waits until it has.
    fn pass(self) -> Outcome<()> {
        let _ = fs::File::from(self.ready).write_all(b"r");
        if wait_byte(self.go) { Ok(()) } else { Err(Failure::new(Kind::System, "the id maps were not written")) }
    }
}

fn stage(view: &View<'_>, ids: &IdMap, gate: Gate, body: impl FnOnce() -> i32) -> Outcome<i32> {
    die_with_parent();
    let others = CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWPID;
    let split = |flags| unshare(flags).map_err(|e| Failure::errno("make namespaces", e));
    if *ids == IdMap::Single {
        split(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS | others)?;
        gate.pass()?;
        enter(view)?;
    } else {
        split(CloneFlags::CLONE_NEWNS)?;
        enter(view)?;
        split(CloneFlags::CLONE_NEWUSER | others)?;
        gate.pass()?;
        setgroups(&[]).map_err(|e| Failure::errno("drop groups", e))?;
    }
    setresgid(Gid::from_raw(0), Gid::from_raw(0), Gid::from_raw(0)).map_err(|e| Failure::errno("become root of the cell", e))?;
    setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).map_err(|e| Failure::errno("become root of the cell", e))?;
    die_with_parent();
    // SAFETY: this process has one thread.
    match unsafe { fork() }.map_err(|e| Failure::errno("fork", e))? {
        ForkResult::Child => {
            die_with_parent();
            let code = match restrict(view) {
                Ok(()) => body(),
                Err(failure) => {
                    eprintln!("{}", failure.message);
                    SANDBOX_FAILED
                }
            };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => wait(child),
    }
}

/// SIGKILL when the parent ends, however it ends. To be called again after every change of ids.
pub fn die_with_parent() {
    // SAFETY: takes a plain number.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

pub fn wait(child: Pid) -> Outcome<i32> {
    loop {
        match waitpid(child, None) {
            Ok(WaitStatus::Exited(_, code)) => return Ok(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => return Err(Failure::new(Kind::System, format!("ended by {signal}"))),
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(errno) => return Err(Failure::errno("wait for the cell", errno)),
        }
    }
}

fn wait_byte(fd: OwnedFd) -> bool {
    matches!(fs::File::from(fd).read(&mut [0u8; 1]), Ok(1))
}

/// Makes the view the root of this process's mount namespace; nothing else stays reachable.
fn enter(view: &View<'_>) -> Outcome<()> {
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|e| Failure::errno("make mounts private", e))?;
    let root = match view {
        View::Staging(staging) => {
            bind(staging, staging, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC)?;
            staging
        }
        View::Mke2fs { at, tool, staging, disk } => {
            build_tool_view(at, tool, staging, disk)?;
            at
        }
    };
    chdir(*root).map_err(|e| Failure::errno("enter the view", e))?;
    pivot_root(".", ".").map_err(|e| Failure::errno("pivot_root", e))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(|e| Failure::errno("detach the host's root", e))?;
    chdir("/").map_err(|e| Failure::errno("enter the view", e))
}

fn build_tool_view(at: &Path, tool: &Path, staging: &Path, disk: &Path) -> Outcome<()> {
    let sealed = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=0755,size=1m"))
        .map_err(|e| Failure::errno("mount tmpfs", e))?;
    let io = |e: std::io::Error| Failure::io("build the view", &e);
    for name in ["usr", "lib", "lib64", "lib32", "libx32", "bin", "sbin", "gnu", "nix"] {
        let host = Path::new("/").join(name);
        let here = at.join(name);
        match fs::symlink_metadata(&host) {
            Ok(meta) if meta.is_symlink() => std::os::unix::fs::symlink(fs::read_link(&host).map_err(io)?, &here).map_err(io)?,
            Ok(meta) if meta.is_dir() => {
                fs::create_dir(&here).map_err(io)?;
                bind(&host, &here, sealed)?;
            }
            _ => continue,
        }
    }
    for name in ["tool", "out", "etc"] {
        fs::create_dir(at.join(name)).map_err(io)?;
    }
    if Path::new("/etc/ld.so.cache").exists() {
        fs::copy("/etc/ld.so.cache", at.join("etc/ld.so.cache")).map_err(io)?;
    }
    for (from, to, attributes) in
        [(tool, "tool/mke2fs", sealed), (disk, "out/disk", libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC)]
    {
        fs::write(at.join(to), "").map_err(io)?;
        bind(from, &at.join(to), attributes)?;
    }
    fs::create_dir(at.join("staging")).map_err(io)?;
    bind(staging, &at.join("staging"), sealed | libc::MOUNT_ATTR_NOEXEC)
}

fn bind(from: &Path, to: &Path, attributes: u64) -> Outcome<()> {
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND | MsFlags::MS_REC, none).map_err(|e| Failure::errno(&format!("bind {}", from.display()), e))?;
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut change: libc::mount_attr = unsafe { std::mem::zeroed() };
    change.attr_set = attributes;
    let path = std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(to.as_os_str()))
        .map_err(|_| Failure::new(Kind::System, "a path holds a zero byte"))?;
    // SAFETY: the path and the structure outlive the call; the size is the structure's.
    let result = unsafe {
        libc::syscall(libc::SYS_mount_setattr, libc::AT_FDCWD, path.as_ptr(), libc::AT_RECURSIVE, &raw const change, size_of::<libc::mount_attr>())
    };
    if result == 0 { Ok(()) } else { Err(last_errno(&format!("seal {}", to.display()))) }
}

/// Everything that is given up inside, in the order in which it can be.
fn restrict(view: &View<'_>) -> Outcome<()> {
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_NOFILE, 4096)?;
    limit(Resource::RLIMIT_MEMLOCK, 0)?;
    limit(Resource::RLIMIT_AS, 8 << 30)?;
    drop_capabilities()?;
    // SAFETY: takes plain numbers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(last_errno("set no_new_privs"));
    }
    restrict_files(view)?;
    restrict_calls(matches!(view, View::Mke2fs { .. }))
}

fn limit(resource: Resource, value: u64) -> Outcome<()> {
    let (_, hard) = nix::sys::resource::getrlimit(resource).map_err(|e| Failure::errno("read a limit", e))?;
    let value = value.min(hard);
    setrlimit(resource, value, value).map_err(|e| Failure::errno("set a limit", e))
}

/// Linux capability numbers (capability.h): chown, dac_override, fowner, fsetid, setfcap.
const KEPT_CAPABILITIES: [u32; 5] = [0, 1, 3, 4, 31];

fn drop_capabilities() -> Outcome<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    #[repr(C)]
    struct Data {
        effective: u32,
        permitted: u32,
        inheritable: u32,
    }
    for capability in 0..64 {
        if !KEPT_CAPABILITIES.contains(&capability) {
            // SAFETY: takes plain numbers. EINVAL: the kernel does not have that many.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
        }
    }
    let kept = KEPT_CAPABILITIES.iter().fold(0u32, |mask, capability| mask | (1 << capability));
    let header = Header { version: 0x2008_0522, pid: 0 };
    let data = [Data { effective: kept, permitted: kept, inheritable: 0 }, Data { effective: 0, permitted: 0, inheritable: 0 }];
    // SAFETY: both structures have the layout of version 3 and outlive the call.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(last_errno("drop capabilities")) }
}

/// Landlock needs to know links between directories (ABI 2); older kernels do without it.
fn restrict_files(view: &View<'_>) -> Outcome<()> {
    // SAFETY: asks for the version only.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32) };
    if version < 2 {
        return Ok(());
    }
    let all = AccessFs::from_all(ABI::V3);
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::Execute;
    let rules = match view {
        View::Staging(_) => vec![("/", all & !devices)],
        View::Mke2fs { .. } => vec![
            ("/", AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute),
            ("/out/disk", AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate),
        ],
    };
    let fail = |e: &dyn std::fmt::Display| Failure::new(Kind::System, format!("Landlock: {e}"));
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(all).map_err(|e| fail(&e))?.create().map_err(|e| fail(&e))?;
    for (path, access) in rules {
        let fd = PathFd::new(path).map_err(|e| fail(&e))?;
        ruleset = ruleset.add_rule(PathBeneath::new(fd, access)).map_err(|e| fail(&e))?;
    }
    ruleset.restrict_self().map_err(|e| fail(&e))?;
    Ok(())
}

/// A list of what the work never needs and an attack would: everything about other processes, mounts, namespaces,
/// kernel subsystems, sockets; making devices; and, while layers are read, starting a program.
fn restrict_calls(may_exec: bool) -> Outcome<()> {
    let mut denied = vec![
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_kill,
        libc::SYS_tkill,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_getfd,
        libc::SYS_pidfd_send_signal,
        libc::SYS_kcmp,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
        libc::SYS_fsconfig,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_clone3,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_kexec_file_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_quotactl,
        libc::SYS_personality,
        libc::SYS_setuid,
        libc::SYS_setgid,
        libc::SYS_setresuid,
        libc::SYS_setresgid,
        libc::SYS_setgroups,
        libc::SYS_syslog,
        libc::SYS_acct,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_sethostname,
        libc::SYS_fanotify_init,
    ];
    #[cfg(target_arch = "x86_64")]
    denied.extend([libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt]);
    if !may_exec {
        denied.extend([libc::SYS_execve, libc::SYS_execveat, libc::SYS_clone]);
        #[cfg(target_arch = "x86_64")]
        denied.extend([libc::SYS_fork, libc::SYS_vfork]);
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = denied.into_iter().map(|call| (call, Vec::new())).collect();
    rules.insert(libc::SYS_mknodat, device_rules(2)?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, device_rules(1)?);
    let fail = |e: &dyn std::fmt::Display| Failure::new(Kind::System, format!("seccomp: {e}"));
    let arch = std::env::consts::ARCH.try_into().map_err(|e| fail(&e))?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32), arch).map_err(|e| fail(&e))?;
    let program: BpfProgram = filter.try_into().map_err(|e| fail(&e))?;
    seccompiler::apply_filter(&program).map_err(|e| fail(&e))
}

fn device_rules(argument: u8) -> Outcome<Vec<SeccompRule>> {
    [libc::S_IFCHR, libc::S_IFBLK]
        .into_iter()
        .map(|kind| {
            let condition =
                SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(u64::from(libc::S_IFMT)), u64::from(kind));
            condition.and_then(|condition| SeccompRule::new(vec![condition])).map_err(|e| Failure::new(Kind::System, format!("seccomp: {e}")))
        })
        .collect()
}
