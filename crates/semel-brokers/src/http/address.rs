//! Which addresses a webhook may reach.
//!
//! An outbox sends from inside the network, with whatever trust that network gives it, to a place that somebody typed
//! in. Unless the operator says otherwise, that place must be on the public internet. IPv4 is refused by the special
//! blocks of the IANA registry; IPv6 is allowed only within global unicast space, and an address that embeds an IPv4
//! address is judged by the one inside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Public,
    Loopback,
    Private,
    /// Never a receiver, whatever the settings are.
    Never(&'static str),
}

/// What the operator allows beyond public addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) loopback: bool,
    pub(super) private: bool,
}

/// An address that may not be reached, and which setting would change that.
#[derive(Debug, thiserror::Error)]
#[error("a webhook may not be sent to {address}: it is {kind}{hint}")]
pub struct Blocked {
    /// The address that was refused.
    pub address: IpAddr,
    kind: &'static str,
    hint: &'static str,
}

impl Reach {
    /// Passes an address that may be reached.
    pub(super) fn check(self, address: IpAddr) -> Result<IpAddr, Blocked> {
        let (kind, hint) = match classify(address) {
            Class::Public => return Ok(address),
            Class::Loopback if self.loopback => return Ok(address),
            Class::Private if self.private => return Ok(address),
            Class::Loopback => ("a loopback address", "; semel_allow_loopback=true in its URL permits it"),
            Class::Private => ("a private address", "; semel_allow_private=true in its URL permits it"),
            Class::Never(kind) => (kind, ""),
        };
        Err(Blocked { address, kind, hint })
    }
}

/// Where an address leads. What is in no public block is never a receiver.
pub(super) fn classify(address: IpAddr) -> Class {
    match address {
        IpAddr::V4(address) => classify_v4(address),
        IpAddr::V6(address) => classify_v6(address),
    }
}

fn classify_v4(address: Ipv4Addr) -> Class {
    match address.octets() {
        // Metadata services of clouds that sit in public or shared space.
        [168, 63, 129, 16] | [100, 100, 100, 200] => Class::Never("a cloud's metadata service"),
        [0, ..] => Class::Never("unspecified"),
        [127, ..] => Class::Loopback,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Class::Private,
        [169, 254, ..] => Class::Never("link-local"),
        [192, 0, 0, _] => Class::Never("reserved for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Class::Never("for documentation"),
        [192, 88, 99, _] => Class::Never("a 6to4 relay"),
        [198, 18 | 19, ..] => Class::Never("for benchmarks"),
        [224..=239, ..] => Class::Never("multicast"),
        [240..=255, ..] => Class::Never("reserved"),
        _ => Class::Public,
    }
}

fn classify_v6(address: Ipv6Addr) -> Class {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        classify_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        [0, 0, 0, 0, 0, 0, 0, 1] => Class::Loopback,
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        [0, 0, 0, 0, 0, 0, ..] => Class::Never("unspecified or IPv4-compatible"),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2001, 0, ..] => Class::Never("a Teredo tunnel"),
        [0x2001, 0x1..=0x1ff, ..] => Class::Never("reserved for protocols"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Class::Never("for documentation"),
        [0x2002, high, low, ..] => embedded(high, low),
        // ISATAP names its IPv4 address in the interface part, under any prefix.
        [0x2000..=0x3fff, _, _, _, 0 | 0x200, 0x5efe, high, low] => embedded(high, low),
        [0x2000..=0x3fff, ..] => Class::Public,
        [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] => Class::Never("a cloud's metadata service"),
        [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => Class::Never("a cloud's metadata service"),
        [0xfc00..=0xfdff, ..] => Class::Private,
        [0xfe80..=0xfebf, ..] => Class::Never("link-local"),
        [0xff00..=0xffff, ..] => Class::Never("multicast"),
        _ => Class::Never("outside of global unicast space"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_classified_as_public() {
        let never = |address: &str| match classify(address.parse().expect("an address")) {
            Class::Never(_) => {}
            other => panic!("{address} is {other:?}"),
        };
        let is = |class: Class, addresses: &[&str]| {
            for address in addresses {
                assert_eq!(classify(address.parse().expect("an address")), class, "{address}");
            }
        };
        is(
            Class::Public,
            &["1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255"],
        );
        is(Class::Public, &["128.0.0.0", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "198.20.0.0"]);
        is(Class::Public, &["223.255.255.255", "2606:4700::1111", "2001:4860::8888", "2a00::1", "2001:200::1"]);
        is(Class::Public, &["::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1"]);
        is(Class::Loopback, &["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"]);
        is(Class::Loopback, &["2002:7f00:1::1", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:127.0.0.1"]);
        is(
            Class::Private,
            &["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1", "100.127.255.255"],
        );
        is(Class::Private, &["::ffff:10.0.0.1", "64:ff9b::192.168.1.1", "2002:a00:1::", "fc00::1", "fdff:ffff::1"]);
        let nowhere = "
            0.0.0.0 0.1.2.3 169.254.169.254 169.254.0.1 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.1 198.19.255.255
            198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 168.63.129.16 100.100.100.200
            :: ::127.0.0.1 ::8.8.8.8 fe80::1 febf::1 fec0::1 ff02::1 2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1
            2001:20::1 2001:db8::1 3fff::1 3fff:fff::1 100::1 5f00::1 64:ff9b:1::a00:1 4000::1 ::ffff:0:127.0.0.1
            ::ffff:169.254.169.254 64:ff9b::169.254.169.254 2002:a9fe:a9fe:: fd00:ec2::254 fd20:ce::254";
        for address in nowhere.split_whitespace() {
            never(address);
        }
    }

    #[test]
    fn a_setting_opens_its_own_class_and_nothing_else() {
        let all = Reach { loopback: true, private: true };
        let check = |reach: Reach, address: &str| reach.check(address.parse().expect("an address")).is_ok();
        assert!(check(Reach { loopback: true, private: false }, "127.0.0.1"));
        assert!(!check(Reach { loopback: true, private: false }, "10.0.0.1"));
        assert!(check(Reach { loopback: false, private: true }, "10.0.0.1"));
        assert!(!check(Reach { loopback: false, private: true }, "::1"));
        assert!(!check(all, "169.254.169.254") && !check(all, "0.0.0.0") && !check(all, "fe80::1"));
    }
}
