//! `serve`: requests over descriptor 3, one thread each up to a bound; ends when the socket closes.
//!
//! Request `{"id":1,"op":"signal","params":{…}}`, reply `{"id":1,"ok":…}` or `{"id":1,"failure":{…}}` in any order,
//! events `{"event":"exited",…}` in between. Descriptor 4, if given, is the state lock: it is only held.
use crate::failure::{Failure, Outcome};
use crate::frame::{Decoder, encode};
use crate::identity::{Identity, open_verified};
use crate::watch::Watcher;
use crate::{cgroup, files, notify, spawn, vsock};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MAX_REQUESTS: usize = 64;
const DRAIN: Duration = Duration::from_secs(12);

struct Server {
    writer: Mutex<UnixStream>,
    watcher: Watcher,
    running: AtomicUsize,
}

#[derive(Deserialize)]
struct Request {
    id: u64,
    op: String,
    #[serde(default)]
    params: Value,
}

pub fn main() -> i32 {
    // SAFETY: descriptors 3 and 4 are this process's by contract with its parent; flags only.
    let socket = unsafe {
        libc::fcntl(3, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(4, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
        UnixStream::from_raw_fd(3)
    };
    match serve(socket) {
        Ok(()) => 0,
        Err(failure) => {
            eprintln!("host helper: {}: {}", failure.step, failure.message);
            1
        }
    }
}

fn serve(mut socket: UnixStream) -> Outcome<()> {
    socket.set_nonblocking(false).map_err(|e| Failure::io("serve", "socket at descriptor 3", &e))?;
    let writer = socket.try_clone().map_err(|e| Failure::io("serve", "socket", &e))?;
    let server = Arc::new(Server { writer: Mutex::new(writer), watcher: Watcher::new()?, running: AtomicUsize::new(0) });
    let events = server.clone();
    std::thread::spawn(move || events.watcher.run(|event| events.send(&event)));
    server.send(&json!({ "event": "ready", "version": env!("CARGO_PKG_VERSION"), "pid": std::process::id() }));
    let result = read_requests(&mut socket, &server);
    // A launch under way is finished or given up before the state lock is let go.
    let deadline = Instant::now() + DRAIN;
    while server.running.load(Ordering::SeqCst) > 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    result
}

fn read_requests(socket: &mut UnixStream, server: &Arc<Server>) -> Outcome<()> {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => decoder.push(&buffer[..n]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(Failure::io("serve", "read", &e)),
        }
        while let Some(frame) = decoder.next().map_err(|e| Failure::invalid(format!("frame of {} bytes", e.0)))? {
            let request: Request = serde_json::from_slice(&frame).map_err(|e| Failure::invalid(e.to_string()))?;
            server.accept(request);
        }
    }
}

impl Server {
    fn send(&self, message: &Value) {
        let bytes = encode(message.to_string().as_bytes());
        let mut writer = self.writer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // A closed socket is noticed by the reader, which ends the process.
        let _ = writer.write_all(&bytes);
    }

    fn reply(&self, id: u64, outcome: Outcome<Value>) {
        match outcome {
            Ok(value) => self.send(&json!({ "id": id, "ok": value })),
            Err(failure) => self.send(&json!({ "id": id, "failure": failure })),
        }
    }

    fn accept(self: &Arc<Self>, request: Request) {
        if self.running.fetch_add(1, Ordering::SeqCst) >= MAX_REQUESTS {
            self.running.fetch_sub(1, Ordering::SeqCst);
            return self.reply(request.id, Err(Failure::of("busy", "request", "too many requests at once")));
        }
        let server = self.clone();
        std::thread::spawn(move || {
            let outcome = server.perform(&request.op, request.params);
            server.reply(request.id, outcome);
            server.running.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn perform(&self, op: &str, params: Value) -> Outcome<Value> {
        match op {
            "ping" => Ok(json!({})),
            "spawn" => {
                let p: SpawnParams = read(params)?;
                spawn::spawn(&p.spec, p.watch_id, &self.watcher).map(|s| json!(s))
            }
            "watch" => {
                let p: WatchParams = read(params)?;
                let fd = open_verified(&p.identity)?;
                self.watcher.add(fd, p.identity.pid, p.watch_id)?;
                Ok(json!({}))
            }
            "signal" => signal(&read(params)?),
            "alive" => alive(&read::<IdentityParams>(params)?.identity),
            "kill_cgroup" => {
                let p: KillCgroupParams = read(params)?;
                let deadline = Instant::now() + Duration::from_millis(p.timeout_ms.min(60_000));
                Ok(json!({ "signals": cgroup::kill_all(&p.dir, deadline)? }))
            }
            "notify" => {
                let p: NotifyParams = read(params)?;
                notify::send(&p.socket, &p.state).map(|()| json!({}))
            }
            "vsock_bridge" => {
                let p: BridgeParams = read(params)?;
                vsock::bridge(p.cid, p.port, p.path).map(|()| json!({}))
            }
            "vsock_bridge_close" => vsock::close(&read::<PathParams>(params)?.path).map(|()| json!({})),
            _ => file_op(op, params),
        }
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Outcome<T> {
    serde_json::from_value(params).map_err(|e| Failure::invalid(e.to_string()))
}

fn file_op(op: &str, params: Value) -> Outcome<Value> {
    match op {
        "reflink" => {
            let p: CopyParams = read(params)?;
            files::reflink(&p.source, &p.target, p.mode).map(|()| json!({}))
        }
        "sparse_copy" => {
            let p: CopyParams = read(params)?;
            files::sparse_copy(&p.source, &p.target, p.mode).map(|n| json!({ "dataBytes": n }))
        }
        "punch" => {
            let p: PunchParams = read(params)?;
            files::punch(&p.path, p.offset, p.length).map(|()| json!({}))
        }
        "get_xattr" => {
            let p: XattrParams = read(params)?;
            files::get_xattr(&p.path, &p.name).map(|v| json!({ "value": v }))
        }
        "set_xattr" => {
            let p: XattrParams = read(params)?;
            files::set_xattr(&p.path, &p.name, &p.value).map(|()| json!({}))
        }
        _ => Err(Failure::of("unknown_op", "request", format!("unknown operation {op}"))),
    }
}

fn signal(p: &SignalParams) -> Outcome<Value> {
    let name: nix::sys::signal::Signal = p.signal.parse().map_err(|_| Failure::invalid(format!("unknown signal {}", p.signal)))?;
    let fd = open_verified(&p.identity)?;
    // SAFETY: the descriptor is open; no siginfo is passed.
    match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), name as i32, 0, 0) } {
        0 => Ok(json!({})),
        _ => {
            let failure = Failure::last("signal", "send signal");
            Err(if failure.errno == libc::ESRCH { Failure::of("stale", "signal", "the process has ended") } else { failure })
        }
    }
}

/// Whether the process lives: a zombie does not.
fn alive(identity: &Identity) -> Outcome<Value> {
    let fd = match open_verified(identity) {
        Ok(fd) => fd,
        Err(failure) if failure.kind == "stale" => return Ok(json!({ "alive": false })),
        Err(failure) => return Err(failure),
    };
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid pollfd is passed.
    let ended = unsafe { libc::poll(&mut poll, 1, 0) } > 0;
    Ok(json!({ "alive": !ended }))
}

macro_rules! params {
    ($name:ident { $($(#[$meta:meta])* $field:ident : $type:ty),* $(,)? }) => {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct $name { $($(#[$meta])* $field: $type),* }
    };
}

params!(SpawnParams { spec: Value, watch_id: u64 });
params!(WatchParams { identity: Identity, watch_id: u64 });
params!(IdentityParams { identity: Identity });
params!(SignalParams { identity: Identity, signal: String });
params!(KillCgroupParams { dir: String, timeout_ms: u64 });
params!(NotifyParams { socket: String, state: String });
params!(BridgeParams { cid: u32, port: u32, path: String });
params!(PathParams { path: String });
params!(CopyParams { source: String, target: String, mode: u32 });
params!(PunchParams { path: String, offset: i64, length: i64 });
params!(XattrParams { path: String, name: String, #[serde(default)] value: Vec<u8> });
