//! `fluxvm-guest-agent`: PID 1 of our initrd, or a service in the guest.
//!
//! ```text
//! /init (PID 1)                              boots the guest, see `init`
//! serve --config FILE [--listen unix:PATH]   serves; without --listen on the transport that FILE names
//! version
//! ```
#![no_std]
#![no_main]

extern crate alloc;

mod agent;
mod init;
mod rt;
mod service;
mod sys;

use alloc::format;

/// One line for the guest's console (PID 1) or the service's standard error.
#[macro_export]
macro_rules! log {
    ($($part:tt)*) => { $crate::write_log(&alloc::format!($($part)*)) };
}

fn write_log(text: &str) {
    let _ = sys::write_all(2, format!("fluxvm-agent: {text}\n").as_bytes());
}

fn run(start: &rt::Start) -> i32 {
    for fd in 0..3 {
        sys::ensure_open(fd);
    }
    if sys::getpid() == 1 && start.args.get(1).map(|a| rt::c_bytes(*a)) != Some(b"serve") {
        init::run(start);
    }
    let mut args = start.args.iter().skip(1).map(|a| rt::c_bytes(*a));
    match args.next() {
        Some(b"serve") => service::run(args),
        Some(b"version") => {
            let _ = sys::write_all(1, format!("fluxvm-guest-agent {}\n", agent::VERSION).as_bytes());
            0
        }
        _ => {
            log!("usage: fluxvm-guest-agent serve --config FILE [--listen unix:PATH] | version");
            2
        }
    }
}
