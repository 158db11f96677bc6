//! `ganger alerts`: the alerts of a server's configuration.

use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use ganger_client::{Alert, JobState};

use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// Namespace of the messages.
const NAMESPACE: &str = "ganger";
/// Longest wait for the answer of a receiver.
const WAIT: Duration = Duration::from_secs(30);

/// What to do with the alerts.
#[derive(Debug, Subcommand)]
pub(crate) enum AlertsCommand {
    /// List the alerts with their states.
    List,
    /// Send a test message to the webhook of an alert, and show what the receiver answered.
    Test(TestArgs),
}

/// Which alert to test.
#[derive(Args, Debug)]
pub(crate) struct TestArgs {
    /// Name of the alert.
    name: String,
}

pub(crate) async fn run(context: &Context, command: AlertsCommand) -> Outcome {
    match command {
        AlertsCommand::List => list(context).await,
        AlertsCommand::Test(args) => test(context, &args.name).await,
    }
}

async fn list(context: &Context) -> Outcome {
    let alerts = context.client().await?.alerts().await?;
    if context.is_json() {
        for alert in &alerts {
            context.json(alert)?;
        }
    } else if alerts.is_empty() {
        remark("the configuration has no alerts; docs/alerts.md shows how to write one");
    } else {
        let mut rows = Rows::new(&["alert", "state", "condition", "webhook", "found"]);
        for alert in &alerts {
            rows.push(row(alert));
        }
        context.line(rows.text())?;
    }
    Ok(Exit::Done)
}

fn row(alert: &Alert) -> [String; 5] {
    let state = match alert.since {
        Some(since) => {
            let age = SystemTime::now().duration_since(since).unwrap_or_default();
            format!(
                "firing for {}",
                time::span(Duration::from_secs(age.as_secs()))
            )
        }
        None => "quiet".to_owned(),
    };
    let webhook = match (alert.webhook, &alert.last_error) {
        (false, _) => "none".to_owned(),
        (true, None) => format!("{} delivered", alert.delivered),
        (true, Some(error)) => format!("failing: {}", escape::short(error, 60)),
    };
    let found = if alert.firing {
        escape::short(&alert.text, 60)
    } else {
        String::new()
    };
    [
        escape::line(&alert.name),
        state,
        escape::line(&alert.condition),
        webhook,
        found,
    ]
}

async fn test(context: &Context, name: &str) -> Outcome {
    let client = context.client().await?;
    let job = client.test_alert(name).await?;
    let job = client.in_namespace(NAMESPACE).wait(&job, WAIT).await?;
    if context.is_json() {
        context.json(&job)?;
    }
    let name = escape::line(name);
    match job.state {
        JobState::Succeeded => {
            if !context.is_json() {
                context.line(format!("the receiver of the alert {name} took the message"))?;
            }
            Ok(Exit::Done)
        }
        JobState::Failed => {
            let reason = job
                .failure
                .map(|failure| failure.message)
                .unwrap_or_default();
            Err(Failure::failed(format!(
                "the message of the alert {name} was not delivered: {reason}"
            )))
        }
        state => {
            remark(format!(
                "the message {} is {} after {} s",
                job.r#ref,
                state.as_str(),
                WAIT.as_secs()
            ));
            Ok(Exit::StillRunning)
        }
    }
}
