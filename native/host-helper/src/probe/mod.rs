//! `probe NAME [ARG]`: does one thing the host may or may not be able to do, and prints one JSON line
//! `{"status":"works|missing|broken","detail":…,"data":…}`. One process per probe: whatever it made, namespaces,
//! links, programs and mappings, goes with it. What to do about a verdict is said by the daemon.
mod bpf;
mod btf;
mod devices;
mod memory;
mod namespaces;
mod netlink;
mod sandbox;

use crate::failure::Failure;
use serde_json::{Value, json};

/// Why something does not work: not there at all, or there and not usable.
pub enum Fault {
    Missing(String),
    Broken(String),
}

pub struct Works {
    pub detail: String,
    pub data: Value,
}

pub type Verdict = Result<Works, Fault>;

pub fn works(detail: impl Into<String>) -> Verdict {
    Ok(Works { detail: detail.into(), data: json!({}) })
}

pub fn works_with(detail: impl Into<String>, data: Value) -> Verdict {
    Ok(Works { detail: detail.into(), data })
}

/// The calling thread's last error, as missing when the kernel knows no such thing and as broken otherwise.
pub fn fault(what: &str) -> Fault {
    classify(&Failure::last("probe", what))
}

pub fn classify(failure: &Failure) -> Fault {
    match failure.errno {
        libc::ENOSYS | libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP => Fault::Missing(failure.message.clone()),
        _ => Fault::Broken(failure.message.clone()),
    }
}

pub fn io_fault(what: &str, error: &std::io::Error) -> Fault {
    classify(&Failure::io("probe", what, error))
}

pub fn main(args: &[String]) -> i32 {
    let argument = args.get(1).map_or("", String::as_str);
    let verdict = match args.first().map(String::as_str) {
        Some("kvm-device") => devices::kvm(),
        Some("vhost-net") => devices::vhost("/dev/vhost-net"),
        Some("vhost-vsock") => devices::vhost("/dev/vhost-vsock"),
        Some("tun") => devices::tun(),
        Some("reflink") => devices::reflink(argument),
        Some("user-namespace") => namespaces::user(),
        Some("net-namespace") => namespaces::net(),
        Some("landlock") => sandbox::landlock(),
        Some("seccomp") => sandbox::seccomp(),
        Some("userfaultfd") => memory::userfaultfd(),
        Some("hugepages") => memory::hugepages(),
        Some("btf") => btf::probe(),
        Some("tc-bpf") => bpf::tc(),
        Some("xdp") => bpf::xdp(),
        Some("bpf-lsm") => bpf::lsm(),
        _ => {
            eprintln!("usage: fluxvm-host-helper probe NAME [ARG]");
            return 2;
        }
    };
    let line = match verdict {
        Ok(works) => json!({ "status": "works", "detail": works.detail, "data": works.data }),
        Err(Fault::Missing(detail)) => json!({ "status": "missing", "detail": detail }),
        Err(Fault::Broken(detail)) => json!({ "status": "broken", "detail": detail }),
    };
    println!("{line}");
    0
}
