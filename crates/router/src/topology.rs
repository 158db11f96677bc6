//! The shards of the system and their addresses.

use std::collections::BTreeMap;
use std::fmt;

use ganger_types::ShardId;

use crate::Owners;

/// Maximum bytes of a topology text.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Addresses of the other shards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// There are no other shards.
    #[default]
    Alone,
    /// Other shards are at these fixed addresses.
    Static(BTreeMap<ShardId, String>),
    /// Other shards are at this address, with the shard's id in place of `%s`.
    Dns(String),
    /// Shards are at the nodes of a cluster, which own them in turn.
    Cluster(Owners),
}

/// The address of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Host and port at which the server of the shard listens: `HOST:PORT`.
    At(String),
    /// It has none at the moment; the text says why.
    Away(String),
    /// No node may serve it until an operator has acted; the text says why.
    Closed(String),
    /// There is no such shard.
    Unknown,
}

/// A topology that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "topology {text:?}: {reason}; write static:1=HOST:PORT,2=HOST:PORT or dns:%s.example.com:3733"
)]
pub struct TopologyError {
    /// The text as given, shortened to fit a line.
    pub text: String,
    /// Description of what is wrong.
    pub reason: String,
}

impl Topology {
    /// Reads `static:1=localhost:3733,2=localhost:3734` or `dns:%s.example.com:3733`.
    ///
    /// # Errors
    /// If the text has neither form.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let refused = |reason: String| TopologyError {
            text: text.chars().take(200).collect(),
            reason,
        };
        if text.len() > TEXT_BYTES_MAX {
            return Err(refused(format!("it is longer than {TEXT_BYTES_MAX} bytes")));
        }
        if let Some(list) = text.strip_prefix("static:") {
            read_list(list).map(Self::Static).map_err(refused)
        } else if let Some(pattern) = text.strip_prefix("dns:") {
            check_pattern(pattern).map_err(refused)?;
            Ok(Self::Dns(pattern.to_owned()))
        } else {
            Err(refused(
                "it begins with neither static: nor dns:".to_owned(),
            ))
        }
    }

    /// Returns the address of a shard.
    pub fn address(&self, shard: &ShardId) -> Address {
        match self {
            Self::Alone => Address::Unknown,
            Self::Static(addresses) => match addresses.get(shard) {
                Some(address) => Address::At(address.clone()),
                None => Address::Unknown,
            },
            Self::Dns(pattern) => Address::At(pattern.replace("%s", shard.as_str())),
            Self::Cluster(owners) => owners.address(shard),
        }
    }

    /// Returns the owners of the shards of a cluster; `None` if the addresses are fixed.
    pub fn owners(&self) -> Option<&Owners> {
        match self {
            Self::Cluster(owners) => Some(owners),
            _ => None,
        }
    }

    /// Whether there are no other shards.
    pub fn is_alone(&self) -> bool {
        matches!(self, Self::Alone)
    }

    /// Returns the listed shards; a pattern lists none.
    pub fn listed(&self) -> Vec<ShardId> {
        match self {
            Self::Static(addresses) => addresses.keys().cloned().collect(),
            Self::Cluster(owners) => owners.shards(),
            Self::Alone | Self::Dns(_) => Vec::new(),
        }
    }
}

fn read_list(list: &str) -> Result<BTreeMap<ShardId, String>, String> {
    let mut addresses = BTreeMap::new();
    for entry in list
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let (shard, address) = entry
            .split_once('=')
            .ok_or_else(|| format!("{entry:?} has no = between shard and address"))?;
        let shard = ShardId::new(shard.trim()).ok_or_else(|| {
            format!("{shard:?} is not a shard: 1 to 64 characters of A-Z a-z 0-9 . _ -")
        })?;
        let address = address.trim();
        check_address(address)?;
        if addresses
            .insert(shard.clone(), address.to_owned())
            .is_some()
        {
            return Err(format!("shard {shard} occurs twice"));
        }
    }
    if addresses.is_empty() {
        return Err("it lists no shard".to_owned());
    }
    Ok(addresses)
}

fn check_address(address: &str) -> Result<(), String> {
    let (host, port) = address
        .rsplit_once(':')
        .ok_or_else(|| format!("{address:?} has no port"))?;
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if host.is_empty() || host.contains(['/', ' ', '@', '?', '#']) || !is_port {
        return Err(format!("{address:?} is not HOST:PORT"));
    }
    Ok(())
}

fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.matches("%s").count() != 1 {
        return Err("the pattern must have %s once, where the shard's id goes".to_owned());
    }
    check_address(&pattern.replace("%s", "1"))
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("alone"),
            Self::Cluster(_) => f.write_str("cluster"),
            Self::Dns(pattern) => write!(f, "dns:{pattern}"),
            Self::Static(addresses) => {
                f.write_str("static:")?;
                for (place, (shard, address)) in addresses.iter().enumerate() {
                    let comma = if place == 0 { "" } else { "," };
                    write!(f, "{comma}{shard}={address}")?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(name: &str) -> ShardId {
        ShardId::new(name).expect("a good name")
    }

    #[test]
    fn a_list_and_a_pattern_read_back() {
        for text in [
            "static:1=localhost:3733,2=localhost:3734",
            "dns:%s.queue.example.com:3733",
        ] {
            let topology = Topology::parse(text).expect("well-formed");
            assert_eq!(topology.to_string(), text);
        }
        let list = Topology::parse("static: a=[::1]:1 , b=h:65535,").expect("spaces are fine");
        let at = |address: &str| Address::At(address.to_owned());
        assert_eq!(list.address(&shard("a")), at("[::1]:1"));
        assert_eq!(list.address(&shard("c")), Address::Unknown);
        let pattern = Topology::parse("dns:%s.q:3733").expect("well-formed");
        assert_eq!(pattern.address(&shard("7")), at("7.q:3733"));
    }

    #[test]
    fn a_malformed_topology_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "neither"),
            ("1=localhost:1", "neither"),
            ("static:", "lists no shard"),
            ("static:1", "no ="),
            ("static:1=localhost", "no port"),
            ("static:1=localhost:0", "HOST:PORT"),
            ("static:1=http://localhost:1", "HOST:PORT"),
            ("static:a b=h:1", "not a shard"),
            ("static:1=h:1,1=h:2", "twice"),
            ("dns:q:3733", "%s once"),
            ("dns:%s.%s:3733", "%s once"),
            ("dns:%s", "no port"),
        ] {
            let error = Topology::parse(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
