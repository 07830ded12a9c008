//! Everything of the guest agent that makes no system call, so that it can be tested like any other library:
//! frame codec, streams and windows, JSON, the config disk, users, netlink messages.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod accounts;
pub mod config;
pub mod crc;
pub mod failure;
pub mod frame;
pub mod hex;
pub mod json;
pub mod message;
pub mod mux;
pub mod netlink;
pub mod ring;
pub mod signals;
