//! What to launch. Unknown fields are refused: a misspelt restriction must never be a restriction that is missing.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LaunchSpec {
    /// `argv[0]` is an absolute path, looked up in the new root.
    pub argv: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<String>,
    #[serde(default)]
    pub credentials: Option<Credentials>,
    #[serde(default)]
    pub namespaces: Namespaces,
    /// Absent: the host's root.
    #[serde(default)]
    pub root: Option<Root>,
    /// Directories of cgroups to join, each with a `cgroup.procs`.
    #[serde(default)]
    pub cgroups: Vec<String>,
    #[serde(default)]
    pub rlimits: BTreeMap<String, u64>,
    /// Names without `CAP_`; everything else is dropped.
    #[serde(default)]
    pub keep_capabilities: Vec<String>,
    #[serde(default)]
    pub oom_score_adj: Option<i32>,
    #[serde(default)]
    pub stdout: Output,
    #[serde(default)]
    pub stderr: Output,
    #[serde(default)]
    pub fds: Vec<Descriptor>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    #[serde(default)]
    pub groups: Vec<u32>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Namespaces {
    #[serde(default)]
    pub pid: bool,
    #[serde(default)]
    pub ipc: bool,
    #[serde(default)]
    pub uts: bool,
    /// `new`, or the path of an existing network namespace. Absent: the host's.
    #[serde(default)]
    pub net: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Root {
    pub mounts: Vec<Mount>,
    /// Nodes under /dev beyond the harmless ones every root gets.
    #[serde(default)]
    pub devices: Vec<Device>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    pub path: String,
    #[serde(default)]
    pub optional: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Mount {
    Bind {
        source: String,
        target: String,
        #[serde(default)]
        readonly: bool,
        #[serde(default)]
        optional: bool,
    },
    #[serde(rename_all = "camelCase")]
    Tmpfs {
        target: String,
        #[serde(default)]
        size_bytes: Option<u64>,
    },
    Proc {
        target: String,
    },
    /// A symbolic link, for example `/lib64` to `usr/lib64`.
    Symlink {
        source: String,
        target: String,
    },
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Output {
    #[default]
    Null,
    /// Appended to, created 0600.
    File { path: String },
    #[serde(rename_all = "camelCase")]
    Rotated { path: String, max_bytes: u64, keep: u32 },
    /// Standard error only: wherever standard output goes.
    Stdout,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", deny_unknown_fields)]
pub enum Descriptor {
    /// The write end of a bounded, rotated log.
    #[serde(rename_all = "camelCase")]
    Rotated { fd: i32, path: String, max_bytes: u64, keep: u32 },
    /// A file opened on the host with the launcher's rights.
    Open {
        fd: i32,
        path: String,
        #[serde(default)]
        write: bool,
    },
}

impl Descriptor {
    pub fn target(&self) -> i32 {
        match self {
            Descriptor::Rotated { fd, .. } | Descriptor::Open { fd, .. } => *fd,
        }
    }
}

/// What is wrong with the specification, before anything is done.
pub fn check(spec: &LaunchSpec) -> Result<(), String> {
    let program = spec.argv.first().ok_or("argv is empty")?;
    if !program.starts_with('/') {
        return Err(format!("argv[0] must be an absolute path: {program}"));
    }
    let texts = spec.argv.iter().chain(spec.env.keys()).chain(spec.env.values());
    if texts.into_iter().any(|t| t.contains('\0')) {
        return Err("zero byte in argv or env".into());
    }
    if spec.env.keys().any(|k| k.is_empty() || k.contains('=')) {
        return Err("bad name in env".into());
    }
    let mut taken = Vec::new();
    for descriptor in &spec.fds {
        let fd = descriptor.target();
        if !(3..=63).contains(&fd) || taken.contains(&fd) {
            return Err(format!("descriptor {fd} must be between 3 and 63 and used once"));
        }
        taken.push(fd);
    }
    if matches!(spec.stdout, Output::Stdout) {
        return Err("stdout cannot go to stdout".into());
    }
    for log in log_limits(spec) {
        if log.0 < 4096 || log.1 > 100 {
            return Err("a rotated log needs at least 4096 bytes and keeps at most 100 files".into());
        }
    }
    match &spec.root {
        Some(root) => check_mounts(&root.mounts),
        None => Ok(()),
    }
}

/// A mount point below a writable bind would be looked up through what an unprivileged process may have put there.
fn check_mounts(mounts: &[Mount]) -> Result<(), String> {
    let mut writable: Vec<String> = Vec::new();
    for mount in mounts {
        let target = mount_target(mount);
        check_target(target)?;
        if writable.iter().any(|w| target.starts_with(w)) {
            return Err(format!("mount target lies in a writable mount: {target}"));
        }
        if matches!(mount, Mount::Bind { readonly: false, .. }) {
            writable.push(format!("{target}/"));
        }
    }
    Ok(())
}

fn log_limits(spec: &LaunchSpec) -> Vec<(u64, u32)> {
    let outputs = [&spec.stdout, &spec.stderr].into_iter().filter_map(|o| match o {
        Output::Rotated { max_bytes, keep, .. } => Some((*max_bytes, *keep)),
        _ => None,
    });
    let fds = spec.fds.iter().filter_map(|d| match d {
        Descriptor::Rotated { max_bytes, keep, .. } => Some((*max_bytes, *keep)),
        Descriptor::Open { .. } => None,
    });
    outputs.chain(fds).collect()
}

pub fn mount_target(mount: &Mount) -> &str {
    match mount {
        Mount::Bind { target, .. } | Mount::Tmpfs { target, .. } | Mount::Proc { target } | Mount::Symlink { target, .. } => target,
    }
}

fn check_target(target: &str) -> Result<(), String> {
    let clean = target.starts_with('/') && target.len() > 1 && target[1..].split('/').all(|p| !p.is_empty() && p != "." && p != "..");
    if clean { Ok(()) } else { Err(format!("mount target must be a plain absolute path: {target}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<LaunchSpec, String> {
        let spec: LaunchSpec = serde_json::from_str(json).map_err(|e| e.to_string())?;
        check(&spec)?;
        Ok(spec)
    }

    #[test]
    fn bad_specifications_are_refused() {
        for (json, part) in [
            (r#"{"argv":[]}"#, "argv is empty"),
            (r#"{"argv":["sh"]}"#, "absolute"),
            (r#"{"argv":["/bin/sh","a\u0000b"]}"#, "zero byte"),
            (r#"{"argv":["/bin/sh"],"env":{"A=B":"1"}}"#, "bad name"),
            (r#"{"argv":["/bin/sh"],"uid":5}"#, "unknown field"),
            (r#"{"argv":["/bin/sh"],"fds":[{"kind":"open","fd":2,"path":"/x"}]}"#, "between 3 and 63"),
            (r#"{"argv":["/bin/sh"],"stdout":{"kind":"rotated","path":"/x","maxBytes":1,"keep":1}}"#, "4096"),
            (r#"{"argv":["/bin/sh"],"root":{"mounts":[{"kind":"bind","source":"/","target":"/a/../b"}]}}"#, "plain absolute"),
            (r#"{"argv":["/bin/sh"],"root":{"mounts":[{"kind":"tmpfs","target":"/"}]}}"#, "plain absolute"),
            (
                r#"{"argv":["/bin/sh"],"root":{"mounts":[{"kind":"bind","source":"/a","target":"/a"},{"kind":"tmpfs","target":"/a/b"}]}}"#,
                "writable mount",
            ),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.contains(part), "{json} gave {error}");
        }
        assert!(parse(r#"{"argv":["/bin/sh"],"root":{"mounts":[{"kind":"bind","source":"/usr","target":"/usr","readonly":true}]}}"#).is_ok());
    }
}
