//! The agent: one thread, one epoll set, edge-triggered. An event only marks what may move; then everything that may
//! move is pumped, a bounded piece each, until nothing does. So no stream, exec or connection can keep another waiting.
//!
//! `Core` holds what all share (execs, configuration); connections hold their streams. See `conn`, `handler`, `exec`.

pub mod conn;
pub mod console;
pub mod exec;
pub mod files;
pub mod handler;
pub mod job;
pub mod ops;
pub mod spawn;
mod transport;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use guest_agent::config::Config;
use guest_agent::failure::Failure;
use guest_agent::json::Value;
use guest_agent::{hex, object};

use crate::agent::conn::Conn;
use crate::agent::console::Console;
use crate::agent::exec::{Exec, RING_BYTES, RING_MINIMUM_BYTES, State};
use crate::agent::spawn::Command;
use crate::agent::transport::AwaitedPort;
use crate::log;
use crate::sys::{self, EpollEvent, OwnedFd};

pub const VERSION: &str = env!("CARGO_PKG_VERSION");
const SCRATCH_BYTES: usize = 64 * 1024;
const MAX_CONNECTIONS: usize = 8;
/// Of all execs together, above the minimum each may keep.
const MAX_RETAINED_BYTES: usize = 64 * 1024 * 1024;
const KEEP_COLLECTED_MS: u64 = 600_000;

pub const WAKE_ONLY: u64 = 0;
const TOKEN_SIGNALS: u64 = 1;
const TOKEN_LISTENER: u64 = 2;
const TOKEN_CONSOLE: u64 = 3;
const TOKEN_DEVICES: u64 = 4;
const TOKEN_CONNECTION: u64 = 1 << 32;
const TOKEN_EXEC: u64 = 2 << 32;

pub struct StopRequest {
    pub restart: bool,
    pub grace_ms: u64,
}

/// What runs after the loop ends.
pub enum Ended {
    Stop(StopRequest),
    /// A service was told to end.
    Terminated,
}

pub struct Core {
    pub epoll: OwnedFd,
    pub execs: BTreeMap<u32, Exec>,
    next_exec: u32,
    pub config: Config,
    /// Where the service keeps its configuration, if it does.
    pub config_path: Option<Vec<u8>>,
    pub scratch: Vec<u8>,
    pub now_ms: u64,
    pub stop_request: Option<StopRequest>,
    console: Console,
    instance: String,
    boot_id: String,
    is_init: bool,
    /// Why the image's program could not be started.
    pub workload_error: Option<String>,
    /// Paths whose file systems the host had frozen.
    pub frozen: Vec<String>,
    retained_bound: usize,
}

impl Core {
    pub fn new(config: Config, is_init: bool, console: Option<OwnedFd>) -> sys::Result<Core> {
        let mut instance = [0u8; 8];
        sys::random_bytes(&mut instance);
        let boot_id = sys::read_file(b"/proc/sys/kernel/random/boot_id", 64).unwrap_or_default();
        let core = Core {
            epoll: sys::epoll_create()?,
            execs: BTreeMap::new(),
            next_exec: 0,
            config,
            config_path: None,
            scratch: alloc::vec![0; SCRATCH_BYTES],
            now_ms: sys::clock_ms(sys::CLOCK_BOOTTIME),
            stop_request: None,
            console: Console::new(console),
            instance: hex::encode(&instance),
            boot_id: String::from_utf8_lossy(&boot_id).trim().to_string(),
            is_init,
            workload_error: None,
            frozen: Vec::new(),
            retained_bound: MAX_RETAINED_BYTES.min(sys::memory_bytes() / 16),
        };
        if let Some(fd) = &core.console.fd {
            let _ = sys::epoll_add(core.epoll.raw(), fd.raw(), sys::EPOLLOUT | sys::EPOLLET, TOKEN_CONSOLE);
        }
        Ok(core)
    }

    pub fn welcome(&self) -> Value {
        object! {
            "version": 1u32,
            "agentInstanceId": self.instance.as_str(),
            "agentVersion": VERSION,
            "bootId": self.boot_id.as_str(),
            "vmId": self.config.vm_id.as_str(),
            "uptimeMs": self.now_ms,
            "capabilities": ["exec", "pty", "files", "watch", "clock", "entropy", "identity", "shutdown", "freeze"].map(Value::from).to_vec(),
        }
    }

    pub fn info(&self) -> Value {
        let Value::Map(mut fields) = self.welcome() else { return Value::Null };
        fields.push(("hostname".into(), self.config.hostname.as_str().into()));
        fields.push(("init".into(), if self.is_init { "agent" } else { "image" }.into()));
        fields.push(("workloadError".into(), self.workload_error.as_deref().map_or(Value::Null, Value::from)));
        fields.push(("execs".into(), (self.execs.len() as u64).into()));
        Value::Map(fields)
    }

    pub fn spawn(&mut self, command: Command) -> Result<u32, Failure> {
        self.next_exec += 1;
        let number = self.next_exec;
        let exec = spawn::spawn(command, number, self.now_ms)?;
        let token = TOKEN_EXEC | u64::from(number);
        let both = sys::EPOLLIN | sys::EPOLLOUT | sys::EPOLLET;
        let pipes = [&exec.out.pipe, &exec.err.pipe, &exec.input.pipe].into_iter().flatten().map(|p| &p.fd);
        let status = if let State::Starting(status) = &exec.state { Some(status) } else { None };
        for fd in pipes.chain(status) {
            let _ = sys::epoll_add(self.epoll.raw(), fd.raw(), both, token);
        }
        self.execs.insert(number, exec);
        Ok(number)
    }

    /// At the limit, the oldest exec that somebody saw the end of makes room.
    pub fn make_room_for_exec(&mut self) -> Result<(), Failure> {
        if self.execs.len() < ops::MAX_EXECS {
            return Ok(());
        }
        let oldest = self.execs.values().find(|e| e.is_ended() && e.collected && e.retained() == 0).map(|e| e.number);
        match oldest {
            Some(number) => {
                self.execs.remove(&number);
                Ok(())
            }
            None => Err(Failure::new("EXEC_LIMIT", alloc::format!("There are {} execs in the guest; remove some first", ops::MAX_EXECS))),
        }
    }

    pub fn change_token(&mut self, token: &str) {
        self.config.token = token.to_string();
        let Some(path) = &self.config_path else { return };
        let Ok(Value::Map(mut fields)) = sys::read_file(path, 1 << 20).map_err(|_| ()).and_then(|t| guest_agent::json::parse(&t).map_err(|_| ()))
        else {
            return;
        };
        fields.retain(|(name, _)| name != "token");
        fields.push(("token".into(), token.into()));
        let _ = sys::write_file(path, &Value::Map(fields).to_bytes(), 0o600);
    }

    fn reap(&mut self) {
        while let Some((pid, ended)) = sys::reap() {
            if let Some(exec) = self.execs.values_mut().find(|e| e.pid == pid && !e.is_ended()) {
                exec.on_reaped(ended, self.now_ms);
                if exec.id == "workload" {
                    log!("the image's program ended: {:?}", ended);
                }
            }
        }
    }

    fn pump_execs(&mut self) -> bool {
        let retained: usize = self.execs.values().map(Exec::retained).sum();
        let bound = if retained < self.retained_bound { RING_BYTES } else { RING_MINIMUM_BYTES };
        let mut moved = false;
        for exec in self.execs.values_mut() {
            moved |= exec.pump(&mut self.scratch, bound, self.now_ms, &mut self.console);
            let late = exec.deadline_ms.is_some_and(|d| d <= self.now_ms);
            if late && !exec.timed_out && !exec.is_ended() {
                exec.timed_out = true;
                let _ = exec.signal(sys::SIGNAL_KILL, true);
            }
        }
        moved | self.console.pump()
    }

    /// Forgets execs that failed to start once told, and those whose end was collected long ago.
    fn forget_old_execs(&mut self) {
        let now_ms = self.now_ms;
        let workload_error = &mut self.workload_error;
        self.execs.retain(|_, e| match &e.state {
            State::Failed(failure) => {
                if e.id == "workload" {
                    log!("{}", failure.message);
                    *workload_error = Some(failure.message.clone());
                }
                false
            }
            State::Ended(_) => !(e.collected && e.retained() == 0 && now_ms >= e.ended_ms + KEEP_COLLECTED_MS),
            _ => true,
        });
    }

    fn wait_ms(&self) -> i32 {
        let next = self.execs.values().filter_map(Exec::next_deadline).min();
        next.map_or(60_000, |at| at.saturating_sub(self.now_ms).min(60_000)) as i32
    }
}

pub struct Agent {
    pub core: Core,
    conns: BTreeMap<u32, Conn>,
    next_conn: u32,
    listener: Option<OwnedFd>,
    awaited_port: Option<AwaitedPort>,
    signals: OwnedFd,
}

impl Agent {
    pub fn new(core: Core) -> sys::Result<Agent> {
        let mut awaited = alloc::vec![sys::SIGNAL_CHILD, sys::SIGNAL_TERM, sys::SIGNAL_INT];
        if core.is_init {
            awaited.extend([sys::SIGNAL_USR1, sys::SIGNAL_USR2, sys::SIGNAL_POWER]);
        }
        let signals = sys::signal_fd(&awaited)?;
        sys::ignore_signal(sys::SIGNAL_PIPE);
        sys::epoll_add(core.epoll.raw(), signals.raw(), sys::EPOLLIN, TOKEN_SIGNALS)?;
        Ok(Agent { core, conns: BTreeMap::new(), next_conn: 0, listener: None, awaited_port: None, signals })
    }

    pub fn listen(&mut self, listener: OwnedFd) -> sys::Result<()> {
        sys::epoll_add(self.core.epoll.raw(), listener.raw(), sys::EPOLLIN, TOKEN_LISTENER)?;
        self.listener = Some(listener);
        Ok(())
    }

    pub fn connect(&mut self, fd: OwnedFd, is_port: bool) {
        // A new host takes the place of one that never proved itself.
        while self.conns.len() >= MAX_CONNECTIONS {
            let victim = self.conns.iter().find(|(_, c)| !c.is_serving()).or_else(|| self.conns.iter().next()).map(|(n, _)| *n);
            if let Some(mut conn) = victim.and_then(|number| self.conns.remove(&number)) {
                conn.forget_all(&mut self.core);
            }
        }
        self.next_conn += 1;
        let conn = Conn::new(self.next_conn, fd, is_port);
        if conn.register(&self.core, TOKEN_CONNECTION | u64::from(self.next_conn)).is_ok() {
            self.conns.insert(self.next_conn, conn);
        }
    }

    /// Serves until asked to stop.
    pub fn run(&mut self) -> Ended {
        let mut busy = true;
        let mut events = [EpollEvent { events: 0, data: 0 }; 64];
        loop {
            let timeout = if busy { 0 } else { self.core.wait_ms() };
            let count = sys::epoll_wait(self.core.epoll.raw(), &mut events, timeout).unwrap_or(0);
            self.core.now_ms = sys::clock_ms(sys::CLOCK_BOOTTIME);
            for event in &events[..count] {
                if let Some(ended) = self.on_event(event.data, event.events) {
                    return ended;
                }
            }
            busy = self.pump();
            if !busy {
                self.core.forget_old_execs();
                if let Some(stop) = self.core.stop_request.take() {
                    return Ended::Stop(stop);
                }
            }
        }
    }

    /// Goes on serving (the stop of the guest is under way) until `done` or the time is over.
    pub fn run_until(&mut self, deadline_ms: u64, mut done: impl FnMut(&mut Core) -> bool) {
        let mut events = [EpollEvent { events: 0, data: 0 }; 64];
        while self.core.now_ms < deadline_ms && !done(&mut self.core) {
            let timeout = (deadline_ms - self.core.now_ms).min(100) as i32;
            let count = sys::epoll_wait(self.core.epoll.raw(), &mut events, timeout).unwrap_or(0);
            self.core.now_ms = sys::clock_ms(sys::CLOCK_BOOTTIME);
            for event in &events[..count] {
                let _ = self.on_event(event.data, event.events);
            }
            while self.pump() {}
        }
    }

    fn on_event(&mut self, token: u64, events: u32) -> Option<Ended> {
        let number = token as u32;
        match token & !0xffff_ffff {
            TOKEN_CONNECTION => {
                if let Some(conn) = self.conns.get_mut(&number) {
                    conn.readable |= events & !sys::EPOLLOUT != 0;
                    conn.writable |= events & (sys::EPOLLOUT | sys::EPOLLHUP | sys::EPOLLERR) != 0;
                }
            }
            TOKEN_EXEC => {
                if let Some(exec) = self.core.execs.get_mut(&number) {
                    exec.mark_ready();
                }
            }
            _ => match token {
                TOKEN_SIGNALS => return self.on_signals(),
                TOKEN_LISTENER => self.accept(),
                TOKEN_CONSOLE => self.core.console.ready = true,
                TOKEN_DEVICES => self.look_for_port(),
                _ => {}
            },
        }
        None
    }

    /// To an init, `reboot` of busybox sends SIGTERM, `poweroff` SIGUSR2 and `halt` SIGUSR1; the kernel's ctrl-alt-del SIGINT.
    fn on_signals(&mut self) -> Option<Ended> {
        let mut info = [0u8; 128];
        while sys::read(self.signals.raw(), &mut info).is_ok() {
            match (info[0], self.core.is_init) {
                (sys::SIGNAL_CHILD, _) => self.core.reap(),
                (sys::SIGNAL_TERM, false) => return Some(Ended::Terminated),
                (sys::SIGNAL_INT | sys::SIGNAL_TERM, true) => return Some(Ended::Stop(StopRequest { restart: true, grace_ms: 5000 })),
                (sys::SIGNAL_POWER | sys::SIGNAL_USR1 | sys::SIGNAL_USR2, true) => {
                    return Some(Ended::Stop(StopRequest { restart: false, grace_ms: 5000 }));
                }
                (sys::SIGNAL_INT, false) => return Some(Ended::Terminated),
                _ => {}
            }
        }
        None
    }

    fn accept(&mut self) {
        while let Some(Ok(fd)) = self.listener.as_ref().map(|l| sys::accept(l.raw())) {
            self.connect(fd, false);
        }
    }

    fn pump(&mut self) -> bool {
        let mut moved = self.core.pump_execs();
        for conn in self.conns.values_mut() {
            moved |= conn.pump(&mut self.core);
            if conn.ended {
                conn.forget_all(&mut self.core);
            }
        }
        self.conns.retain(|_, conn| !conn.ended);
        moved
    }
}
