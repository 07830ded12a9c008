//! The guest's console as a place to copy the workload's output to. Bounded: whoever fills it waits for the serial line.

use alloc::collections::VecDeque;

use crate::sys::{self, OwnedFd};

const QUEUE_BYTES: usize = 64 * 1024;

pub struct Console {
    pub fd: Option<OwnedFd>,
    pub ready: bool,
    queue: VecDeque<u8>,
}

impl Console {
    pub fn new(fd: Option<OwnedFd>) -> Console {
        Console { fd, ready: true, queue: VecDeque::new() }
    }

    pub fn room(&self) -> usize {
        QUEUE_BYTES - self.queue.len().min(QUEUE_BYTES)
    }

    pub fn push(&mut self, bytes: &[u8]) {
        if self.fd.is_some() {
            self.queue.extend(bytes);
        }
    }

    pub fn pump(&mut self) -> bool {
        let mut moved = false;
        while let Some(fd) = self.fd.as_ref().filter(|_| self.ready && !self.queue.is_empty()) {
            match sys::write(fd.raw(), self.queue.as_slices().0) {
                Ok(count) => {
                    self.queue.drain(..count);
                    moved = true;
                }
                Err(error) if error.again() => self.ready = false,
                Err(_) => {
                    self.fd = None;
                    self.queue.clear();
                }
            }
        }
        moved
    }
}
