//! Which jobs: the filters of the API, by the same names, as addresses and forms of pages have them.

use ganger_document::names::{read, show};
use ganger_document::time::read_moment;
use ganger_types::query::JobQuery;
use ganger_types::{JobState, JobStates, LabelKey, LabelValue, Namespace, Timestamp};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::fault::Fault;
use crate::links::Address;
use crate::params::Params;

/// The parameters of a filter. The last two are the fields of the form, which the address has as `label`.
pub(crate) const CONDITIONS: &[&str] = &[
    "state",
    "queue",
    "kind",
    "tag",
    "label",
    "group",
    "failure_text",
    "worker",
    "graph",
    "schedule",
    "created_from",
    "created_before",
    "label_key",
    "label_value",
];

/// A filter, and its parameters as text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Filter {
    pub(crate) query: JobQuery,
    /// Name and value of each condition, for links and forms.
    pub(crate) pairs: Vec<(&'static str, String)>,
}

impl Filter {
    /// Reads the conditions among the parameters. Times without an offset are of the viewer's zone.
    pub(crate) fn read(
        params: &Params,
        namespace: &Namespace,
        zone: &TimeZone,
    ) -> Result<Self, Fault> {
        let states = states(params)?;
        let query = JobQuery {
            namespace: namespace.clone(),
            queue: params.name("queue")?,
            states,
            kind: params.name("kind")?,
            tags: params.name("tag")?.into_iter().collect(),
            labels: label(params)?.into_iter().collect(),
            graph: params.name("graph")?,
            schedule: params.name("schedule")?,
            group: params.name("group")?,
            failure_text: params.text("failure_text")?.map(str::to_owned),
            worker: params.name("worker")?,
            created_from: moment(params, "created_from", zone)?,
            created_before: moment(params, "created_before", zone)?,
            ..JobQuery::default()
        };
        Ok(of_query(query))
    }

    /// Whether no condition is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The value of a condition; empty if it is not given.
    pub(crate) fn value(&self, name: &str) -> &str {
        let found = self.pairs.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    /// Adds all conditions but one to an address.
    pub(crate) fn add_to(&self, address: Address, without: Option<&str>) -> Address {
        let pairs = self.pairs.iter();
        pairs
            .filter(|(name, _)| Some(*name) != without)
            .fold(address, |address, (name, value)| address.with(name, value))
    }
}

/// The filter with the conditions of a query.
pub(crate) fn of_query(query: JobQuery) -> Filter {
    let pairs = pairs(&query);
    Filter { query, pairs }
}

fn states(params: &Params) -> Result<JobStates, Fault> {
    let given = params.texts("state")?;
    if given.is_empty() {
        return Ok(JobStates::ALL);
    }
    let given = given.join(",");
    JobStates::parse(&given).ok_or_else(|| {
        let known = JobState::ALL.map(JobState::as_str).join(", ");
        Fault::value(
            "state",
            &format!("must be one of {known}, or several with commas, not {given:?}"),
        )
    })
}

fn label(params: &Params) -> Result<Option<(LabelKey, LabelValue)>, Fault> {
    let (key, value) = match (params.text("label")?, params.text("label_key")?) {
        (Some(text), _) => text
            .split_once('=')
            .ok_or_else(|| Fault::value("label", "must be KEY=VALUE"))?,
        (None, Some(key)) => (key, params.text("label_value")?.unwrap_or_default()),
        (None, None) => return Ok(None),
    };
    let too_long = |error: ganger_types::NameError| Fault::value("label", &error.to_string());
    let key = LabelKey::new(read(key.as_bytes())).map_err(too_long)?;
    let value = LabelValue::new(read(value.as_bytes())).map_err(too_long)?;
    Ok(Some((key, value)))
}

/// A time with an offset, or as fields for dates and times write it, in the viewer's zone.
fn moment(params: &Params, name: &str, zone: &TimeZone) -> Result<Option<Timestamp>, Fault> {
    let Some(text) = params.text(name)? else {
        return Ok(None);
    };
    if let Ok(moment) = read_moment(text) {
        return Ok(Some(moment));
    }
    let local: Option<DateTime> = text.parse().ok();
    let zoned = local.and_then(|local| local.to_zoned(zone.clone()).ok());
    let micros = zoned.and_then(|zoned| u64::try_from(zoned.timestamp().as_microsecond()).ok());
    micros.map(Timestamp).map(Some).ok_or_else(|| {
        Fault::value(
            name,
            &format!("must be a time such as 2026-01-31T12:00, or with an offset as 2026-01-31T12:00:00Z, not {text:?}"),
        )
    })
}

/// The conditions of a query as parameters.
fn pairs(query: &JobQuery) -> Vec<(&'static str, String)> {
    let mut pairs = Vec::new();
    let mut put = |name, value: Option<String>| {
        if let Some(value) = value {
            pairs.push((name, value));
        }
    };
    if !query.states.is_all() {
        let words: Vec<&str> = query.states.iter().map(JobState::as_str).collect();
        put("state", Some(words.join(",")));
    }
    let text = |bytes: &[u8]| show(bytes).into_owned();
    put("queue", query.queue.as_ref().map(|it| text(it.as_bytes())));
    put("kind", query.kind.as_ref().map(|it| text(it.as_bytes())));
    put("tag", query.tags.first().map(|it| text(it.as_bytes())));
    let label = query.labels.first();
    put(
        "label",
        label.map(|(key, value)| format!("{}={}", text(key.as_bytes()), text(value.as_bytes()))),
    );
    put("group", query.group.as_ref().map(|it| text(it.as_bytes())));
    put("failure_text", query.failure_text.clone());
    put(
        "worker",
        query.worker.as_ref().map(|it| text(it.as_bytes())),
    );
    put("graph", query.graph.as_ref().map(|it| text(it.as_bytes())));
    put(
        "schedule",
        query.schedule.as_ref().map(|it| text(it.as_bytes())),
    );
    put("created_from", query.created_from.map(crate::format::exact));
    put(
        "created_before",
        query.created_before.map(crate::format::exact),
    );
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reads_back_from_its_own_parameters() {
        let text = "state=failed&state=ready&queue=mail&label_key=a&label_value=b%3Dc&created_from=2026-01-31T12%3A00";
        let zone = TimeZone::get("Europe/Vienna").expect("it is bundled");
        let params = Params::read(text, CONDITIONS).expect("good");
        let filter = Filter::read(&params, &Namespace::default(), &zone).expect("good");
        assert_eq!(filter.value("label"), "a=b=c");
        assert_eq!(filter.value("state"), "ready,failed");
        assert_eq!(filter.value("created_from"), "2026-01-31T11:00:00Z");
        let links = crate::links::Links::new("".into(), Namespace::default(), None);
        let address = filter.add_to(links.to("/jobs"), None);
        let query = address.as_str().split_once('?').expect("a query").1;
        let params = Params::read(query, CONDITIONS).expect("good");
        let again = Filter::read(&params, &Namespace::default(), &TimeZone::UTC).expect("good");
        assert_eq!(again, filter);
    }

    #[test]
    fn values_that_cannot_be_used_are_named() {
        for (text, name) in [
            ("state=red", "state"),
            ("label=a", "label"),
            ("created_from=soon", "created_from"),
        ] {
            let params = Params::read(text, CONDITIONS).expect("known names");
            let fault = Filter::read(&params, &Namespace::default(), &TimeZone::UTC);
            let detail = fault.expect_err(text).detail;
            assert!(detail.starts_with(name), "{detail}");
        }
    }
}
