//! Starting a process: everything is worked out before the fork, so that the child only makes system calls.

use alloc::string::String;
use alloc::vec::Vec;

use guest_agent::accounts::{self, Account};
use guest_agent::failure::{Failure, describe};

use crate::agent::exec::{Exec, Input, Output, State};
use crate::sys::{self, Errno, Fork, OwnedFd};

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MAX_ACCOUNTS_BYTES: usize = 1 << 20;

#[derive(Default)]
pub struct Command {
    pub id: String,
    pub argv: Vec<String>,
    /// Later entries win.
    pub env: Vec<(String, String)>,
    pub cwd: String,
    pub user: String,
    /// Rows and columns.
    pub tty: Option<(u16, u16)>,
    pub stdin: bool,
    pub timeout_ms: Option<u64>,
    pub drops: bool,
    pub to_console: bool,
}

/// NUL-terminated strings and the array of pointers to them that exec wants.
struct CStrings {
    _bytes: Vec<Vec<u8>>,
    pointers: Vec<*const u8>,
}

impl CStrings {
    fn new(items: impl Iterator<Item = Vec<u8>>) -> CStrings {
        let bytes: Vec<Vec<u8>> = items
            .map(|mut item| {
                item.push(0);
                item
            })
            .collect();
        let mut pointers: Vec<*const u8> = bytes.iter().map(|b| b.as_ptr()).collect();
        pointers.push(core::ptr::null());
        CStrings { _bytes: bytes, pointers }
    }
}

struct Plan {
    argv: CStrings,
    env: CStrings,
    candidates: Vec<Vec<u8>>,
    account: Account,
    cwd: Vec<u8>,
    tty: bool,
}

fn read_text(path: &[u8]) -> String {
    String::from_utf8_lossy(&sys::read_file(path, MAX_ACCOUNTS_BYTES).unwrap_or_default()).into_owned()
}

fn merge_env(command: &Command, account: &Account) -> Vec<(String, String)> {
    let mut merged: Vec<(String, String)> = Vec::new();
    let mut set = |name: &str, value: &str| match merged.iter_mut().find(|(n, _)| n == name) {
        Some(entry) => entry.1 = value.into(),
        None => merged.push((name.into(), value.into())),
    };
    set("PATH", DEFAULT_PATH);
    set("HOME", &account.home);
    if command.tty.is_some() {
        set("TERM", "xterm");
    }
    for (name, value) in &command.env {
        set(name, value);
    }
    merged
}

fn plan(command: &Command) -> Result<Plan, Failure> {
    let program = command.argv.first().filter(|a| !a.is_empty()).ok_or_else(|| Failure::invalid("Invalid argv: must name a program"))?;
    if command.argv.iter().any(|a| a.contains('\0')) || command.env.iter().any(|(n, v)| n.is_empty() || n.contains(['\0', '=']) || v.contains('\0')) {
        return Err(Failure::invalid("Invalid argv or env: holds a character that no process can be given"));
    }
    let (passwd, group) = (read_text(b"/etc/passwd"), read_text(b"/etc/group"));
    let account = accounts::resolve(&command.user, &passwd, &group)?;
    let env = merge_env(command, &account);
    let candidates = if program.contains('/') {
        alloc::vec![program.as_bytes().to_vec()]
    } else {
        let path = env.iter().find(|(n, _)| n == "PATH").map_or("", |(_, v)| v);
        path.split(':').map(|dir| [if dir.is_empty() { "." } else { dir }, "/", program].concat().into_bytes()).collect()
    };
    Ok(Plan {
        argv: CStrings::new(command.argv.iter().map(|a| a.as_bytes().to_vec())),
        env: CStrings::new(env.iter().map(|(n, v)| [n, "=", v].concat().into_bytes())),
        candidates,
        account,
        cwd: if command.cwd.is_empty() { b"/".to_vec() } else { command.cwd.as_bytes().to_vec() },
        tty: command.tty.is_some(),
    })
}

/// Our ends and the child's.
struct Streams {
    terminal: Option<OwnedFd>,
    stdin: Option<OwnedFd>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    child: [OwnedFd; 3],
}

fn open_streams(command: &Command) -> sys::Result<Streams> {
    let duplicate = |fd: &OwnedFd| sys::duplicate_above(fd.raw());
    if let Some((rows, columns)) = command.tty {
        let (ours, theirs) = sys::open_pty(rows, columns)?;
        let child = [duplicate(&theirs)?, duplicate(&theirs)?, theirs];
        return Ok(Streams { stdin: Some(duplicate(&ours)?), stdout: Some(duplicate(&ours)?), stderr: None, terminal: Some(ours), child });
    }
    let (stdin, child_in) = if command.stdin {
        let (read, write) = sys::pipe(0)?;
        sys::set_nonblocking(write.raw())?;
        (Some(write), read)
    } else {
        (None, sys::open(b"/dev/null", sys::raw::O_RDONLY)?)
    };
    let (out, child_out) = sys::pipe(0)?;
    let (err, child_err) = sys::pipe(0)?;
    sys::set_nonblocking(out.raw())?;
    sys::set_nonblocking(err.raw())?;
    Ok(Streams { terminal: None, stdin, stdout: Some(out), stderr: Some(err), child: [child_in, child_out, child_err] })
}

/// Starts the command. It may still turn out not to run: then the exec becomes `Failed`.
pub fn spawn(command: Command, number: u32, now_ms: u64) -> Result<Exec, Failure> {
    let plan = plan(&command)?;
    let failed = |error: Errno| Failure::new("EXEC_START_FAILED", alloc::format!("Cannot start {}: {}", command.argv[0], describe(error.0)));
    let streams = open_streams(&command).map_err(failed)?;
    let (status, child_status) = sys::pipe(sys::raw::O_NONBLOCK).map_err(failed)?;
    let pid = match sys::fork().map_err(failed)? {
        Fork::Child => run_child(&plan, &streams.child, child_status.raw()),
        Fork::Parent(pid) => pid,
    };
    Ok(Exec {
        number,
        pid,
        state: State::Starting(status),
        input: Input::new(streams.stdin, streams.terminal.is_some()),
        out: Output::new(streams.stdout),
        err: Output::new(streams.stderr),
        terminal: streams.terminal,
        started_wall_ms: sys::clock_ms(sys::CLOCK_REALTIME),
        ended_wall_ms: 0,
        ended_ms: 0,
        deadline_ms: command.timeout_ms.map(|t| now_ms.saturating_add(t)),
        timed_out: false,
        attached: None,
        drops: command.drops,
        to_console: command.to_console,
        collected: false,
        id: command.id,
        argv: command.argv,
    })
}

fn run_child(plan: &Plan, streams: &[OwnedFd; 3], status: i32) -> ! {
    let (stage, error) = enter_child(plan, streams);
    let mut report = [0u8; 8];
    report[0] = stage;
    report[4..].copy_from_slice(&error.0.to_ne_bytes());
    let _ = sys::write(status, &report);
    sys::exit(127)
}

/// Returns only when the program could not be run: the stage and why.
fn enter_child(plan: &Plan, streams: &[OwnedFd; 3]) -> (u8, Errno) {
    sys::setsid();
    for (fd, stream) in (0..).zip(streams) {
        if let Err(error) = sys::duplicate(stream.raw(), fd) {
            return (0, error);
        }
    }
    if plan.tty {
        if let Err(error) = sys::set_controlling_terminal(0) {
            return (0, error);
        }
    }
    let _ = sys::write_file(b"/proc/self/oom_score_adj", b"0", 0);
    if let Err(error) = become_account(&plan.account) {
        return (1, error);
    }
    if let Err(error) = sys::chdir(&plan.cwd) {
        return (2, error);
    }
    sys::set_umask(0o022);
    sys::reset_signals();
    let mut denied = None;
    let mut last = Errno(2);
    for path in &plan.candidates {
        // SAFETY: both arrays end with null and their strings with NUL, by `CStrings`.
        last = unsafe { sys::execve(path, plan.argv.pointers.as_ptr(), plan.env.pointers.as_ptr()) };
        if last.is(sys::errno::EACCES) {
            denied = Some(last);
        } else if !last.is(sys::errno::ENOENT) && !last.is(sys::errno::ENOTDIR) {
            return (3, last);
        }
    }
    (3, denied.unwrap_or(last))
}

fn become_account(account: &Account) -> sys::Result<()> {
    if sys::getuid() != 0 {
        return if account.uid == sys::getuid() || account.uid == 0 { Ok(()) } else { Err(Errno(1)) };
    }
    sys::set_groups(&account.groups)?;
    sys::set_gid(account.gid)?;
    sys::set_uid(account.uid)
}
