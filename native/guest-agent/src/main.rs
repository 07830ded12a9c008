#![no_std]
#![no_main]
extern crate alloc;
mod rt;
mod sys;
#[macro_export]
macro_rules! log { ($($t:tt)*) => { $crate::emit(&alloc::format!($($t)*)) } }
fn emit(s:&str){ let _ = sys::write(2, s.as_bytes()); }
fn run(s: &rt::Start) -> i32 { log!("hello {}\n", s.args.len()); 0 }
