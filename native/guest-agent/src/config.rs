//! The guest's configuration, as the host writes it on the config disk (`packages/guest-protocol/src/guest-config.ts`)
//! or into a file for the service. Disk: `FLUXCFG1`, length u32, CRC-32 u32 of the JSON, the JSON, zeros.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::crc::crc32;
use crate::failure::Failure;
use crate::hex;
use crate::json::{self, Value};

pub const MAGIC: &[u8; 8] = b"FLUXCFG1";
pub const DISK_HEADER_BYTES: usize = 16;
pub const MAX_JSON_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The virtio-serial port of this name.
    Port(String),
    /// An AF_VSOCK listener.
    Vsock(u32),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    pub serial: String,
    pub fstype: String,
    pub readonly: bool,
    pub grow: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Interface {
    pub mac: Option<[u8; 6]>,
    pub name: Option<String>,
    pub address: Option<String>,
    pub gateway: Option<String>,
    pub address6: Option<String>,
    pub gateway6: Option<String>,
    pub mtu: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Network {
    pub interfaces: Vec<Interface>,
    pub nameservers: Vec<String>,
    pub search: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Workload {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub user: String,
    pub cwd: String,
    pub stop_signal: String,
    pub tty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    Auto,
    Agent,
    Image,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub vm_id: String,
    pub token: String,
    pub hostname: String,
    pub transport: Transport,
    pub root: Option<Root>,
    pub init: Init,
    pub network: Option<Network>,
    pub wall_clock_ms: Option<u64>,
    pub entropy: Vec<u8>,
    pub workload: Option<Workload>,
    pub power_off_by_reboot: bool,
}

impl Config {
    /// Of a guest that nobody configured: no token, so nobody is served.
    pub fn unconfigured() -> Config {
        Config {
            vm_id: String::new(),
            token: String::new(),
            hostname: "fluxvm".to_string(),
            transport: Transport::Port("fluxvm.agent".to_string()),
            root: None,
            init: Init::Auto,
            network: None,
            wall_clock_ms: None,
            entropy: Vec::new(),
            workload: None,
            power_off_by_reboot: false,
        }
    }
}

/// The length of the JSON that follows a disk's header, if it is one of ours.
pub fn parse_disk_header(header: &[u8]) -> Option<usize> {
    if header.len() < DISK_HEADER_BYTES || &header[..8] != MAGIC {
        return None;
    }
    let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    (length <= MAX_JSON_BYTES).then_some(length)
}

/// A whole config disk.
pub fn parse_disk(disk: &[u8]) -> Result<Config, Failure> {
    let length = parse_disk_header(disk).ok_or_else(|| Failure::invalid("The config disk does not begin with FLUXCFG1"))?;
    let text = disk.get(DISK_HEADER_BYTES..DISK_HEADER_BYTES + length).ok_or_else(|| Failure::invalid("The config disk is cut short"))?;
    if crc32(0, text) != u32::from_le_bytes([disk[12], disk[13], disk[14], disk[15]]) {
        return Err(Failure::invalid("The config disk's checksum does not fit"));
    }
    parse(text)
}

/// The JSON alone. Fields of later versions are passed over; those we know must be right.
pub fn parse(text: &[u8]) -> Result<Config, Failure> {
    let value = json::parse(text)?;
    if value.u64("version")? != 1 {
        return Err(Failure::invalid("Invalid version: must be 1"));
    }
    let token = value.opt_text("token")?.unwrap_or("").to_string();
    if !token.is_empty() && (token.len() < 32 || token.len() > 128) {
        return Err(Failure::invalid("Invalid token: must be 32 to 128 characters"));
    }
    Ok(Config {
        vm_id: value.opt_text("vmId")?.unwrap_or("").to_string(),
        token,
        hostname: value.opt_text("hostname")?.unwrap_or("fluxvm").to_string(),
        transport: parse_transport(value.get("agent"))?,
        root: value.get("root").map(parse_root).transpose()?,
        init: match value.opt_text("init")?.unwrap_or("auto") {
            "auto" => Init::Auto,
            "agent" => Init::Agent,
            "image" => Init::Image,
            _ => return Err(Failure::invalid("Invalid init: must be auto, agent or image")),
        },
        network: value.get("network").map(parse_network).transpose()?,
        wall_clock_ms: value.opt_u64("wallClockMs")?,
        entropy: hex::decode(value.opt_text("entropy")?.unwrap_or("")).ok_or_else(|| Failure::invalid("Invalid entropy: must be hex"))?,
        workload: value.get("workload").map(parse_workload).transpose()?,
        power_off_by_reboot: value.opt_text("powerOff")? == Some("reboot"),
    })
}

fn parse_transport(agent: Option<&Value>) -> Result<Transport, Failure> {
    let Some(agent) = agent else {
        return Ok(Transport::Port("fluxvm.agent".to_string()));
    };
    match agent.text("transport")? {
        "virtio-serial" => Ok(Transport::Port(agent.opt_text("portName")?.unwrap_or("fluxvm.agent").to_string())),
        "vsock" => Ok(Transport::Vsock(agent.opt_u64("port")?.unwrap_or(17777) as u32)),
        _ => Err(Failure::invalid("Invalid agent.transport: must be virtio-serial or vsock")),
    }
}

fn parse_root(root: &Value) -> Result<Root, Failure> {
    Ok(Root {
        serial: root.opt_text("serial")?.unwrap_or("fluxvm-root").to_string(),
        fstype: root.opt_text("fstype")?.unwrap_or("ext4").to_string(),
        readonly: root.flag("readonly")?,
        grow: root.flag("grow")?,
    })
}

fn parse_mac(text: &str) -> Result<[u8; 6], Failure> {
    let bytes: Vec<u8> = text.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
    bytes.try_into().map_err(|_| Failure::invalid("Invalid network.interfaces.mac: must be six hex bytes"))
}

fn parse_network(network: &Value) -> Result<Network, Failure> {
    let own = |value: &Value, name: &str| value.opt_text(name).map(|t| t.map(ToString::to_string));
    let interfaces = network.list("interfaces")?.iter().map(|i| {
        Ok(Interface {
            mac: i.opt_text("mac")?.map(parse_mac).transpose()?,
            name: own(i, "name")?,
            address: own(i, "address")?,
            gateway: own(i, "gateway")?,
            address6: own(i, "address6")?,
            gateway6: own(i, "gateway6")?,
            mtu: i.opt_u64("mtu")?.map(|m| m as u32),
        })
    });
    Ok(Network {
        interfaces: interfaces.collect::<Result<_, Failure>>()?,
        nameservers: network.texts("nameservers")?,
        search: network.texts("search")?,
    })
}

fn parse_workload(workload: &Value) -> Result<Workload, Failure> {
    let own = |name: &str| workload.opt_text(name).map(|t| t.unwrap_or("").to_string());
    Ok(Workload {
        argv: workload.texts("argv")?,
        env: workload.pairs("env")?,
        user: own("user")?,
        cwd: own("cwd")?,
        stop_signal: own("stopSignal")?,
        tty: workload.flag("tty")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_shared_fixture() {
        let fixture = include_bytes!("../../../packages/guest-protocol/fixtures/guest-config.json");
        let fixture = json::parse(fixture).expect("JSON");
        let disk = hex::decode(fixture.text("diskHex").expect("disk")).expect("hex");
        assert_eq!(disk.len() % 512, 0);
        let config = parse_disk(&disk).expect("valid");
        assert_eq!(config.vm_id, "vm-0123456789abcdef");
        assert_eq!(config.token.len(), 64);
        assert_eq!(config.transport, Transport::Port("fluxvm.agent".into()));
        assert_eq!(config.root, Some(Root { serial: "fluxvm-root".into(), fstype: "ext4".into(), readonly: false, grow: true }));
        let network = config.network.expect("network");
        assert_eq!(network.interfaces[0].mac, Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]));
        assert_eq!(network.interfaces[0].address.as_deref(), Some("10.0.2.15/24"));
        let workload = config.workload.expect("workload");
        assert_eq!(workload.argv, ["/bin/app", "--flag", "ünïcode"]);
        assert_eq!(workload.env, [("PATH".to_string(), "/bin".to_string())]);
        assert_eq!(config.entropy.len(), 32);
    }

    #[test]
    fn a_damaged_disk_is_refused() {
        let text = br#"{"version":1}"#;
        let mut disk = MAGIC.to_vec();
        disk.extend_from_slice(&(text.len() as u32).to_le_bytes());
        disk.extend_from_slice(&crc32(0, text).to_le_bytes());
        disk.extend_from_slice(text);
        assert!(parse_disk(&disk).is_ok());
        for at in 0..disk.len() {
            let mut bad = disk.clone();
            bad[at] ^= 1;
            assert!(parse_disk(&bad).is_err(), "byte {at}");
        }
        assert!(parse_disk(&disk[..disk.len() - 1]).is_err());
        assert!(parse_disk(&[0; 512]).is_err());
    }

    #[test]
    fn wrong_values_name_their_field() {
        for (text, part) in [
            (r#"{"version":2}"#, "version"),
            (r#"{"version":1,"token":"short"}"#, "token"),
            (r#"{"version":1,"init":"maybe"}"#, "init"),
            (r#"{"version":1,"entropy":"xyz"}"#, "entropy"),
            (r#"{"version":1,"agent":{"transport":"pigeon"}}"#, "agent.transport"),
            (r#"{"version":1,"network":{"interfaces":[{"mac":"1:2"}]}}"#, "mac"),
        ] {
            assert!(parse(text.as_bytes()).unwrap_err().message.contains(part), "{text}");
        }
    }
}
