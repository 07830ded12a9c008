//! The requests: each is checked here and answered at once, or becomes the handler of its stream.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use guest_agent::config::Workload;
use guest_agent::failure::{Failure, describe};
use guest_agent::json::{self, Value};
use guest_agent::mux::Stream;
use guest_agent::{hex, object, signals};

use crate::agent::handler::{Freezing, Handler, Outcome};
use crate::agent::spawn::Command;
use crate::agent::{Core, StopRequest, files, job};
use crate::sys;

pub const MAX_EXECS: usize = 256;
const MAX_ID_BYTES: usize = 64;
const LISTED_EXECS: usize = 32;
const LISTED_ARGV_BYTES: usize = 512;

pub fn exec_gone() -> Failure {
    Failure::new("EXEC_NOT_FOUND", "There is no such exec in the guest")
}

/// Answers, or says what is to go on with the stream.
pub fn dispatch(core: &mut Core, stream: &mut Stream, who: (u32, u32), request: &[u8]) -> Outcome {
    let result = json::parse(request).and_then(|request| run(core, stream, who, &request));
    result.unwrap_or_else(Outcome::Fail)
}

fn reply(value: Value) -> Result<Outcome, Failure> {
    Ok(Outcome::Reply(value.to_bytes()))
}

fn run(core: &mut Core, stream: &mut Stream, who: (u32, u32), request: &Value) -> Result<Outcome, Failure> {
    let op = request.text("op")?;
    refuse_if_frozen(core, op)?;
    match op {
        "ping" => reply(object! { "uptimeMs": core.now_ms, "wallMs": sys::clock_ms(sys::CLOCK_REALTIME) }),
        "info" => reply(core.info()),
        "exec.start" => start(core, stream, who, request),
        "exec.attach" => {
            request.only(&["op", "execId", "stdoutOffset", "stderrOffset"])?;
            let exec = find(core, request)?;
            Ok(Outcome::Become(Handler::Starting { exec, attach: Some(request.clone()) }))
        }
        "exec.list" => list(core, stream),
        "exec.get" => {
            let exec = find(core, request)?;
            reply(object! { "exec": core.execs[&exec].view() })
        }
        "exec.wait" => Ok(Outcome::Become(Handler::Waiting { exec: find(core, request)? })),
        "exec.signal" => signal(core, request),
        "exec.resize" => resize(core, request),
        "exec.remove" => remove(core, request),
        "file.read" => files::read(request, stream).map(|r| Outcome::Become(Handler::Reading(r))),
        "file.write" => files::write(request, stream).map(|w| Outcome::Become(Handler::Writing(w))),
        "file.list" => files::list(request, stream).map(|l| Outcome::Become(Handler::Listing(l))),
        "file.watch" => files::watch(request, stream).map(|w| Outcome::Become(Handler::Watching(w))),
        "file.stat" => reply(files::stat(request)?),
        "file.mkdir" => reply(files::make_directory(request)?),
        "file.rename" => reply(files::rename(request)?),
        "file.remove" => match files::remove(request)? {
            None => reply(object! {}),
            Some(job) => Ok(Outcome::Become(Handler::Job(job))),
        },
        "df" => reply(files::usage(request)?),
        "fs.freeze" => freeze(core, request, true),
        "fs.thaw" => freeze(core, request, false),
        "clock.set" => {
            request.only(&["op", "wallMs"])?;
            sys::clock_set_ms(request.u64("wallMs")?).map_err(|e| system("set the clock", e))?;
            reply(object! {})
        }
        "entropy.add" => {
            request.only(&["op", "hex"])?;
            let bytes = hex::decode(request.text("hex")?).ok_or_else(|| Failure::invalid("Invalid hex: must be pairs of hex digits"))?;
            sys::add_entropy(&bytes).map_err(|e| system("add entropy", e))?;
            reply(object! {})
        }
        "identity.reset" => reset_identity(core, request),
        "shutdown" => shutdown(core, request),
        other => Err(Failure::new("REQUEST_INVALID", alloc::format!("The guest agent does not know the request {other}"))),
    }
}

/// Several messages, so that each fits: all but the last say that there is more.
fn list(core: &Core, stream: &mut Stream) -> Result<Outcome, Failure> {
    let execs: Vec<Value> = core.execs.values().filter(|e| !e.is_failed()).map(|e| e.view_within(LISTED_ARGV_BYTES)).collect();
    let (batches, last) = execs.split_at(execs.len() - execs.len() % LISTED_EXECS);
    for batch in batches.chunks(LISTED_EXECS) {
        stream.send_json(&object! { "execs": batch.to_vec(), "more": true });
    }
    reply(object! { "execs": last.to_vec(), "more": false })
}

fn system(what: &str, error: sys::Errno) -> Failure {
    let code = if error.is(sys::errno::EPERM) { "GUEST_FILE_DENIED" } else { "INTERNAL" };
    Failure::new(code, alloc::format!("Cannot {what} in the guest: {}", describe(error.0)))
}

fn find(core: &Core, request: &Value) -> Result<u32, Failure> {
    let id = request.text("execId")?;
    core.execs.values().find(|e| e.id == id && !e.is_failed()).map(|e| e.number).ok_or_else(exec_gone)
}

fn parse_command(core: &Core, request: &Value) -> Result<Command, Failure> {
    request.only(&["op", "execId", "argv", "env", "cwd", "user", "tty", "timeoutMs", "stdin", "inheritImageEnv", "retain", "attach"])?;
    let id = request.text("execId")?;
    if id.is_empty() || id.len() > MAX_ID_BYTES {
        return Err(Failure::invalid("Invalid execId: must have 1 to 64 characters"));
    }
    let tty = match request.get("tty") {
        None => None,
        Some(size) => Some((size.opt_u64("rows")?.unwrap_or(24) as u16, size.opt_u64("cols")?.unwrap_or(80) as u16)),
    };
    let image = core.config.workload.as_ref().filter(|_| request.get("inheritImageEnv") == Some(&Value::Bool(true)));
    let mut env = image.map_or_else(Vec::new, |w| w.env.clone());
    env.extend(request.pairs("env")?);
    let given = |name: &str, field: fn(&Workload) -> &String| -> Result<String, Failure> {
        Ok(match request.opt_text(name)? {
            Some(text) => text.to_string(),
            None => image.map_or_else(String::new, |w| field(w).clone()),
        })
    };
    Ok(Command {
        id: id.to_string(),
        argv: request.texts("argv")?,
        env,
        cwd: given("cwd", |w| &w.cwd)?,
        user: Some(given("user", |w| &w.user)?).filter(|u| !u.is_empty()).unwrap_or_else(|| "0:0".to_string()),
        tty,
        stdin: request.flag("stdin")?,
        timeout_ms: request.opt_u64("timeoutMs")?,
        drops: request.opt_text("retain")? == Some("drop"),
        to_console: false,
    })
}

fn start(core: &mut Core, stream: &mut Stream, who: (u32, u32), request: &Value) -> Result<Outcome, Failure> {
    let command = parse_command(core, request)?;
    let attach = request.get("attach").cloned();
    // The same id again is the same exec: the caller did not get the first answer.
    if let Ok(exec) = find(core, request) {
        return Ok(Handler::Starting { exec, attach }.pump_now(core, stream, who));
    }
    core.make_room_for_exec()?;
    let exec = core.spawn(command)?;
    Ok(Outcome::Become(Handler::Starting { exec, attach }))
}

impl Handler {
    fn pump_now(mut self, core: &mut Core, stream: &mut Stream, who: (u32, u32)) -> Outcome {
        match self.pump(core, stream, who) {
            Outcome::Idle => Outcome::Become(self),
            outcome => outcome,
        }
    }
}

fn signal(core: &mut Core, request: &Value) -> Result<Outcome, Failure> {
    request.only(&["op", "execId", "signal", "group"])?;
    let exec = find(core, request)?;
    let name = request.text("signal")?;
    let number = signals::number_of(name).ok_or_else(|| Failure::invalid(alloc::format!("Invalid signal: there is no signal {name}")))?;
    // A kill reaches the whole group, so that nothing of the exec stays behind.
    let group = number == sys::SIGNAL_KILL || request.get("group").is_none() || request.flag("group")?;
    core.execs[&exec].signal(number, group)?;
    reply(object! {})
}

fn resize(core: &mut Core, request: &Value) -> Result<Outcome, Failure> {
    request.only(&["op", "execId", "rows", "cols"])?;
    let exec = &core.execs[&find(core, request)?];
    let size = |name: &str| -> Result<u16, Failure> {
        u16::try_from(request.u64(name)?).map_err(|_| Failure::invalid(alloc::format!("Invalid {name}: must be at most 65535")))
    };
    let terminal = exec.terminal.as_ref().ok_or_else(|| Failure::invalid("The exec has no terminal"))?;
    sys::set_window_size(terminal.raw(), size("rows")?, size("cols")?).map_err(|e| system("resize the terminal", e))?;
    reply(object! {})
}

fn remove(core: &mut Core, request: &Value) -> Result<Outcome, Failure> {
    request.only(&["op", "execId"])?;
    let number = find(core, request)?;
    if let Some(exec) = core.execs.remove(&number) {
        exec.signal(sys::SIGNAL_KILL, true)?;
    }
    reply(object! {})
}

fn freeze(core: &mut Core, request: &Value, freezes: bool) -> Result<Outcome, Failure> {
    request.only(&["op", "path"])?;
    let path = files::path_of(request, "path")?.to_string();
    let target = path.clone();
    let job = job::spawn(None, move |_| {
        sys::freeze(target.as_bytes(), freezes).map_err(|e| system(if freezes { "freeze the file system" } else { "thaw the file system" }, e))?;
        Ok(object! {})
    })?;
    let is_new = freezes && !core.frozen.contains(&path);
    if is_new {
        core.frozen.push(path.clone());
    }
    Ok(Outcome::Become(Handler::Freezing(Freezing { job, path, freezes, is_new })))
}

/// What writes to files waits until they are thawed: the agent must never be stopped by what it alone can undo.
fn refuse_if_frozen(core: &Core, op: &str) -> Result<(), Failure> {
    let writes = matches!(op, "file.write" | "file.mkdir" | "file.rename" | "file.remove" | "identity.reset");
    match core.frozen.first().filter(|_| writes) {
        Some(path) => Err(Failure::new("GUEST_FILE_DENIED", alloc::format!("Cannot change files: the file system of {path} is frozen"))),
        None => Ok(()),
    }
}

/// All is checked before anything is changed.
fn reset_identity(core: &mut Core, request: &Value) -> Result<Outcome, Failure> {
    request.only(&["op", "hostname", "machineId", "token"])?;
    let (name, id, token) = (request.opt_text("hostname")?, request.opt_text("machineId")?, request.opt_text("token")?);
    if id.is_some_and(|id| id.len() != 32 || hex::decode(id).is_none()) {
        return Err(Failure::invalid("Invalid machineId: must be 32 hex digits"));
    }
    if token.is_some_and(|token| token.len() < 32 || token.len() > 128) {
        return Err(Failure::invalid("Invalid token: must be 32 to 128 characters"));
    }
    if let Some(name) = name {
        sys::set_hostname(name.as_bytes()).map_err(|e| system("set the host name", e))?;
        let _ = sys::write_file(b"/etc/hostname", alloc::format!("{name}\n").as_bytes(), 0o644);
        core.config.hostname = name.to_string();
    }
    if let Some(id) = id {
        sys::write_file(b"/etc/machine-id", alloc::format!("{id}\n").as_bytes(), 0o444).map_err(|e| system("write /etc/machine-id", e))?;
    }
    if let Some(token) = token {
        core.change_token(token);
    }
    reply(object! {})
}

fn shutdown(core: &mut Core, request: &Value) -> Result<Outcome, Failure> {
    request.only(&["op", "mode", "graceMs"])?;
    let restart = match request.text("mode")? {
        "poweroff" => false,
        "reboot" => true,
        _ => return Err(Failure::invalid("Invalid mode: must be poweroff or reboot")),
    };
    let grace_ms = request.opt_u64("graceMs")?.unwrap_or(10_000).min(600_000);
    core.stop_request = Some(StopRequest { restart, grace_ms });
    reply(object! {})
}

/// The image's own program, run once by PID 1.
pub fn start_workload(core: &mut Core, workload: &Workload) -> Result<(), Failure> {
    let command = Command {
        id: "workload".to_string(),
        argv: workload.argv.clone(),
        env: workload.env.clone(),
        cwd: workload.cwd.clone(),
        user: if workload.user.is_empty() { "0:0".to_string() } else { workload.user.clone() },
        tty: if workload.tty { Some((24, 80)) } else { None },
        stdin: false,
        timeout_ms: None,
        drops: true,
        to_console: true,
    };
    core.spawn(command).map(|_| ())
}
