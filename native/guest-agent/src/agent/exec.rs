//! One process tree started for the host: its pipes, what it wrote, what it is to be fed, and how it ended.
//!
//! ```text
//! Starting ──status pipe closes by exec──► Running ──reaped──► Ended
//!    └──────status pipe holds an error──► (Failed: the record goes)
//! ```
//! Output is kept until the consumer acknowledges it. While a ring is full its pipe is not read, so the process blocks
//! and slows itself alone. A ring of an exec that `drops` forgets its oldest bytes instead, while nobody is attached.
//! After the process ended its output is complete once its pipe is empty; what a left-behind child still writes is read
//! and thrown away, so that it is never stopped by a signal it did not earn.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use guest_agent::failure::{Failure, describe};
use guest_agent::json::Value;
use guest_agent::ring::Ring;
use guest_agent::{object, signals};

use crate::agent::console::Console;
use crate::sys::{self, Ended, OwnedFd, Pid};

pub const RING_BYTES: usize = 1024 * 1024;
/// What every exec may keep however many there are.
pub const RING_MINIMUM_BYTES: usize = 64 * 1024;
pub const STDIN_BYTES: usize = 256 * 1024;
/// How long a terminal's last output may take from the kernel's work queue after its process ended.
const TERMINAL_DRAIN_MS: u64 = 200;

/// A descriptor under edge-triggered epoll: `ready` until a call says `EAGAIN`.
pub struct Pipe {
    pub fd: OwnedFd,
    pub ready: bool,
}

impl Pipe {
    pub fn new(fd: OwnedFd) -> Pipe {
        Pipe { fd, ready: true }
    }
}

pub struct Output {
    pub ring: Ring,
    pub pipe: Option<Pipe>,
    /// Nothing will be added to the ring any more.
    pub complete: bool,
}

impl Output {
    pub fn new(pipe: Option<OwnedFd>) -> Output {
        Output { ring: Ring::new(), complete: pipe.is_none(), pipe: pipe.map(Pipe::new) }
    }

    /// Reads what there is room for. `last` says that an empty pipe is the end.
    fn pump(&mut self, scratch: &mut [u8], bound: usize, last: bool, mut tee: Option<&mut Console>) -> bool {
        let mut moved = false;
        while let Some(pipe) = self.pipe.as_mut().filter(|p| p.ready) {
            let mut room = if self.complete { scratch.len() } else { bound.saturating_sub(self.ring.len()).min(scratch.len()) };
            if let Some(console) = &tee {
                room = room.min(console.room());
            }
            if room == 0 {
                break;
            }
            match sys::read(pipe.fd.raw(), &mut scratch[..room]) {
                Ok(0) => self.close(),
                Ok(count) => {
                    if let Some(console) = &mut tee {
                        console.push(&scratch[..count]);
                    }
                    if !self.complete {
                        self.ring.push(&scratch[..count]);
                    }
                    moved = true;
                }
                Err(error) if error.again() => {
                    pipe.ready = false;
                    self.complete |= last;
                }
                Err(_) => self.close(), // a terminal says EIO when its last user is gone
            }
        }
        moved
    }

    fn close(&mut self) {
        self.pipe = None;
        self.complete = true;
    }
}

pub struct Input {
    pub pipe: Option<Pipe>,
    queue: VecDeque<u8>,
    pub received: u64,
    ended: bool,
    terminal: bool,
}

impl Input {
    pub fn new(pipe: Option<OwnedFd>, terminal: bool) -> Input {
        Input { pipe: pipe.map(Pipe::new), queue: VecDeque::new(), received: 0, ended: false, terminal }
    }

    pub fn has_room(&self) -> bool {
        self.queue.len() < STDIN_BYTES
    }

    /// Takes bytes numbered from `offset`; those already received are dropped.
    pub fn accept(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        if offset > self.received {
            return Err(Failure::invalid("Input bytes are missing before these"));
        }
        let known = (self.received - offset).min(bytes.len() as u64) as usize;
        let fresh = &bytes[known..];
        if !fresh.is_empty() && self.ended {
            return Err(Failure::invalid("Input was already ended"));
        }
        self.received += fresh.len() as u64;
        if self.pipe.is_some() {
            self.queue.extend(fresh);
        }
        Ok(())
    }

    pub fn end(&mut self, offset: u64) -> Result<(), Failure> {
        if offset != self.received {
            return Err(Failure::invalid("Input ends at another place than its bytes"));
        }
        if !self.ended && self.terminal {
            self.queue.push_back(4); // what a terminal's line discipline takes for the end
        }
        self.ended = true;
        Ok(())
    }

    fn pump(&mut self) -> bool {
        let mut moved = false;
        while let Some(pipe) = self.pipe.as_mut().filter(|p| p.ready && !self.queue.is_empty()) {
            match sys::write(pipe.fd.raw(), self.queue.as_slices().0) {
                Ok(count) => {
                    self.queue.drain(..count);
                    moved = true;
                }
                Err(error) if error.again() => pipe.ready = false,
                Err(_) => self.close(), // nobody reads it any more
            }
        }
        if self.ended && self.queue.is_empty() && !self.terminal {
            self.pipe = None;
        }
        moved
    }

    fn close(&mut self) {
        self.pipe = None;
        self.queue = VecDeque::new();
    }
}

pub enum State {
    Starting(OwnedFd),
    Running,
    Failed(Failure),
    Ended(Ended),
}

pub struct Exec {
    pub number: u32,
    pub id: String,
    pub argv: Vec<String>,
    pub pid: Pid,
    pub state: State,
    pub terminal: Option<OwnedFd>,
    pub out: Output,
    pub err: Output,
    pub input: Input,
    pub started_wall_ms: u64,
    pub ended_wall_ms: u64,
    pub ended_ms: u64,
    pub deadline_ms: Option<u64>,
    pub timed_out: bool,
    /// Connection and stream of the one consumer.
    pub attached: Option<(u32, u32)>,
    pub drops: bool,
    pub to_console: bool,
    /// Somebody was told how it ended.
    pub collected: bool,
}

impl Exec {
    pub fn is_ended(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    /// It never ran; the record goes once that was told.
    pub fn is_failed(&self) -> bool {
        matches!(self.state, State::Failed(_))
    }

    /// Ended, and nothing will be added to its output.
    pub fn is_complete(&self) -> bool {
        self.is_ended() && self.out.complete && self.err.complete
    }

    pub fn retained(&self) -> usize {
        self.out.ring.len() + self.err.ring.len()
    }

    pub fn mark_ready(&mut self) {
        for pipe in [&mut self.out.pipe, &mut self.err.pipe, &mut self.input.pipe].into_iter().flatten() {
            pipe.ready = true;
        }
    }

    pub fn on_reaped(&mut self, ended: Ended, now_ms: u64) {
        // Its report of a failed start may not have been read yet.
        self.pump_start();
        if self.is_failed() {
            return;
        }
        self.state = State::Ended(ended);
        self.ended_ms = now_ms;
        self.ended_wall_ms = sys::clock_ms(sys::CLOCK_REALTIME);
        self.input.close();
        self.mark_ready(); // one more read must say "empty" before the output counts as complete
    }

    /// Moves what can be moved. True if anything was.
    pub fn pump(&mut self, scratch: &mut [u8], bound: usize, now_ms: u64, console: &mut Console) -> bool {
        let mut moved = self.pump_start();
        let ended = self.is_ended();
        let last = ended && (self.terminal.is_none() || now_ms >= self.ended_ms + TERMINAL_DRAIN_MS);
        if last && self.terminal.is_some() {
            self.mark_ready();
        }
        if self.drops && self.attached.is_none() {
            for ring in [&mut self.out.ring, &mut self.err.ring] {
                ring.release(ring.end().saturating_sub((bound - bound / 4) as u64));
            }
        }
        for output in [&mut self.out, &mut self.err] {
            moved |= output.pump(scratch, bound, last, if self.to_console { Some(&mut *console) } else { None });
        }
        if ended {
            self.input.close();
        }
        moved | self.input.pump()
    }

    fn pump_start(&mut self) -> bool {
        let State::Starting(status) = &self.state else { return false };
        let mut report = [0u8; 8];
        match sys::read(status.raw(), &mut report) {
            Ok(8) => {
                let [stage, _, _, _, number @ ..] = report;
                let what = match stage {
                    0 => "set up its terminal or input",
                    1 => "change to its user",
                    2 => "change to its working directory",
                    _ => "run it",
                };
                let name = self.argv.first().map_or("", String::as_str);
                let message = alloc::format!("Cannot start {name}: could not {what}: {}", describe(i32::from_ne_bytes(number)));
                self.state = State::Failed(Failure::new("EXEC_START_FAILED", message));
            }
            Err(error) if error.again() => return false,
            _ => self.state = State::Running,
        }
        true
    }

    /// When this exec needs attention without an event.
    pub fn next_deadline(&self) -> Option<u64> {
        match self.state {
            State::Ended(_) if self.terminal.is_some() && !self.is_complete() => Some(self.ended_ms + TERMINAL_DRAIN_MS),
            State::Running | State::Starting(_) => self.deadline_ms.filter(|_| !self.timed_out),
            _ => None,
        }
    }

    pub fn signal(&self, signal: u8, group: bool) -> Result<(), Failure> {
        if self.is_ended() {
            return Ok(());
        }
        let target = if group { -self.pid } else { self.pid };
        sys::kill(target, signal).or_else(|_| sys::kill(self.pid, signal)).map_err(|e| Failure::new("INTERNAL", describe(e.0)))
    }

    pub fn exit_value(&self) -> Value {
        match self.state {
            State::Ended(Ended::Code(code)) => object! { "code": u32::from(code), "timedOut": self.timed_out },
            State::Ended(Ended::Signal(signal)) => object! { "signal": signals::name_of(signal), "timedOut": self.timed_out },
            _ => Value::Null,
        }
    }

    /// Its arguments as far as `budget` bytes go, so that an answer fits into a message however long they are.
    fn argv_value(&self, mut budget: usize) -> Vec<Value> {
        let mut shown = Vec::new();
        for arg in &self.argv {
            let mut end = arg.len().min(budget);
            while !arg.is_char_boundary(end) {
                end -= 1;
            }
            shown.push(Value::from(&arg[..end]));
            if end < arg.len() {
                break;
            }
            budget -= end;
        }
        shown
    }

    pub fn view(&self) -> Value {
        self.view_within(16 * 1024)
    }

    pub fn view_within(&self, argv_bytes: usize) -> Value {
        let range = |ring: &Ring| object! { "start": ring.start(), "end": ring.end() };
        object! {
            "execId": self.id.as_str(),
            "argv": self.argv_value(argv_bytes),
            "pid": i64::from(self.pid),
            "tty": self.terminal.is_some(),
            "state": if self.is_ended() { "exited" } else { "running" },
            "exit": self.exit_value(),
            "startedWallMs": self.started_wall_ms,
            "endedWallMs": if self.is_ended() { Value::from(self.ended_wall_ms) } else { Value::Null },
            "stdinOffset": self.input.received,
            "stdout": range(&self.out.ring),
            "stderr": range(&self.err.ring),
            "attached": self.attached.is_some(),
        }
    }
}
