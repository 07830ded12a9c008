//! One host connection: bytes to frames to streams, and back.
//!
//! ```text
//! Silent ──HELLO with the token──► Serving ──HELLO of a new epoch──► Serving (all streams forgotten)
//!    └─ HELLO without it: REFUSED, nothing else is ever served
//! ```
//! A socket ends with its peer. A virtio-serial port never ends: its host comes and goes unseen, which only the next
//! HELLO shows. Execs belong to the agent, not to a connection.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use guest_agent::failure::Failure;
use guest_agent::frame::{self, Frame, Reader};
use guest_agent::json::{self, Value};
use guest_agent::mux::{Event, Mux};
use guest_agent::{hex, object};

use crate::agent::Core;
use crate::agent::handler::{Handler, Outcome};
use crate::agent::{WAKE_ONLY, ops};
use crate::sys::{self, OwnedFd};

const PROTOCOL_VERSION: u64 = 1;
const READ_BYTES: usize = 64 * 1024;
const OUT_BYTES: usize = 128 * 1024;
/// Answers that the host does not take; above this its frames wait.
const CONTROL_BYTES: usize = 64 * 1024;

pub struct Conn {
    number: u32,
    fd: OwnedFd,
    is_port: bool,
    pub readable: bool,
    pub writable: bool,
    reader: Reader,
    out: Vec<u8>,
    out_at: usize,
    mux: Option<Mux>,
    handlers: BTreeMap<u32, Handler>,
    pub ended: bool,
}

impl Conn {
    pub fn new(number: u32, fd: OwnedFd, is_port: bool) -> Conn {
        Conn {
            number,
            fd,
            is_port,
            readable: true,
            writable: true,
            reader: Reader::new(frame::HELLO),
            out: Vec::new(),
            out_at: 0,
            mux: None,
            handlers: BTreeMap::new(),
            ended: false,
        }
    }

    pub fn is_serving(&self) -> bool {
        self.mux.is_some()
    }

    /// Reads once, lets every stream go on, writes what can be written. True if anything moved.
    pub fn pump(&mut self, core: &mut Core) -> bool {
        let mut moved = self.read(core);
        moved |= self.pump_handlers(core);
        moved |= self.write();
        moved
    }

    /// Reads until nothing is there or a bounded amount came: a virtio-serial port gives a page at a time.
    fn read(&mut self, core: &mut Core) -> bool {
        let mut taken = 0;
        while taken < READ_BYTES && self.readable && !self.ended && self.mux.as_ref().is_none_or(|m| m.control_bytes() <= CONTROL_BYTES) {
            match sys::read(self.fd.raw(), &mut core.scratch[..READ_BYTES]) {
                Ok(0) if self.is_port => self.readable = false, // no host is there now
                Ok(0) => self.ended = true,
                Ok(count) => {
                    taken += count;
                    self.reader.push(&core.scratch[..count]);
                    while let Some(frame) = self.reader.next_frame() {
                        self.on_frame(core, frame);
                    }
                }
                Err(error) if error.again() => self.readable = false,
                Err(_) if self.is_port => self.readable = false,
                Err(_) => self.ended = true,
            }
        }
        taken > 0
    }

    fn on_frame(&mut self, core: &mut Core, frame: Frame) {
        if frame.kind == frame::HELLO {
            self.on_hello(core, &frame);
            return;
        }
        let Some(mux) = &mut self.mux else { return };
        match mux.on_frame(frame) {
            Event::Opened(id, request) if request.is_empty() => drop(self.handlers.insert(id, Handler::Request)),
            Event::Opened(id, request) => {
                let who = (self.number, id);
                let outcome = match mux.get(id) {
                    Some(stream) => ops::dispatch(core, stream, who, &request),
                    None => return,
                };
                self.settle(core, id, outcome);
            }
            Event::Closed(id) => self.forget(core, id),
            Event::Nothing => {}
        }
    }

    fn on_hello(&mut self, core: &mut Core, hello: &Frame) {
        let refusal = match json::parse(&hello.payload) {
            Err(failure) => Some(failure),
            Ok(request) => check_hello(core, &request).err(),
        };
        if let Some(failure) = refusal {
            if self.out.len() < OUT_BYTES {
                frame::encode(&mut self.out, frame::REFUSED, hello.epoch, 0, 0, &Value::from(failure).to_bytes());
            }
            return;
        }
        if self.mux.as_ref().map(Mux::epoch) != Some(hello.epoch) {
            self.forget_all(core);
            // What is still to be sent belongs to the old epoch; a half-sent frame is skipped over by the host.
            self.out.clear();
            self.out_at = 0;
            self.mux = Some(Mux::new(hello.epoch));
        }
        let welcome = core.welcome().to_bytes();
        if let Some(mux) = &mut self.mux {
            mux.send_control(frame::WELCOME, 0, 0, &welcome);
        }
    }

    /// The stream is gone: its handler goes, and an exec loses its consumer.
    fn forget(&mut self, core: &mut Core, id: u32) {
        self.handlers.remove(&id);
        core.detach((self.number, id));
    }

    pub fn forget_all(&mut self, core: &mut Core) {
        for id in core::mem::take(&mut self.handlers).into_keys() {
            core.detach((self.number, id));
        }
    }

    fn pump_handlers(&mut self, core: &mut Core) -> bool {
        let mut moved = false;
        let ids: Vec<u32> = self.handlers.keys().copied().collect();
        for id in ids {
            let Some(mut handler) = self.handlers.remove(&id) else { continue };
            let outcome = match self.mux.as_mut().and_then(|m| m.get(id)) {
                Some(stream) => handler.pump(core, stream, (self.number, id)),
                None => {
                    core.detach((self.number, id));
                    continue;
                }
            };
            match outcome {
                Outcome::Idle => drop(self.handlers.insert(id, handler)),
                Outcome::Progress | Outcome::Watch => {
                    if matches!(outcome, Outcome::Watch) {
                        core.watch(&handler);
                    }
                    self.handlers.insert(id, handler);
                    moved = true;
                }
                outcome => {
                    self.settle(core, id, outcome);
                    moved = true;
                }
            }
        }
        moved
    }

    /// Carries out an outcome that ends or replaces the stream's handler.
    fn settle(&mut self, core: &mut Core, id: u32, outcome: Outcome) {
        let Some(mux) = &mut self.mux else { return };
        let Some(stream) = mux.get(id) else { return };
        match outcome {
            Outcome::Become(handler) => {
                core.watch(&handler);
                self.handlers.insert(id, handler);
            }
            Outcome::Reply(json) => {
                stream.send_reply(&json);
                stream.finish();
            }
            Outcome::Finish => stream.finish(),
            Outcome::Fail(failure) => {
                stream.send_json(&object! { "error": failure });
                stream.finish();
            }
            Outcome::Idle | Outcome::Progress | Outcome::Watch => {}
        }
    }

    fn write(&mut self) -> bool {
        let mut moved = false;
        loop {
            if self.out_at == self.out.len() {
                self.out.clear();
                self.out_at = 0;
                if !self.mux.as_mut().is_some_and(|m| m.fill(&mut self.out, OUT_BYTES)) {
                    return moved;
                }
            }
            if !self.writable || self.ended {
                return moved;
            }
            match sys::write(self.fd.raw(), &self.out[self.out_at..]) {
                Ok(count) => {
                    self.out_at += count;
                    moved = true;
                }
                Err(error) if error.again() => self.writable = false,
                Err(_) if self.is_port => self.writable = false,
                Err(_) => self.ended = true,
            }
        }
    }

    pub fn register(&self, core: &Core, token: u64) -> sys::Result<()> {
        sys::epoll_add(core.epoll.raw(), self.fd.raw(), sys::EPOLLIN | sys::EPOLLOUT | sys::EPOLLRDHUP | sys::EPOLLET, token)
    }
}

fn check_hello(core: &Core, hello: &Value) -> Result<(), Failure> {
    if hello.u64("version")? != PROTOCOL_VERSION {
        return Err(Failure::new("AGENT_PROTOCOL", "The guest agent speaks version 1 of the protocol only"));
    }
    // Without a token of its own the agent serves nobody.
    if !hex::is_same_secret(hello.text("token")?.as_bytes(), core.config.token.as_bytes()) {
        return Err(Failure::new("AGENT_AUTH_FAILED", "The guest agent does not accept this token"));
    }
    Ok(())
}

impl Core {
    /// Wakes the loop when the handler's descriptor has something; which handler it is does not matter.
    pub fn watch(&self, handler: &Handler) {
        if let Some(fd) = handler.descriptor() {
            let _ = sys::epoll_add(self.epoll.raw(), fd, sys::EPOLLIN | sys::EPOLLET, WAKE_ONLY);
        }
    }

    pub fn detach(&mut self, who: (u32, u32)) {
        for exec in self.execs.values_mut().filter(|e| e.attached == Some(who)) {
            exec.attached = None;
        }
    }
}
