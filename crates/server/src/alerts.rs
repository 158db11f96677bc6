//! Watches the alerts of the configuration, and delivers their messages.
//!
//! A change is stored as an ordinary job before anybody is told (`ganger_attention::alert`), so a restart loses none and
//! repeats none. The jobs are leased here, by a small worker within the server.

mod deliver;
mod webhook;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ganger_attention::Attention;
use ganger_attention::alert::{Alert, Alerts, enqueue, newest, read_state};
use ganger_metrics::{Exposition, Source};
use ganger_shard::{Handle, Health};
use ganger_types::Namespace;
use tokio_util::sync::CancellationToken;

/// Interval between checks whether another shard keeps the messages.
const HOME_CHECK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a secret.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 4_096;

/// Starts to watch, if there are alerts, and to deliver, if any of them has a webhook.
pub(crate) fn start(attention: &Attention, every: Duration, stopping: &CancellationToken) {
    if attention.alerts().all().is_empty() {
        return;
    }
    let following = follow(attention.clone(), every, stopping.clone());
    let until = stopping.clone();
    tokio::spawn(async move { until.run_until_cancelled(following).await });
}

/// Watches and delivers on the shard that keeps the messages, and on another one if the process loses that shard.
async fn follow(attention: Attention, every: Duration, stopping: CancellationToken) {
    loop {
        if let Some(shard) = attention.home() {
            let on_this = stopping.child_token();
            start_on(&attention, shard.clone(), every, &on_this);
            while attention.home().is_some_and(|now| now.is_same(&shard)) {
                tokio::time::sleep(HOME_CHECK_EVERY).await;
            }
            on_this.cancel();
        }
        tokio::time::sleep(HOME_CHECK_EVERY).await;
    }
}

fn start_on(attention: &Attention, shard: Handle, every: Duration, stopping: &CancellationToken) {
    let alerts = Arc::clone(attention.alerts());
    if alerts.all().iter().any(|alert| alert.webhook.is_some()) {
        let delivering = deliver::run(shard.clone(), Arc::clone(&alerts));
        let until = stopping.clone();
        tokio::spawn(async move { until.run_until_cancelled(delivering).await });
    }
    let watching = watch(attention.clone(), shard, alerts, every);
    let until = stopping.clone();
    tokio::spawn(async move { until.run_until_cancelled(watching).await });
}

async fn watch(attention: Attention, shard: Handle, alerts: Arc<Alerts>, every: Duration) {
    if matches!(shard.ready().await, Health::Stopped { .. }) {
        return;
    }
    restore(&shard, &alerts).await;
    let mut ticks = tokio::time::interval(every);
    loop {
        ticks.tick().await;
        look(&attention, &shard, &alerts).await;
    }
}

/// Takes over which alerts fired when the server stopped, as their newest messages tell.
async fn restore(shard: &Handle, alerts: &Alerts) {
    for alert in alerts.all().iter().filter(|alert| alert.webhook.is_some()) {
        match newest(shard, &alert.name).await {
            Ok(Some(payload)) => {
                if let Some((since, text)) = read_state(&payload) {
                    alerts.restore(&alert.name, since, text);
                }
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(alert = alert.name, %error, "the state of an alert cannot be read");
            }
        }
    }
}

/// Judges all alerts once, and stores what has changed.
async fn look(attention: &Attention, shard: &Handle, alerts: &Alerts) {
    let namespaces: BTreeSet<&Namespace> =
        alerts.all().iter().map(|alert| &alert.namespace).collect();
    for namespace in namespaces {
        let facts = attention.facts(namespace).await;
        let of_namespace = |alert: &&Alert| alert.namespace == *namespace;
        for alert in alerts.all().iter().filter(of_namespace) {
            let verdict = alert.judge(&facts);
            let Some(change) = alerts.observe(&alert.name, verdict, facts.now) else {
                continue;
            };
            tracing::warn!(
                alert = alert.name,
                state = change.what.as_str(),
                found = change.text,
                "an alert has changed"
            );
            if alert.webhook.is_none() {
                continue;
            }
            if let Err(error) = enqueue(shard, alert, &change).await {
                tracing::error!(alert = alert.name, %error, "the message of an alert cannot be stored; it is tried again");
                alerts.undo(&alert.name, &change);
            }
        }
    }
}

/// Returns the metrics of the alerts.
pub(crate) fn metrics(alerts: Arc<Alerts>) -> Source {
    Arc::new(move |out: &mut Exposition| {
        let all = alerts.list();
        let help = "1 while an alert of the configuration fires, else 0.";
        let mut firing = out.gauge("ganger_alert_firing", help);
        for (alert, state) in &all {
            let labels = [("alert", alert.name.as_str())];
            firing.sample(&labels, u64::from(state.firing_since.is_some()));
        }
        let help = "Tries to deliver messages of alerts, by outcome.";
        let mut messages = out.counter("ganger_alert_messages_total", help);
        for (alert, state) in &all {
            for (outcome, number) in [("delivered", state.delivered), ("failed", state.failed)] {
                let labels = [("alert", alert.name.as_str()), ("outcome", outcome)];
                messages.sample(&labels, number);
            }
        }
    })
}

/// Reads the secret that signs messages, without the white space around it.
///
/// # Errors
/// If the file cannot be read, or its secret is too short or too long.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let secret = bytes.trim_ascii().to_vec();
    if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
        return Ok(secret);
    }
    Err(format!(
        "has a secret of {} bytes, {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} are needed: make one with `openssl rand -hex 32`",
        secret.len()
    ))
}
