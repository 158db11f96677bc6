//! A small network of its own: namespaces joined by a bridge, whose links can be cut.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Nodes with an address each, on one bridge; gone when dropped.
#[derive(Debug)]
pub struct Network {
    /// Part of all names, so that tests beside each other do not meet.
    tag: String,
    nodes: usize,
}

impl Network {
    /// A network of so many nodes.
    ///
    /// # Errors
    /// If this machine cannot: no root, no `ip`, no `iptables`.
    pub fn new(nodes: usize) -> Result<Self> {
        let tag = format!("{:x}", std::process::id() % 0xFFFF);
        let network = Self { tag, nodes };
        let bridge = network.bridge();
        run("ip", &["link", "add", &bridge, "type", "bridge"])?;
        let own = format!("{}/24", network.address(250));
        run("ip", &["addr", "add", &own, "dev", &bridge])?;
        run("ip", &["link", "set", &bridge, "up"])?;
        for node in 0..nodes {
            network.add(node, &bridge)?;
        }
        Ok(network)
    }

    fn add(&self, node: usize, bridge: &str) -> Result<()> {
        let (namespace, outer) = (self.namespace(node), format!("gv{}-{node}", self.tag));
        run("ip", &["netns", "add", &namespace])?;
        run(
            "ip",
            &[
                "link", "add", &outer, "type", "veth", "peer", "name", "eth0", "netns", &namespace,
            ],
        )?;
        run("ip", &["link", "set", &outer, "master", bridge, "up"])?;
        let address = format!("{}/24", self.address(node));
        self.run_in(node, &["ip", "addr", "add", &address, "dev", "eth0"])?;
        self.run_in(node, &["ip", "link", "set", "eth0", "up"])?;
        self.run_in(node, &["ip", "link", "set", "lo", "up"])
    }

    fn bridge(&self) -> String {
        format!("gb{}", self.tag)
    }

    fn namespace(&self, node: usize) -> String {
        format!("gn{}-{node}", self.tag)
    }

    /// The address of a node.
    ///
    /// # Panics
    /// Beyond 250 nodes.
    pub fn address(&self, node: usize) -> IpAddr {
        let last = u8::try_from(node + 1).expect("a test has few nodes");
        let third = u8::try_from(std::process::id() % 250).expect("less than 250");
        IpAddr::V4(Ipv4Addr::new(10, 231, third, last))
    }

    /// What to put in front of a program that runs on a node.
    pub fn wrapper(&self, node: usize) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(node)]
            .map(str::to_owned)
            .into()
    }

    fn run_in(&self, node: usize, words: &[&str]) -> Result<()> {
        let namespace = self.namespace(node);
        let mut all = vec!["netns", "exec", &namespace];
        all.extend_from_slice(words);
        run("ip", &all)
    }

    /// From now on nothing that `from` sends reaches `to`, without a word to either.
    pub fn cut_link(&self, from: usize, to: usize) -> Result<()> {
        let source = self.address(from).to_string();
        self.run_in(
            to,
            &["iptables", "-I", "INPUT", "-s", &source, "-j", "DROP"],
        )
    }

    /// All links of a node's own making are whole again.
    pub fn restore_links(&self) -> Result<()> {
        for node in 0..self.nodes {
            self.run_in(node, &["iptables", "-F", "INPUT"])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What cannot be removed was never made; there is nobody left to tell.
        for node in 0..self.nodes {
            let _ = run("ip", &["netns", "del", &self.namespace(node)]);
        }
        let _ = run("ip", &["link", "del", &self.bridge()]);
    }
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(words)
        .output()
        .with_context(|| format!("{program} cannot be started"))?;
    ensure!(
        output.status.success(),
        "{program} {} failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
