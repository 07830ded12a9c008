//! eBPF: the smallest program of each type is loaded and attached. See bpf(2) and `linux/bpf.h`.
use super::{Fault, Verdict, btf, fault, namespaces, netlink, works, works_with};
use serde_json::json;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const BPF_PROG_LOAD: u32 = 5;
const BPF_RAW_TRACEPOINT_OPEN: u32 = 17;
const BPF_LINK_CREATE: u32 = 28;
const TYPE_SCHED_CLS: u32 = 3;
const TYPE_XDP: u32 = 6;
const TYPE_LSM: u32 = 29;
const ATTACH_LSM_MAC: u32 = 27;
const ATTACH_XDP: u32 = 37;
const XDP_GENERIC: u32 = 1 << 1;
const XDP_NATIVE: u32 = 1 << 2;
const XDP_PASS: i32 = 2;
const LSM_HOOK: &str = "bpf_lsm_file_mprotect";

/// The fields of `union bpf_attr` for BPF_PROG_LOAD, as far as used.
#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    prog_type: u32,
    insn_count: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_count: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_count: u32,
    attach_btf_id: u32,
    attach_prog_fd: u32,
}

fn bpf<T>(command: u32, attributes: &T, what: &str) -> Result<OwnedFd, Fault> {
    // SAFETY: the structure has the size passed; the memory it names outlives the call.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, std::mem::size_of::<T>()) };
    if fd < 0 {
        return Err(match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EPERM) => Fault::Broken(format!("{what}: not permitted (no privileges, or kernel lockdown)")),
            _ => fault(what),
        });
    }
    // SAFETY: the call made the descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Loads `return VALUE`.
fn load(prog_type: u32, value: i32, more: LoadAttr, what: &str) -> Result<OwnedFd, Fault> {
    // mov r0, VALUE; exit
    let program: [u64; 2] = [0xB7 | (value as u32 as u64) << 32, 0x95];
    let license = c"GPL";
    let attributes = LoadAttr { prog_type, insn_count: 2, insns: program.as_ptr() as u64, license: license.as_ptr() as u64, ..more };
    bpf(BPF_PROG_LOAD, &attributes, what)
}

pub fn tc() -> Verdict {
    namespaces::enter_private_net()?;
    let program = load(TYPE_SCHED_CLS, -1, LoadAttr::default(), "load a classifier")?;
    let index = netlink::make_veth("fluxvm-probe")?;
    netlink::add_clsact(index)?;
    netlink::add_classifier(index, program.as_raw_fd())?;
    works("a classifier runs at clsact of a veth, direct action")
}

fn attach_xdp(program: &OwnedFd, index: u32, flags: u32) -> Result<OwnedFd, Fault> {
    let attributes: [u32; 4] = [program.as_raw_fd() as u32, index, ATTACH_XDP, flags];
    bpf(BPF_LINK_CREATE, &attributes, "attach")
}

pub fn xdp() -> Verdict {
    namespaces::enter_private_net()?;
    let program = load(TYPE_XDP, XDP_PASS, LoadAttr::default(), "load an XDP program")?;
    let index = netlink::make_veth("fluxvm-probe")?;
    drop(attach_xdp(&program, index, XDP_GENERIC)?);
    let native = attach_xdp(&program, index, XDP_NATIVE).is_ok();
    let how = if native { "generic and native" } else { "generic" };
    works_with(format!("attached to a veth ({how})"), json!({ "native": native }))
}

/// Modules in force, from securityfs, which is mounted in this process's own namespace where it is not yet.
fn active_modules() -> Result<String, Fault> {
    use nix::mount::{MsFlags, mount};
    let none: Option<&str> = None;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(|_| fault("new mount namespace"))?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|_| fault("make mounts private"))?;
    if !std::fs::exists("/sys/kernel/security/lsm").unwrap_or(false) {
        mount(Some("securityfs"), "/sys/kernel/security", Some("securityfs"), MsFlags::empty(), none).map_err(|_| fault("mount securityfs"))?;
    }
    std::fs::read_to_string("/sys/kernel/security/lsm").map_err(|e| super::io_fault("read the active modules", &e))
}

pub fn lsm() -> Verdict {
    let Some(hook) = btf::Btf::read_kernel()?.find_function(LSM_HOOK)? else {
        return Err(Fault::Missing("the kernel is built without BPF LSM".into()));
    };
    let modules = active_modules()?;
    if !modules.trim().split(',').any(|m| m == "bpf") {
        return Err(Fault::Missing(format!("not among the active security modules ({})", modules.trim())));
    }
    let more = LoadAttr { expected_attach_type: ATTACH_LSM_MAC, attach_btf_id: hook, ..LoadAttr::default() };
    let program = load(TYPE_LSM, 0, more, "load an LSM program")?;
    #[repr(C)]
    struct OpenAttr {
        name: u64,
        program: u32,
        pad: u32,
    }
    let _link = bpf(BPF_RAW_TRACEPOINT_OPEN, &OpenAttr { name: 0, program: program.as_raw_fd() as u32, pad: 0 }, "attach to a hook")?;
    works_with("a program was attached to a hook", json!({ "hook": LSM_HOOK }))
}
