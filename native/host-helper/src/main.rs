//! `fluxvm-host-helper`: system calls that the daemon's runtime does not have. It holds no policy.
//!
//! Modes, chosen by the first argument:
//! - `serve`: the long-lived process of one daemon, spoken to over the socket at descriptor 3 (`serve.rs`).
//! - `launch`: started by `serve` per process; reads a specification, drops everything and execs (`launch/`).
//! - `lock`: takes an exclusive flock on descriptor 3, which the caller shares, and ends (`lock.rs`).
//! - `probe NAME`: does one thing the host may or may not be able to do and prints a verdict (`probe/`).
//! - `unpack`: image layers, unprivileged (`unpack/`).
mod cgroup;
mod failure;
mod files;
mod frame;
mod identity;
mod launch;
mod lock;
mod notify;
mod probe;
mod serve;
mod spawn;
mod unpack;
mod vsock;
mod watch;

fn main() {
    let args: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let rest = args.get(1..).unwrap_or(&[]);
    let code = match args.first().map(String::as_str) {
        Some("serve") => serve::main(),
        Some("launch") => launch::main(),
        Some("lock") => lock::main(),
        Some("probe") => probe::main(rest),
        Some("unpack") => unpack::main(rest),
        Some("--version") => {
            println!("fluxvm-host-helper {}", env!("CARGO_PKG_VERSION"));
            0
        }
        _ => {
            eprintln!("usage: fluxvm-host-helper serve|launch|lock|probe|unpack");
            2
        }
    };
    std::process::exit(code);
}
