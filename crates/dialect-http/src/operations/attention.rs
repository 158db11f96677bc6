//! Operations for what needs attention, and for alerts.

use ganger_access::Right;
use ganger_document::view::alert::{AlertTestDoc, AlertsDoc};
use ganger_document::view::attention::AttentionDoc;
use http::Method;

use super::{Operation, operation};
use crate::resource::{alerts, attention};

pub(super) fn about_attention() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/attention",
            "getAttention",
            Right::OBSERVE,
            "Shows what needs attention in the namespace and on all shards, the worst first.",
            attention::show,
        )
        .reply::<AttentionDoc>(),
        operation(
            M::GET,
            "/api/v1/alerts",
            "listAlerts",
            Right::OBSERVE.on_server(),
            "Lists the alerts of the configuration with their states.",
            alerts::list,
        )
        .reply::<AlertsDoc>(),
        operation(
            M::POST,
            "/api/v1/alerts/{alert}/test",
            "testAlert",
            Right::OPERATE.on_server(),
            "Sends a test message to the webhook of an alert; the end of its job tells what came of it.",
            alerts::test,
        )
        .reply::<AlertTestDoc>(),
    ]
}
