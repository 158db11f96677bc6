//! Alerts: conditions of the configuration that are watched all the time, and reported when they begin and when they
//! end.

mod judge;
mod message;
mod registry;

use std::path::PathBuf;
use std::time::Duration;

use ganger_document::measure::{bytes, percent, span};
use ganger_document::names::show;
use ganger_document::view::attention::Gravity;
use ganger_types::{Namespace, Queue};

pub use judge::Verdict;
pub use message::{
    ALERT_LABEL, KIND, NAMESPACE, QUEUE, STATE_LABEL, alert_of, enqueue, newest, read_state,
};
pub use registry::{Alerts, Change, Status, What};

/// Characters of the name of an alert.
pub const NAME_MAX: usize = 64;
/// Maximum number of alerts in a configuration.
pub const ALERTS_MAX: usize = 100;

/// An alert of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// Name of the alert, of letters, digits and `-_.`; unique within the configuration.
    pub name: String,
    /// Namespace whose queues are watched.
    pub namespace: Namespace,
    /// Queue that is watched; `None`: each queue of the namespace.
    pub queue: Option<Queue>,
    /// Condition under which the alert fires.
    pub condition: Condition,
    /// Time for which the condition must hold, and must not hold again, before that is reported.
    pub hold_for: Duration,
    /// Gravity of the item while it fires.
    pub gravity: Gravity,
    /// Where messages are sent; `None`: nowhere, the alert is shown and counted only.
    pub webhook: Option<Webhook>,
}

/// What an alert watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Condition {
    /// The oldest ready job of a queue has waited longer.
    OlderThan(Duration),
    /// More than this part of the attempts of the last 5 minutes failed, in millionths.
    FailureRateAbove {
        /// Part of the attempts, in millionths.
        millionths: u64,
        /// Number of attempts below which nothing is judged.
        attempts_min: u64,
    },
    /// A queue has ready jobs, runs none, and no worker has asked for so long.
    NoWorkersFor(Duration),
    /// More than 1 % of the commits of the last 5 minutes took longer.
    CommitsSlowerThan(Duration),
    /// The server's certificate ends within this time.
    CertificateEndsWithin(Duration),
    /// Fewer bytes are free on the disk of a shard.
    DiskFreeBelow(u64),
}

impl Condition {
    /// Whether it is about queues; otherwise it is about the server.
    pub fn is_of_queues(&self) -> bool {
        matches!(
            self,
            Self::OlderThan(_) | Self::FailureRateAbove { .. } | Self::NoWorkersFor(_)
        )
    }
}

impl Alert {
    /// Returns the condition in words.
    pub fn words(&self) -> String {
        let queue = match &self.queue {
            Some(queue) => format!("queue {}", show(queue.as_bytes())),
            None => "a queue".to_owned(),
        };
        match self.condition {
            Condition::OlderThan(age) => {
                format!("{queue}: a job is ready for more than {}", span(age))
            }
            Condition::FailureRateAbove {
                millionths,
                attempts_min,
            } => format!(
                "{queue}: more than {} of at least {attempts_min} attempts failed in 5 min",
                percent(millionths)
            ),
            Condition::NoWorkersFor(silent) => {
                format!(
                    "{queue}: jobs are ready, and no worker has asked for {}",
                    span(silent)
                )
            }
            Condition::CommitsSlowerThan(limit) => {
                format!(
                    "more than 1 % of commits took longer than {} in 5 min",
                    span(limit)
                )
            }
            Condition::CertificateEndsWithin(left) => {
                format!("the certificate ends within {}", span(left))
            }
            Condition::DiskFreeBelow(free) => {
                format!("less than {} are free on a disk", bytes(free))
            }
        }
    }
}

/// Where messages of an alert are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// Address that messages are posted to, of `http` or `https`.
    pub url: String,
    /// File with the secret that signs messages; `None`: they are not signed.
    pub secret_file: Option<PathBuf>,
    /// File of the authorities of the receiver's certificate; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
}
