//! What is going on for one open stream. `pump` is called whenever something may have moved and never waits.

use alloc::string::String;
use alloc::vec::Vec;

use guest_agent::failure::Failure;
use guest_agent::json::{self, Value};
use guest_agent::mux::Stream;
use guest_agent::{message, object};

use crate::agent::Core;
use crate::agent::exec::{Exec, State};
use crate::agent::files::{Listing, Reading, Watching, Writing};
use crate::agent::job::Job;
use crate::agent::ops;
use crate::sys::Fd;

const OUTPUT_PIECE_BYTES: usize = 16 * 1024;

pub enum Outcome {
    Idle,
    Progress,
    /// Progress, and the handler's descriptor is to be watched.
    Watch,
    /// Answered in full.
    Finish,
    /// One answer, already JSON, then finished.
    Reply(Vec<u8>),
    Fail(Failure),
    Become(Handler),
}

pub enum Handler {
    /// The request did not fit into OPEN and comes as the first message.
    Request,
    Starting {
        exec: u32,
        attach: Option<Value>,
    },
    Attached(Attached),
    Waiting {
        exec: u32,
    },
    Job(Job),
    Freezing(Freezing),
    Reading(Reading),
    Writing(Writing),
    Listing(Listing),
    Watching(Watching),
}

impl Handler {
    /// A descriptor whose readiness is a reason to pump.
    pub fn descriptor(&self) -> Option<Fd> {
        match self {
            Handler::Job(job) => Some(job.pipe.raw()),
            Handler::Freezing(freezing) => Some(freezing.job.pipe.raw()),
            Handler::Writing(writing) => writing.job_pipe().map(|pipe| pipe.raw()),
            Handler::Watching(watching) => Some(watching.fd.raw()),
            _ => None,
        }
    }

    /// `who` is the connection and the stream.
    pub fn pump(&mut self, core: &mut Core, stream: &mut Stream, who: (u32, u32)) -> Outcome {
        match self {
            Handler::Request => match message::take(stream.rx()) {
                Err(failure) => Outcome::Fail(failure),
                Ok(None) if stream.is_input_over() => Outcome::Fail(Failure::invalid("The stream ended before its request")),
                Ok(None) => Outcome::Idle,
                Ok(Some(request)) => ops::dispatch(core, stream, who, &request.body),
            },
            Handler::Starting { exec, attach } => pump_starting(core, stream, who, *exec, attach),
            Handler::Attached(attached) => attached.pump(core, stream, who),
            Handler::Waiting { exec } => match core.execs.get_mut(exec) {
                Some(exec) if exec.is_complete() => {
                    exec.collected = true;
                    Outcome::Reply(object! { "exec": exec.view() }.to_bytes())
                }
                Some(_) => Outcome::Idle,
                None => Outcome::Fail(ops::exec_gone()),
            },
            Handler::Job(job) => pump_job(job),
            Handler::Freezing(freezing) => freezing.pump(core),
            Handler::Reading(reading) => reading.pump(stream, &mut core.scratch),
            // Writing to a frozen file system would stop the whole agent, which alone can thaw it.
            Handler::Writing(_) if !core.frozen.is_empty() => Outcome::Idle,
            Handler::Writing(writing) => writing.pump(stream),
            Handler::Listing(listing) => listing.pump(stream, &mut core.scratch),
            Handler::Watching(watching) => watching.pump(stream, &mut core.scratch),
        }
    }
}

fn pump_job(job: &mut Job) -> Outcome {
    match job.poll() {
        None => Outcome::Idle,
        Some(Ok(json)) => Outcome::Reply(json),
        Some(Err(failure)) => Outcome::Fail(failure),
    }
}

/// A file system being frozen or thawed. Counted as frozen from the request on, until thawing has succeeded.
pub struct Freezing {
    pub job: Job,
    pub path: String,
    pub freezes: bool,
    /// It was not frozen before.
    pub is_new: bool,
}

impl Freezing {
    fn pump(&mut self, core: &mut Core) -> Outcome {
        let outcome = pump_job(&mut self.job);
        let over = match &outcome {
            Outcome::Reply(json) if json.starts_with(b"{\"error\"") => self.is_new,
            Outcome::Reply(_) => !self.freezes,
            Outcome::Fail(_) => self.is_new,
            _ => false,
        };
        if over {
            core.frozen.retain(|path| *path != self.path);
        }
        outcome
    }
}

fn pump_starting(core: &mut Core, stream: &mut Stream, who: (u32, u32), number: u32, attach: &mut Option<Value>) -> Outcome {
    let Some(exec) = core.execs.get_mut(&number) else {
        return Outcome::Fail(ops::exec_gone());
    };
    match &exec.state {
        State::Starting(_) => Outcome::Idle,
        State::Failed(failure) => Outcome::Fail(failure.clone()),
        State::Running | State::Ended(_) => match attach.take() {
            None => Outcome::Reply(object! { "exec": exec.view() }.to_bytes()),
            Some(from) => attach_to(exec, &from, stream, who).map_or_else(Outcome::Fail, |a| Outcome::Become(Handler::Attached(a))),
        },
    }
}

/// One consumer of an exec's output and source of its input.
pub struct Attached {
    exec: u32,
    sent: [u64; 2],
    exit_sent: bool,
    stdin_told: u64,
    turn: usize,
}

/// Begins to send from the offsets asked for. Everything before them counts as acknowledged.
pub fn attach_to(exec: &mut Exec, from: &Value, stream: &mut Stream, who: (u32, u32)) -> Result<Attached, Failure> {
    let mut sent = [0; 2];
    for (i, name) in ["stdoutOffset", "stderrOffset"].into_iter().enumerate() {
        let ring = if i == 0 { &exec.out.ring } else { &exec.err.ring };
        sent[i] = from.opt_u64(name)?.unwrap_or(ring.start());
        if sent[i] < ring.start() {
            let message = alloc::format!("Output before byte {} was acknowledged and dropped; byte {} was asked for", ring.start(), sent[i]);
            return Err(Failure::new("EXEC_OUTPUT_LOST", message));
        }
        if sent[i] > ring.end() {
            let message = alloc::format!("The guest has output up to byte {} only; byte {} was asked for, so it was set back", ring.end(), sent[i]);
            return Err(Failure::new("EXEC_OUTPUT_LOST", message));
        }
    }
    exec.out.ring.release(sent[0]);
    exec.err.ring.release(sent[1]);
    exec.attached = Some(who);
    stream.send_json(&object! { "exec": exec.view() });
    Ok(Attached { exec: exec.number, sent, exit_sent: false, stdin_told: exec.input.received, turn: 0 })
}

impl Attached {
    fn pump(&mut self, core: &mut Core, stream: &mut Stream, who: (u32, u32)) -> Outcome {
        let Some(exec) = core.execs.get_mut(&self.exec) else {
            return Outcome::Fail(ops::exec_gone());
        };
        if exec.attached != Some(who) {
            return Outcome::Fail(Failure::new("EXEC_TAKEN_OVER", "Another consumer attached to the exec"));
        }
        let mut moved = false;
        match self.take_input(exec, stream) {
            Ok(took) => moved |= took,
            Err(failure) => {
                exec.attached = None;
                return Outcome::Fail(failure);
            }
        }
        if exec.input.received > self.stdin_told {
            self.stdin_told = exec.input.received;
            stream.send_json(&object! { "stdinOffset": self.stdin_told });
        }
        while stream.wants_output() && self.send_piece(exec, stream) {
            moved = true;
        }
        let all_sent = self.sent == [exec.out.ring.end(), exec.err.ring.end()];
        if exec.is_complete() && all_sent && !self.exit_sent {
            stream.send_json(&object! { "exit": exec.exit_value(), "stdoutEnd": exec.out.ring.end(), "stderrEnd": exec.err.ring.end() });
            exec.collected = true;
            self.exit_sent = true;
            moved = true;
        }
        if stream.is_input_over() {
            // The consumer leaves; what it did not acknowledge stays.
            exec.attached = None;
            return Outcome::Finish;
        }
        if moved { Outcome::Progress } else { Outcome::Idle }
    }

    fn send_piece(&mut self, exec: &Exec, stream: &mut Stream) -> bool {
        for _ in 0..2 {
            self.turn = 1 - self.turn;
            let (ring, kind) = if self.turn == 0 { (&exec.out.ring, message::STDOUT) } else { (&exec.err.ring, message::STDERR) };
            let bytes = ring.copy(self.sent[self.turn], OUTPUT_PIECE_BYTES);
            if !bytes.is_empty() {
                stream.send_offset(kind, self.sent[self.turn], &bytes);
                self.sent[self.turn] += bytes.len() as u64;
                return true;
            }
        }
        false
    }

    fn take_input(&self, exec: &mut Exec, stream: &mut Stream) -> Result<bool, Failure> {
        let mut moved = false;
        // A message is not taken while the process's own input is full: so its window stays shut and the sender waits.
        while exec.input.has_room() {
            let Some(part) = message::take(stream.rx())? else { break };
            moved = true;
            match part.kind {
                message::STDIN => {
                    let (offset, bytes) = message::split_offset(&part.body).ok_or_else(|| Failure::invalid("An input message is too short"))?;
                    exec.input.accept(offset, bytes)?;
                }
                message::JSON => self.take_control(exec, &json::parse(&part.body)?)?,
                _ => return Err(Failure::invalid("An unexpected message on an exec's stream")),
            }
        }
        Ok(moved)
    }

    fn take_control(&self, exec: &mut Exec, control: &Value) -> Result<(), Failure> {
        control.only(&["ack", "stdinEnd"])?;
        if let Some(ack) = control.get("ack") {
            // More than was sent cannot have been consumed.
            exec.out.ring.release(ack.opt_u64("stdout")?.unwrap_or(0).min(self.sent[0]));
            exec.err.ring.release(ack.opt_u64("stderr")?.unwrap_or(0).min(self.sent[1]));
        }
        match control.opt_u64("stdinEnd")? {
            Some(offset) => exec.input.end(offset),
            None => Ok(()),
        }
    }
}
