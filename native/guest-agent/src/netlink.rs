//! Route netlink messages for what a guest needs: link up, an address, a default route. Builders only; see `man 7 rtnetlink`.

use alloc::vec::Vec;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLM_F_REPLACE: u16 = 0x100;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFLA_MTU: u16 = 4;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const IFF_UP: u32 = 1;
const IFA_F_NODAD: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    V4([u8; 4]),
    V6([u8; 16]),
}

impl Address {
    pub fn parse(text: &str) -> Option<Address> {
        match text.parse::<core::net::IpAddr>().ok()? {
            core::net::IpAddr::V4(v4) => Some(Address::V4(v4.octets())),
            core::net::IpAddr::V6(v6) => Some(Address::V6(v6.octets())),
        }
    }

    /// `10.0.2.15/24`; without a length, that of one host.
    pub fn parse_with_prefix(text: &str) -> Option<(Address, u8)> {
        let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
        let address = Address::parse(address)?;
        let most = address.bytes().len() as u8 * 8;
        let length = length.map_or(Some(most), |l| l.parse().ok())?;
        (length <= most).then_some((address, length))
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Address::V4(bytes) => bytes,
            Address::V6(bytes) => bytes,
        }
    }

    fn family(&self) -> u8 {
        match self {
            Address::V4(_) => 2,
            Address::V6(_) => 10,
        }
    }
}

fn message(kind: u16, flags: u16, body: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = alloc::vec![0; 4];
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(body);
    for (name, value) in attributes {
        out.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        out.extend_from_slice(&name.to_ne_bytes());
        out.extend_from_slice(value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_ne_bytes());
    out
}

pub fn link_up(index: u32, mtu: Option<u32>) -> Vec<u8> {
    let mut body = [0u8; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body[8..12].copy_from_slice(&IFF_UP.to_ne_bytes());
    body[12..16].copy_from_slice(&IFF_UP.to_ne_bytes());
    let mtu = mtu.map(u32::to_ne_bytes);
    match &mtu {
        Some(mtu) => message(RTM_NEWLINK, 0, &body, &[(IFLA_MTU, mtu)]),
        None => message(RTM_NEWLINK, 0, &body, &[]),
    }
}

pub fn add_address(index: u32, address: &Address, prefix: u8) -> Vec<u8> {
    let mut body = [address.family(), prefix, IFA_F_NODAD, 0, 0, 0, 0, 0];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, &body, &[(IFA_LOCAL, address.bytes()), (IFA_ADDRESS, address.bytes())])
}

pub fn add_default_route(index: u32, gateway: &Address) -> Vec<u8> {
    // family, lengths, tos, main table, boot protocol, global scope, unicast
    let body = [gateway.family(), 0, 0, 0, 254, 3, 0, 1, 0, 0, 0, 0];
    message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, &body, &[(RTA_GATEWAY, gateway.bytes()), (RTA_OIF, &index.to_ne_bytes())])
}

/// The kernel's error number in an acknowledgement; 0 is success.
pub fn parse_ack(reply: &[u8]) -> Option<i32> {
    const NLMSG_ERROR: u16 = 2;
    let kind = u16::from_ne_bytes([*reply.get(4)?, *reply.get(5)?]);
    let code = i32::from_ne_bytes(reply.get(16..20)?.try_into().ok()?);
    (kind == NLMSG_ERROR).then_some(-code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(Address::parse_with_prefix("10.0.2.15/24"), Some((Address::V4([10, 0, 2, 15]), 24)));
        assert_eq!(Address::parse_with_prefix("10.0.2.15").map(|a| a.1), Some(32));
        assert_eq!(Address::parse_with_prefix("fd00::2/64").map(|a| (a.0.bytes()[15], a.1)), Some((2, 64)));
        for bad in ["", "10.0.2/24", "10.0.2.15/33", "fd00::/129", "10.0.2.15/x"] {
            assert_eq!(Address::parse_with_prefix(bad), None, "{bad}");
        }
    }

    #[test]
    fn messages_have_the_kernels_layout() {
        let message = add_address(3, &Address::V4([10, 0, 2, 15]), 24);
        assert_eq!(message.len(), 16 + 8 + 8 + 8);
        assert_eq!(message[0], 40);
        assert_eq!(&message[16..24], &[2, 24, 2, 0, 3, 0, 0, 0]);
        assert_eq!(&message[24..32], &[8, 0, 2, 0, 10, 0, 2, 15]);
        assert_eq!(link_up(1, Some(1400)).len(), 16 + 16 + 8);
        assert_eq!(add_default_route(2, &Address::V4([10, 0, 2, 2])).len(), 16 + 12 + 8 + 8);
    }

    #[test]
    fn acknowledgements() {
        let mut ack = vec![36, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ack.extend_from_slice(&(-17i32).to_ne_bytes());
        assert_eq!(parse_ack(&ack), Some(17));
        assert_eq!(parse_ack(&ack[..10]), None);
    }
}
