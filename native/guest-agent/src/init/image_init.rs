//! Handing over to the image's own init, with the agent beside it and the image unchanged: what we add is in `/run`.

use alloc::vec::Vec;

use guest_agent::config::{Config, Init, Network};
use guest_agent::failure::describe;
use guest_agent::hex;

use crate::init::{first_existing, is_auto_or, report};
use crate::log;
use crate::sys::{self, Fork};

const SYSTEMD: [&[u8]; 2] = [b"/lib/systemd/systemd", b"/usr/lib/systemd/systemd"];
const BINARY: &[u8] = b"/run/fluxvm/fluxvm-guest-agent";
const CONFIG: &[u8] = b"/run/fluxvm/config.json";
const UNIT: &str = "\
[Unit]
Description=FluxVM guest agent
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/run/fluxvm/fluxvm-guest-agent serve --config /run/fluxvm/config.json
Restart=always
RestartSec=100ms
OOMScoreAdjust=-900
KillMode=process
TasksMax=infinity

[Install]
WantedBy=sysinit.target
";

enum Kind {
    Systemd(Vec<u8>),
    Other(Vec<u8>),
}

/// What the image would run as PID 1. Called inside the root.
fn find() -> Option<Kind> {
    let systemd = first_existing(&SYSTEMD);
    let init = b"/sbin/init";
    if let Some(systemd) = &systemd {
        // Some images keep another init beside systemd.
        let target = sys::read_link(init).unwrap_or_default();
        if !sys::exists(init) || target.ends_with(b"systemd") {
            return Some(Kind::Systemd(systemd.clone()));
        }
    }
    first_existing(&[init, b"/etc/init", b"/init"]).map(Kind::Other)
}

/// Busybox puts an `/sbin/init` into images that have nothing for it to start.
fn is_bare_busybox(init: &[u8]) -> bool {
    sys::read_link(init).is_ok_and(|target| target.ends_with(b"busybox"))
        && first_existing(&[b"/sbin/openrc", b"/usr/sbin/openrc", b"/etc/init.d/rcS"]).is_none()
}

pub fn is_wanted(wanted: Init) -> bool {
    if !is_auto_or(wanted, Init::Image) {
        return false;
    }
    match find() {
        None => false,
        Some(Kind::Systemd(_)) => true,
        Some(Kind::Other(init)) => wanted == Init::Image || !is_bare_busybox(&init),
    }
}

/// Returns only when init could not be run.
pub fn start(config: &Config, text: &[u8], env: &[*const u8]) {
    report("make /run/fluxvm", sys::mkdir(b"/run/fluxvm", 0o755));
    let binary = sys::read_file(b"/proc/self/exe", 1 << 22).unwrap_or_default();
    report("copy the agent", sys::write_file(BINARY, &binary, 0o755));
    let serves = !config.token.is_empty();
    if serves {
        report("write the agent's configuration", sys::write_file(CONFIG, text, 0o600));
    }
    let init = match find() {
        Some(Kind::Systemd(init)) => {
            if serves {
                add_unit();
            }
            if let Some(network) = &config.network {
                offer_network(network);
            }
            init
        }
        Some(Kind::Other(init)) => {
            if serves {
                report("start the agent", fork_agent());
            }
            init
        }
        None => return,
    };
    let error = exec(&[&init], env);
    log!("cannot run the image's init: {}", describe(error.0));
}

fn exec(args: &[&[u8]], env: &[*const u8]) -> sys::Errno {
    let strings: Vec<Vec<u8>> = args.iter().map(|a| [a, &b"\0"[..]].concat()).collect();
    let mut argv: Vec<*const u8> = strings.iter().map(|s| s.as_ptr()).collect();
    argv.push(core::ptr::null());
    let mut envp = env.to_vec();
    envp.push(core::ptr::null());
    sys::reset_signals();
    // SAFETY: both arrays end with null; their strings end with NUL: ours by construction, the kernel's by contract.
    unsafe { sys::execve(args[0], argv.as_ptr(), envp.as_ptr()) }
}

fn add_unit() {
    let wants = b"/run/systemd/system/sysinit.target.wants";
    report("make the unit's directory", sys::mkdir_parents(wants, 0o755));
    report("write the unit", sys::write_file(b"/run/systemd/system/fluxvm-guest-agent.service", UNIT.as_bytes(), 0o644));
    let link = [&wants[..], b"/fluxvm-guest-agent.service"].concat();
    report("enable the unit", sys::symlink(b"../fluxvm-guest-agent.service", &link));
}

fn fork_agent() -> sys::Result<()> {
    if let Fork::Child = sys::fork()? {
        sys::setsid();
        exec(&[BINARY, b"serve", b"--config", CONFIG], &[]);
        sys::exit(127)
    }
    Ok(())
}

/// For an image with systemd and nothing that sets its network up: the addresses by systemd-networkd, or at once.
fn offer_network(network: &Network) {
    let others: [&[u8]; 6] = [
        b"/usr/bin/cloud-init",
        b"/usr/sbin/NetworkManager",
        b"/usr/sbin/ifup",
        b"/sbin/ifup",
        b"/usr/sbin/netplan",
        b"/etc/systemd/system/multi-user.target.wants/systemd-networkd.service",
    ];
    if first_existing(&others).is_some() {
        return;
    }
    let udev = first_existing(&[b"/lib/systemd/systemd-udevd", b"/usr/lib/systemd/systemd-udevd"]);
    let networkd = first_existing(&[b"/lib/systemd/system/systemd-networkd.service", b"/usr/lib/systemd/system/systemd-networkd.service"]);
    // networkd leaves an interface alone until udev has seen it; and without udev nobody will rename it either.
    let Some(networkd) = networkd.filter(|_| udev.is_some()) else {
        super::network::apply_addresses(network);
        return;
    };
    report("make /run/systemd/network", sys::mkdir_parents(b"/run/systemd/network", 0o755));
    for (i, interface) in network.interfaces.iter().enumerate() {
        let mut unit = alloc::string::String::from("[Match]\n");
        if let Some(mac) = &interface.mac {
            let pairs: Vec<_> = mac.iter().map(|b| hex::encode(&[*b])).collect();
            unit += &alloc::format!("MACAddress={}\n", pairs.join(":"));
        } else {
            unit += "Type=ether\n";
        }
        if let Some(mtu) = interface.mtu {
            unit += &alloc::format!("[Link]\nMTUBytes={mtu}\n");
        }
        unit += "[Network]\nIPv6AcceptRA=no\n";
        for (key, value) in
            [("Address", &interface.address), ("Address", &interface.address6), ("Gateway", &interface.gateway), ("Gateway", &interface.gateway6)]
        {
            if let Some(value) = value {
                unit += &alloc::format!("{key}={value}\n");
            }
        }
        for server in &network.nameservers {
            unit += &alloc::format!("DNS={server}\n");
        }
        let path = alloc::format!("/run/systemd/network/90-fluxvm-{i}.network");
        report("write the network unit", sys::write_file(path.as_bytes(), unit.as_bytes(), 0o644));
    }
    let wants = b"/run/systemd/system/multi-user.target.wants";
    report("make the unit's directory", sys::mkdir_parents(wants, 0o755));
    let _ = sys::symlink(&networkd, &[&wants[..], b"/systemd-networkd.service"].concat());
    super::network::write_resolv_conf(network);
}
