//! `[[alerts]]`: the alerts that the server watches.

use std::path::PathBuf;
use std::time::Duration;

use ganger_attention::Gravity;
use ganger_attention::alert::{ALERTS_MAX, Alert, Condition, NAME_MAX, Webhook};
use ganger_types::{Namespace, Queue};
use ganger_types::{size::read_size, span::read_span};
use toml::de::{DeTable, DeValue};

use super::source::{fault, plain};
use crate::alerts::read_secret;
use crate::config::ConfigError;

/// Attempts below which a failure rate is not judged, unless the alert sets another number.
const ATTEMPTS_MIN: u64 = 20;
/// Settings of an alert, for errors.
const KEYS: &str = "name, namespace, queue, older_than, failure_rate_above, attempts_min, no_workers_for, commits_slower_than, certificate_ends_within, disk_free_below, for, gravity, webhook, webhook_secret_file, webhook_ca_file";

/// Reads all alerts of a file. `place` names the file and the line of an offset.
///
/// # Errors
/// If a setting is unknown, missing, or cannot be used.
pub(super) fn read(
    value: &DeValue<'_>,
    at: usize,
    place: impl Fn(usize) -> String,
) -> Result<Vec<Alert>, ConfigError> {
    let DeValue::Array(tables) = value else {
        let reason = "alerts must be tables of the form [[alerts]], with two brackets";
        return Err(fault(place(at), reason));
    };
    if tables.len() > ALERTS_MAX {
        let reason = format!(
            "there are {} alerts, the limit is {ALERTS_MAX}",
            tables.len()
        );
        return Err(fault(place(at), reason));
    }
    let mut alerts: Vec<Alert> = Vec::new();
    for table in tables {
        let at = table.span().start;
        let DeValue::Table(table) = table.get_ref() else {
            let reason = "each of alerts must be a table of the form [[alerts]]";
            return Err(fault(place(at), reason));
        };
        let alert = read_one(table, &place).map_err(|error| match error {
            Wrong::At(error) => error,
            Wrong::Whole(reason) => fault(place(at), reason),
        })?;
        if alerts.iter().any(|known| known.name == alert.name) {
            let reason = format!(
                "there are two alerts of the name {:?}: names are unique",
                alert.name
            );
            return Err(fault(place(at), reason));
        }
        alerts.push(alert);
    }
    Ok(alerts)
}

/// What is wrong with an alert.
enum Wrong {
    /// One of its settings.
    At(ConfigError),
    /// How its settings go together.
    Whole(String),
}

impl From<String> for Wrong {
    fn from(reason: String) -> Self {
        Self::Whole(reason)
    }
}

/// The settings of an alert as they are read.
#[derive(Default)]
struct Given {
    name: Option<String>,
    namespace: Namespace,
    queue: Option<Queue>,
    conditions: Vec<(&'static str, Condition)>,
    attempts_min: Option<u64>,
    hold_for: Duration,
    is_error: bool,
    webhook: Option<String>,
    secret_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

fn read_one(table: &DeTable<'_>, place: &impl Fn(usize) -> String) -> Result<Alert, Wrong> {
    let mut given = Given::default();
    for (key, value) in table {
        let name: &str = key.get_ref();
        let text = plain(value.get_ref()).ok_or_else(|| "must be a text or a number".to_owned());
        let result = text.and_then(|text| given.set(name, &text));
        result.map_err(|reason| {
            let reason = format!("alerts.{name} {reason}");
            Wrong::At(fault(place(key.span().start), reason))
        })?;
    }
    given.into_alert()
}

impl Given {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "name" => self.name = Some(alert_name(value)?),
            "namespace" => {
                self.namespace = Namespace::new(value).map_err(|error| error.to_string())?;
            }
            "queue" => self.queue = Some(Queue::new(value).map_err(|error| error.to_string())?),
            "older_than" => self.condition("older_than", Condition::OlderThan(span(value)?)),
            "failure_rate_above" => {
                let condition = Condition::FailureRateAbove {
                    millionths: share(value)?,
                    attempts_min: ATTEMPTS_MIN,
                };
                self.condition("failure_rate_above", condition);
            }
            "attempts_min" => {
                let number = value
                    .parse()
                    .ok()
                    .filter(|number| (1..=1_000_000).contains(number));
                let reason = || format!("must be a whole number from 1 to 1000000, not {value:?}");
                self.attempts_min = Some(number.ok_or_else(reason)?);
            }
            "no_workers_for" => {
                self.condition("no_workers_for", Condition::NoWorkersFor(span(value)?));
            }
            "commits_slower_than" => {
                self.condition(
                    "commits_slower_than",
                    Condition::CommitsSlowerThan(span(value)?),
                );
            }
            "certificate_ends_within" => {
                let condition = Condition::CertificateEndsWithin(span(value)?);
                self.condition("certificate_ends_within", condition);
            }
            "disk_free_below" => {
                let size = read_size(value).map_err(|error| error.to_string())?;
                self.condition("disk_free_below", Condition::DiskFreeBelow(size));
            }
            "for" => self.hold_for = read_span(value).map_err(|error| error.to_string())?,
            "gravity" => {
                self.is_error = match value {
                    "error" => true,
                    "warning" => false,
                    _ => return Err(format!("must be error or warning, not {value:?}")),
                };
            }
            "webhook" => self.webhook = Some(url(value)?),
            "webhook_secret_file" => self.secret_file = Some(secret_file(value)?),
            "webhook_ca_file" => self.ca_file = Some(PathBuf::from(value)),
            _ => return Err(format!("is not a setting of an alert: there are {KEYS}")),
        }
        Ok(())
    }

    fn condition(&mut self, key: &'static str, condition: Condition) {
        self.conditions.push((key, condition));
    }

    fn into_alert(self) -> Result<Alert, Wrong> {
        let name = self
            .name
            .ok_or_else(|| "an alert has no name: add name = \"...\"".to_owned())?;
        let mut condition = match self.conditions.as_slice() {
            [(_, condition)] => *condition,
            [] => {
                return Err(Wrong::Whole(format!(
                    "the alert {name:?} watches nothing: set one of older_than, failure_rate_above, no_workers_for, commits_slower_than, certificate_ends_within, disk_free_below"
                )));
            }
            several => {
                let keys: Vec<&str> = several.iter().map(|(key, _)| *key).collect();
                let keys = keys.join(" and ");
                return Err(Wrong::Whole(format!(
                    "the alert {name:?} has {keys}: make an alert of each"
                )));
            }
        };
        if let (Some(number), Condition::FailureRateAbove { attempts_min, .. }) =
            (self.attempts_min, &mut condition)
        {
            *attempts_min = number;
        } else if self.attempts_min.is_some() {
            return Err(Wrong::Whole(format!(
                "the alert {name:?} has attempts_min without failure_rate_above"
            )));
        }
        if self.queue.is_some() && !condition.is_of_queues() {
            return Err(Wrong::Whole(format!(
                "the alert {name:?} is about the server, not about a queue: remove queue"
            )));
        }
        if self.webhook.is_none() && (self.secret_file.is_some() || self.ca_file.is_some()) {
            return Err(Wrong::Whole(format!(
                "the alert {name:?} has a file for its webhook and no webhook: add webhook = \"https://...\""
            )));
        }
        Ok(Alert {
            name,
            namespace: self.namespace,
            queue: self.queue,
            condition,
            hold_for: self.hold_for,
            gravity: if self.is_error {
                Gravity::Error
            } else {
                Gravity::Warning
            },
            webhook: self.webhook.map(|url| Webhook {
                url,
                secret_file: self.secret_file,
                ca_file: self.ca_file,
            }),
        })
    }
}

fn alert_name(value: &str) -> Result<String, String> {
    let is_plain = |it: char| it.is_ascii_alphanumeric() || "-_.".contains(it);
    if (1..=NAME_MAX).contains(&value.len()) && value.chars().all(is_plain) {
        return Ok(value.to_owned());
    }
    Err(format!(
        "must have 1 to {NAME_MAX} characters of A-Z a-z 0-9 - _ . and is {value:?}"
    ))
}

fn span(value: &str) -> Result<Duration, String> {
    let span = read_span(value).map_err(|error| error.to_string())?;
    if span.is_zero() {
        return Err("must be longer than 0".to_owned());
    }
    Ok(span)
}

/// A share such as `10%` or `2.5%`, in millionths.
fn share(value: &str) -> Result<u64, String> {
    let wrong = || format!("must be a share from 0% to 99.9%, such as 10%, not {value:?}");
    let number = value.strip_suffix('%').ok_or_else(wrong)?.trim_end();
    let (whole, digit) = number.split_once('.').unwrap_or((number, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !is_number(whole) || !is_number(digit) || digit.len() != 1 || whole.len() > 2 {
        return Err(wrong());
    }
    let tenths: u64 = format!("{whole}{digit}").parse().map_err(|_| wrong())?;
    Ok(tenths * 1_000)
}

/// An address of `http` or `https` with a host.
fn url(value: &str) -> Result<String, String> {
    let wrong = "must be an address such as https://hooks.example/ganger";
    // The address may hold a secret, so it is not repeated.
    let uri: http::Uri = value.parse().map_err(|_| wrong.to_owned())?;
    let is_known = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_host = uri.host().is_some_and(|host| !host.is_empty());
    let has_user = uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'));
    if !is_known || !has_host {
        return Err(wrong.to_owned());
    }
    if has_user {
        return Err(
            "must not have a user or a password: sign messages with webhook_secret_file".to_owned(),
        );
    }
    Ok(value.to_owned())
}

/// A file whose secret can be used now.
fn secret_file(value: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(value);
    read_secret(&path).map_err(|reason| format!("{value}: {reason}"))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alerts(text: &str) -> Result<Vec<Alert>, ConfigError> {
        let table = DeTable::parse(text).expect("TOML");
        let (key, value) = table.get_ref().iter().next().expect("a key");
        read(value.get_ref(), key.span().start, |at| {
            format!("line {}", text[..at].matches('\n').count() + 1)
        })
    }

    #[test]
    fn every_condition_is_read() {
        for (line, condition) in [
            (
                "older_than = \"10m\"",
                Condition::OlderThan(Duration::from_secs(600)),
            ),
            (
                "failure_rate_above = \"2.5%\"\nattempts_min = 50",
                Condition::FailureRateAbove {
                    millionths: 25_000,
                    attempts_min: 50,
                },
            ),
            (
                "no_workers_for = \"1m\"",
                Condition::NoWorkersFor(Duration::from_secs(60)),
            ),
            (
                "commits_slower_than = \"500ms\"",
                Condition::CommitsSlowerThan(Duration::from_millis(500)),
            ),
            (
                "certificate_ends_within = \"14d\"",
                Condition::CertificateEndsWithin(Duration::from_secs(14 * 86_400)),
            ),
            (
                "disk_free_below = \"10GiB\"",
                Condition::DiskFreeBelow(10 << 30),
            ),
        ] {
            let text = format!("[[alerts]]\nname = \"a\"\n{line}\n");
            let read = alerts(&text).expect(line);
            assert_eq!(read[0].condition, condition, "{line}");
            assert!(!read[0].words().is_empty());
        }
        let text = "[[alerts]]\nname = \"a\"\nqueue = \"mail\"\nnamespace = \"n\"\nolder_than = \"1h\"\nfor = \"30s\"\ngravity = \"error\"\nwebhook = \"https://h.example/x\"\n";
        let alert = alerts(text).expect("good").remove(0);
        assert_eq!(alert.queue, Some(Queue::from_static("mail")));
        assert_eq!(alert.namespace, Namespace::from_static("n"));
        assert_eq!(alert.hold_for, Duration::from_secs(30));
        assert_eq!(alert.gravity, Gravity::Error);
        assert_eq!(alert.webhook.expect("a webhook").url, "https://h.example/x");
    }

    #[test]
    fn wrong_alerts_are_refused_with_the_line_and_what_to_write() {
        for (text, line, words) in [
            ("[alerts]\nname = \"a\"\n", 1, "two brackets"),
            ("[[alerts]]\nolder_than = \"1m\"\n", 1, "has no name"),
            (
                "[[alerts]]\nname = \"a b\"\n",
                2,
                "alerts.name must have 1 to 64",
            ),
            ("[[alerts]]\nname = \"a\"\n", 1, "watches nothing"),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = \"1m\"\nno_workers_for = \"1m\"\n",
                1,
                "no_workers_for and older_than: make an alert of each",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = \"soon\"\n",
                3,
                "alerts.older_than",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = \"0s\"\n",
                3,
                "longer than 0",
            ),
            (
                "[[alerts]]\nname = \"a\"\nfailure_rate_above = \"0.1\"\n",
                3,
                "such as 10%",
            ),
            (
                "[[alerts]]\nname = \"a\"\nfailure_rate_above = \"120%\"\n",
                3,
                "99.9%",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = \"1m\"\nattempts_min = 3\n",
                1,
                "attempts_min without failure_rate_above",
            ),
            (
                "[[alerts]]\nname = \"a\"\nqueue = \"q\"\ndisk_free_below = \"1GiB\"\n",
                1,
                "about the server",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_then = \"1m\"\n",
                3,
                "is not a setting of an alert",
            ),
            (
                "[[alerts]]\nname = \"a\"\ngravity = \"bad\"\n",
                3,
                "error or warning",
            ),
            (
                "[[alerts]]\nname = \"a\"\nwebhook = \"hooks.example\"\n",
                3,
                "https://",
            ),
            (
                "[[alerts]]\nname = \"a\"\nwebhook = \"https://me:pass@h/\"\n",
                3,
                "password",
            ),
            (
                "[[alerts]]\nname = \"a\"\nwebhook_secret_file = \"/nowhere/key\"\n",
                3,
                "/nowhere/key",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = \"1m\"\nwebhook_ca_file = \"x\"\n",
                1,
                "no webhook",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = \"1m\"\n[[alerts]]\nname = \"a\"\nolder_than = \"2m\"\n",
                4,
                "names are unique",
            ),
            (
                "[[alerts]]\nname = \"a\"\nolder_than = [\"x\", 1]\n",
                3,
                "a text or a number",
            ),
        ] {
            let error = alerts(text).expect_err(text);
            assert_eq!(error.place, format!("line {line}"), "{text}: {error}");
            assert!(error.reason.contains(words), "{text}: {error}");
            assert!(!error.reason.contains("pass@"), "{error}");
        }
    }
}
