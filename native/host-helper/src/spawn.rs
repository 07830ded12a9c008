//! Starts `launch` for one process, reads its status pipe to the end and takes the process over.
//!
//! The process becomes a child of this one (a subreaper) when `launch` ends, so it cannot vanish or be recycled before
//! its identity is read and its pidfd is open.
use crate::failure::{Failure, Outcome};
use crate::identity::{Identity, identify, open_pidfd};
use crate::watch::Watcher;
use serde::Serialize;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LAUNCH_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spawned {
    pub identity: Identity,
    pub skipped: Vec<String>,
}

#[derive(Default)]
struct Report {
    pid: Option<i32>,
    failure: Option<Failure>,
    skipped: Vec<String>,
}

pub fn spawn(spec: &Value, watch_id: u64, watcher: &Watcher) -> Outcome<Spawned> {
    let _pause = watcher.pause_reaping();
    let mut launcher = Command::new("/proc/self/exe")
        .arg("launch")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|e| Failure::io("fork", "start launcher", &e))?;
    let text = read_report(&mut launcher, spec);
    if text.is_err() {
        let _ = launcher.kill();
    }
    let _ = launcher.wait();
    let report = parse_report(text.as_deref().unwrap_or(""));
    let failure = text.err().or(report.failure);
    match (report.pid, failure) {
        (Some(pid), None) => {
            let identity = identify(pid)?;
            watcher.add(open_pidfd(pid)?, pid, watch_id)?;
            Ok(Spawned { identity, skipped: report.skipped })
        }
        (pid, failure) => {
            if let Some(pid) = pid {
                put_down(pid);
            }
            Err(failure.unwrap_or_else(|| Failure::of("system", "fork", "the launcher ended without a word")))
        }
    }
}

/// Kills and reaps a process of ours that failed on its way.
fn put_down(pid: i32) {
    let pid = nix::unistd::Pid::from_raw(pid);
    // Our own unreaped child: the pid cannot have been used again.
    let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    let _ = nix::sys::wait::waitpid(pid, None);
}

fn read_report(launcher: &mut Child, spec: &Value) -> Outcome<String> {
    let deadline = Instant::now() + LAUNCH_DEADLINE;
    let (Some(mut stdin), Some(mut stdout)) = (launcher.stdin.take(), launcher.stdout.take()) else {
        return Err(Failure::of("system", "fork", "no pipes"));
    };
    stdin.write_all(spec.to_string().as_bytes()).map_err(|e| Failure::io("spec", "send", &e))?;
    drop(stdin);
    let mut text = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: stdout.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid pollfd is passed.
        let ready = unsafe { libc::poll(&mut poll, 1, left.as_millis() as i32) };
        if ready == 0 && left.is_zero() {
            // What is known so far counts: the process is put down by its pid.
            text.extend_from_slice(format!("{}\n", serde_json::json!({ "failure": late() })).as_bytes());
            break;
        }
        if ready <= 0 {
            continue;
        }
        match stdout.read(&mut buffer).map_err(|e| Failure::io("fork", "read status", &e))? {
            0 => break,
            n => text.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn late() -> Failure {
    Failure::of("deadline", "exec", "the process did not start in time")
}

fn parse_report(text: &str) -> Report {
    let mut report = Report::default();
    for line in text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
        if let Some(pid) = line["pid"].as_i64() {
            report.pid = Some(pid as i32);
        }
        if let Ok(failure) = serde_json::from_value(line["failure"].clone()) {
            report.failure = Some(failure);
        }
        let skipped = line["skipped"].as_array().into_iter().flatten();
        report.skipped.extend(skipped.filter_map(|s| s.as_str().map(String::from)));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_in_any_order_and_with_noise() {
        let failure = Failure::errno("exec", libc::ENOENT, "/nope");
        let text = format!("{}\nnoise\n{}\n{}\n", serde_json::json!({"failure": failure}), r#"{"pid":7,"skipped":["a"]}"#, r#"{"skipped":["b"]}"#);
        let report = parse_report(&text);
        assert_eq!((report.pid, report.skipped), (Some(7), vec!["a".to_string(), "b".to_string()]));
        assert_eq!(report.failure.unwrap().code, "ENOENT");
    }
}
