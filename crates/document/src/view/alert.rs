//! Alerts of the configuration, as documents.

use std::time::SystemTime;

use serde::Serialize;
use utoipa::ToSchema;

use crate::time::{Moment, moment_if_any};
use crate::view::attention::Gravity;

/// An alert with its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Alert {
    /// Name of the alert.
    pub name: String,
    /// Condition of the alert, in words.
    pub condition: String,
    /// Gravity of the alert: `error` or `warning`.
    pub gravity: Gravity,
    /// Whether the alert fires now.
    pub firing: bool,
    /// Time since which the alert fires; absent if it does not.
    #[serde(
        serialize_with = "moment_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Moment>)]
    pub since: Option<SystemTime>,
    /// What was found when it fired last; empty before.
    pub text: String,
    /// Whether messages are sent.
    pub webhook: bool,
    /// Number of messages that were delivered since the server started.
    pub delivered: u64,
    /// Number of tries of messages that failed since the server started.
    pub failed: u64,
    /// Why the last try failed; absent after one that did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// List of the alerts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Alerts)]
pub struct AlertsDoc {
    /// Alerts in the order of the configuration.
    pub alerts: Vec<Alert>,
}

/// A message that was stored, and will be sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AlertTest)]
pub struct AlertTestDoc {
    /// Job of the message, as `shard/id`, in the namespace `ganger`; its end tells what the receiver answered.
    pub job: String,
}
