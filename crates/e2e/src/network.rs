//! A small virtual network: network namespaces on a bridge, with links that can be cut.

use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// A virtual network of nodes on one bridge; removed when dropped.
#[derive(Debug)]
pub struct Network {
    /// Part of all names, so that concurrent tests do not collide.
    tag: String,
    nodes: usize,
}

impl Network {
    /// Creates a network of `nodes` nodes.
    ///
    /// # Errors
    /// If the machine lacks root, `ip` or `iptables`.
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

    /// Returns the address of a node.
    ///
    /// # Panics
    /// Beyond 250 nodes.
    pub fn address(&self, node: usize) -> IpAddr {
        let last = u8::try_from(node + 1).expect("a test has few nodes");
        let third = u8::try_from(std::process::id() % 250).expect("less than 250");
        IpAddr::V4(Ipv4Addr::new(10, 231, third, last))
    }

    /// Returns the prefix of a command line that runs a program on a node.
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

    /// Silently drops everything that `from` sends to `to`.
    pub fn cut_link(&self, from: usize, to: usize) -> Result<()> {
        let source = self.address(from).to_string();
        self.run_in(
            to,
            &["iptables", "-I", "INPUT", "-s", &source, "-j", "DROP"],
        )
    }

    /// Restores all links between the nodes.
    pub fn restore_links(&self) -> Result<()> {
        for node in 0..self.nodes {
            self.run_in(node, &["iptables", "-F", "INPUT"])?;
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // What cannot be removed was never created, and an error could not be reported here.
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
        .with_context(|| format!("cannot start {program}"))?;
    ensure!(
        output.status.success(),
        "{program} {} failed: {}",
        words.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
