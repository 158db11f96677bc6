//! Reads the form of a schedule: all fields at once, so that each that is wrong gets its reason.

use std::time::Duration;

use ganger_document::json;
use ganger_document::names::{self, Name};
use ganger_document::retry::RetryDocument;
use ganger_document::time::{read_moment, read_span};
use ganger_types::limits::{SCHEDULE_BACKLOG_MAX, SCHEDULE_EVERY_MIN};
use ganger_types::{
    Bytes, CatchUp, Kind, Namespace, Overlap, Priority, ScheduleId, ScheduleRecord, ScheduleSpec,
    Tag, Timestamp, Words,
};

use crate::actions::{read_labels, words};
use crate::fault::Fault;
use crate::pages::new_job::check_payload;
use crate::params::Params;

use super::shown_payload;

/// A field that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) field: &'static str,
    pub(crate) reason: String,
}

/// The fields of a form, and what is wrong with those read so far.
struct Reader<'a> {
    fields: &'a Params,
    refused: Vec<Refused>,
}

impl Reader<'_> {
    fn refuse(&mut self, field: &'static str, reason: impl Into<String>) {
        self.refused.push(Refused {
            field,
            reason: reason.into(),
        });
    }

    /// The text of a field without spaces around it; `None` if it is empty.
    fn text(&mut self, field: &'static str) -> Option<String> {
        match self.fields.text(field) {
            Ok(text) => text
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
            Err(_) => {
                self.refuse(field, "is not UTF-8");
                None
            }
        }
    }

    /// The value of a field; `None` if it is empty or wrong.
    fn value<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.text(field)?;
        match read(&text) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.refuse(field, reason);
                None
            }
        }
    }

    /// A name of any bytes; `None` if it is empty or wrong.
    fn name<T: Name>(&mut self, field: &'static str) -> Option<T> {
        self.value(field, |text| {
            T::from_bytes(&names::read(text.as_bytes())).map_err(|error| error.to_string())
        })
    }

    /// One of a few words, the first of which is that of an absent field.
    fn word<T: Words + Default>(&mut self, field: &'static str) -> T {
        let read = |text: &str| {
            T::from_word(text).ok_or_else(|| format!("{text:?} is not one of its words"))
        };
        self.value(field, read).unwrap_or_default()
    }

    fn spec(&mut self, now: Timestamp) -> Option<ScheduleSpec> {
        let before = self.refused.len();
        let expression = self.text("cron");
        let time_zone = self.text("time_zone");
        let every: Option<Duration> = self.value("every", |text| {
            let every = read_span(text)?;
            if every < SCHEDULE_EVERY_MIN {
                return Err(format!("{text:?} is too short: an interval is at least 1s"));
            }
            Ok(every)
        });
        let first_at = self.value("first_at", read_moment);
        if self.refused.len() > before {
            return None;
        }
        match (expression, every) {
            (Some(_), Some(_)) => {
                self.refuse(
                    "every",
                    "a schedule has a cron expression or an interval, not both: empty one of them",
                );
                None
            }
            (None, None) => {
                self.refuse(
                    "cron",
                    "is missing: give a cron expression, or an interval below",
                );
                None
            }
            (Some(expression), None) => {
                if first_at.is_some() {
                    self.refuse("first_at", "goes only with an interval: empty it");
                    return None;
                }
                let time_zone = time_zone.unwrap_or_else(|| "UTC".to_owned());
                Some(ScheduleSpec::Cron {
                    expression,
                    time_zone,
                })
            }
            (None, Some(every)) => {
                if time_zone.is_some() {
                    self.refuse("time_zone", "goes only with a cron expression: empty it");
                    return None;
                }
                Some(ScheduleSpec::Interval {
                    every,
                    first_at: first_at.unwrap_or(now),
                })
            }
        }
    }

    fn catch_up(&mut self) -> CatchUp {
        let rule: CatchUp = self.word("catch_up");
        let most = self.value("catch_up_max", |text| {
            let most: Option<u32> = text.replace(',', "").parse().ok();
            most.filter(|most| (1..=SCHEDULE_BACKLOG_MAX).contains(most))
                .ok_or_else(|| {
                    format!("must be a whole number from 1 to {SCHEDULE_BACKLOG_MAX}, not {text:?}")
                })
        });
        match rule {
            CatchUp::All { .. } => CatchUp::All {
                max: most.unwrap_or(SCHEDULE_BACKLOG_MAX),
            },
            other => other,
        }
    }

    fn payload(&mut self, edited: Option<&ScheduleRecord>) -> Bytes {
        let given = self.fields.text("payload");
        let Ok(given) = given else {
            self.refuse("payload", "is not UTF-8");
            return Bytes::new();
        };
        // Browsers send a line break of a text as two characters, and leave out one at its beginning.
        let given = given.unwrap_or_default().replace("\r\n", "\n");
        if let Some(edited) = edited {
            let same = match shown_payload(edited) {
                Some(shown) => shown.replace("\r\n", "\n").trim_start_matches('\n') == given,
                None => given.is_empty(),
            };
            if same {
                return edited.payload.clone();
            }
        }
        if let Err(fault) = check_payload(given.as_bytes()) {
            self.refuse("payload", reason_of(&fault));
        }
        given.into()
    }

    fn priority(&mut self, edited: Option<&ScheduleRecord>) -> Priority {
        let priority = self.value("priority", |text| {
            let whole = text.parse().ok();
            whole.and_then(Priority::whole).ok_or_else(|| {
                let most = Priority::WHOLE_MAX;
                format!("must be a whole number from -{most} to {most}, not {text:?}")
            })
        });
        // A fraction, which the form cannot show, stays.
        let kept = edited.map(|edited| edited.priority);
        let kept = kept.filter(|kept| Some(kept.to_whole()) == priority.map(Priority::to_whole));
        kept.or(priority).unwrap_or_default()
    }
}

/// The schedule that the form describes.
///
/// # Errors
/// The fields that are wrong, in the order of the form.
pub(crate) fn read(
    fields: &Params,
    namespace: &Namespace,
    edited: Option<&ScheduleRecord>,
    now: Timestamp,
) -> Result<ScheduleRecord, Vec<Refused>> {
    let mut reader = Reader {
        fields,
        refused: Vec::new(),
    };
    let id: Option<ScheduleId> = match edited {
        Some(edited) => Some(edited.id.clone()),
        None => reader.name("id"),
    };
    if id.is_none() && reader.refused.is_empty() {
        reader.refuse("id", "is missing: it is the name of the schedule");
    }
    let spec = reader.spec(now);
    let before = reader.refused.len();
    let kind: Option<Kind> = reader.name("kind");
    if kind.is_none() && reader.refused.len() == before {
        reader.refuse(
            "kind",
            "is missing: it names the program that runs the jobs",
        );
    }
    let record = (id, spec, kind);
    let queue = reader.name("queue").unwrap_or_default();
    let payload = reader.payload(edited);
    let priority = reader.priority(edited);
    let timeout = reader.value("timeout", read_span);
    let retry: Option<RetryDocument> = reader.value("retry", |text| {
        json::read(text.as_bytes()).map_err(|error| error.detail)
    });
    let tags = reader.value("tags", |text| {
        let tags = words(text).map(|word| Tag::new(names::read(word.as_bytes())));
        tags.collect::<Result<Vec<_>, _>>()
            .map_err(|error| error.to_string())
    });
    let labels = reader.value("labels", |text| {
        read_labels(text).map_err(|fault| reason_of(&fault))
    });
    let catch_up = reader.catch_up();
    let overlap: Overlap = reader.word("overlap");
    let (Some(id), Some(spec), Some(kind)) = record else {
        return Err(reader.refused);
    };
    if !reader.refused.is_empty() {
        return Err(reader.refused);
    }
    Ok(ScheduleRecord {
        namespace: namespace.clone(),
        id,
        spec,
        catch_up,
        overlap,
        paused: fields.has("paused"),
        queue,
        kind,
        payload,
        priority,
        retry: retry.map(Into::into),
        timeout,
        tags: tags.unwrap_or_default(),
        labels: labels.unwrap_or_default(),
        created_at: Timestamp::default(),
        next_at: None,
        runs: 0,
        last_job: None,
    })
}

/// The reason of a refusal, without the name of the field in front.
fn reason_of(fault: &Fault) -> String {
    let detail = &fault.detail;
    let reason = detail.split_once(": ").map_or(detail.as_str(), |it| it.1);
    reason.to_owned()
}

/// The field to blame for a refusal by the engine; `None` if no single one is.
pub(crate) fn field_of(fault: &Fault, spec: &ScheduleSpec) -> Option<&'static str> {
    match (fault.code, spec) {
        ("cron_unreadable" | "cron_never_fires", _) => Some("cron"),
        ("time_zone_unknown", _) => Some("time_zone"),
        ("out_of_range", ScheduleSpec::Interval { .. }) => Some("every"),
        ("too_large", ScheduleSpec::Cron { time_zone, .. })
            if fault.detail.contains("time zone") && !time_zone.is_empty() =>
        {
            Some("time_zone")
        }
        ("too_large", _) if fault.detail.contains("cron") => Some("cron"),
        ("too_large", _) if fault.detail.contains("payload") => Some("payload"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_form(text: &str) -> Result<ScheduleRecord, Vec<Refused>> {
        let fields = Params::read_any(text);
        read(&fields, &Namespace::default(), None, Timestamp(7))
    }

    #[test]
    fn a_form_becomes_a_schedule() {
        let form = "id=nightly&cron=30+2+*+*+*&time_zone=Europe/Vienna&kind=report&queue=mail\
            &payload=%7B%0D%0A%7D&priority=-3&timeout=5m&retry=%7B%22max%22%3A1%7D&tags=a+b\
            &labels=k%3Dv&catch_up=all&catch_up_max=5&overlap=skip&paused=true";
        let schedule = read_form(form).expect("good");
        assert_eq!(schedule.id.as_bytes(), b"nightly");
        let cron = ScheduleSpec::Cron {
            expression: "30 2 * * *".to_owned(),
            time_zone: "Europe/Vienna".to_owned(),
        };
        assert_eq!(schedule.spec, cron);
        assert_eq!(schedule.payload, "{\n}");
        assert_eq!(schedule.priority.to_whole(), -3);
        assert_eq!(schedule.timeout, Some(Duration::from_secs(300)));
        assert_eq!(schedule.retry.map(|retry| retry.retries_max), Some(1));
        assert_eq!((schedule.tags.len(), schedule.labels.len()), (2, 1));
        assert_eq!(schedule.catch_up, CatchUp::All { max: 5 });
        assert_eq!(schedule.overlap, Overlap::Skip);
        assert!(schedule.paused);
        let plain = read_form("id=a&every=1h&kind=k").expect("good");
        let interval = ScheduleSpec::Interval {
            every: Duration::from_secs(3_600),
            first_at: Timestamp(7),
        };
        assert_eq!(plain.spec, interval);
        assert_eq!(plain.catch_up, CatchUp::Last);
        assert_eq!(plain.queue, ganger_types::Queue::default());
    }

    #[test]
    fn every_field_that_is_wrong_is_named() {
        let refused = |form: &str| -> Vec<&'static str> {
            let refused = read_form(form).expect_err(form);
            refused.iter().map(|refused| refused.field).collect()
        };
        assert_eq!(refused(""), ["id", "cron", "kind"]);
        assert_eq!(
            refused(
                "id=a&every=10ms&first_at=soon&kind=k&payload=%7Bx&priority=x&timeout=x&retry=x&labels=x&catch_up=never&catch_up_max=0&overlap=x"
            ),
            [
                "every",
                "first_at",
                "payload",
                "priority",
                "timeout",
                "retry",
                "labels",
                "catch_up",
                "catch_up_max",
                "overlap"
            ]
        );
        let only = |rule: &str| refused(&format!("id=a&kind=k&{rule}"));
        assert_eq!(only("cron=@daily&every=1h"), ["every"]);
        assert_eq!(
            only("cron=@daily&first_at=2027-01-31T12:00:00Z"),
            ["first_at"]
        );
        assert_eq!(only("every=1h&time_zone=UTC"), ["time_zone"]);
    }

    #[test]
    fn what_the_form_cannot_show_stays() {
        let mut edited = read_form("id=a&every=1h&kind=k").expect("good");
        edited.payload = Bytes::from_static(b"\xff\x00");
        edited.priority = Priority::from_millionths(1_500_000);
        let again = |form: &str| {
            let fields = Params::read_any(form);
            read(&fields, &Namespace::default(), Some(&edited), Timestamp(7)).expect("good")
        };
        let kept = again("every=1h&kind=k&priority=1");
        assert_eq!(kept.payload, edited.payload);
        assert_eq!(kept.priority, edited.priority);
        let changed = again("every=1h&kind=k&priority=2&payload=%5B1%5D");
        assert_eq!(changed.payload, "[1]");
        assert_eq!(changed.priority.to_whole(), 2);
        let mut lines = edited.clone();
        lines.payload = Bytes::from_static(b"{\r\n \"a\": 1\n}");
        let fields = Params::read_any("every=1h&kind=k&payload=%7B%0D%0A+%22a%22%3A+1%0D%0A%7D");
        let same = read(&fields, &Namespace::default(), Some(&lines), Timestamp(7)).expect("good");
        assert_eq!(
            same.payload, lines.payload,
            "only its line breaks were sent otherwise"
        );
    }
}
