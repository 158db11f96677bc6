//! The report of an import: what was found, and the outcome of each record.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::SourceKind;
use crate::context::Context;
use crate::exit::Failure;
use crate::show::table::Rows;

/// Maximum number of examples for each reason.
const EXAMPLES_MAX: usize = 3;
/// Maximum number of different reasons for each kind.
const REASONS_MAX: usize = 20;
/// Maximum bytes of a name that are shown.
const NAME_BYTES_MAX: usize = 100;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecordKind {
    QlessJob,
    QlessRecurring,
    QlessQueue,
    QlessWorker,
    QlessOption,
    QlessTag,
    QlessTracked,
    QlessStatistics,
    QlessThrottle,
    WorkQueue,
    WorkItem,
    #[cfg(feature = "quantumleap")]
    Task,
}

impl RecordKind {
    fn name(self) -> &'static str {
        match self {
            Self::QlessJob => "qless jobs",
            Self::QlessRecurring => "qless recurring jobs",
            Self::QlessQueue => "qless queues",
            Self::QlessWorker => "qless workers",
            Self::QlessOption => "qless options",
            Self::QlessTag => "qless tag counters",
            Self::QlessTracked => "qless tracked jobs",
            Self::QlessStatistics => "qless statistics",
            Self::QlessThrottle => "qless throttles",
            Self::WorkQueue => "work queues",
            Self::WorkItem => "work queue items",
            #[cfg(feature = "quantumleap")]
            Self::Task => "QuantumLeap tasks",
        }
    }

    fn key(self) -> String {
        self.name().to_lowercase().replace(' ', "_")
    }
}

/// A number of records, with some of their names.
#[derive(Debug, Default)]
struct Examples {
    count: u64,
    examples: Vec<String>,
}

impl Examples {
    fn add(&mut self, name: String) {
        self.count += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(name);
        }
    }

    fn document(&self) -> Value {
        json!({"count": self.count, "examples": self.examples})
    }
}

/// Outcomes of the records of one kind.
#[derive(Debug, Default)]
struct Counts {
    found: u64,
    imported: u64,
    already_there: u64,
    refused: u64,
    /// Refused records, by reason of the refusal.
    refusals: BTreeMap<String, Examples>,
    /// Keys and ids without a record to import, by reason.
    skipped: BTreeMap<String, Examples>,
}

/// The report of an import.
#[derive(Debug)]
pub(super) struct Report {
    namespace: String,
    kinds: BTreeMap<RecordKind, Counts>,
    others: Examples,
    /// Keys of products that this build cannot import.
    not_built: BTreeMap<SourceKind, Examples>,
}

impl Report {
    pub(super) fn new(namespace: String) -> Self {
        Self {
            namespace,
            kinds: BTreeMap::new(),
            others: Examples::default(),
            not_built: BTreeMap::new(),
        }
    }

    fn of(&mut self, kind: RecordKind) -> &mut Counts {
        self.kinds.entry(kind).or_default()
    }

    pub(super) fn found(&mut self, kind: RecordKind) {
        self.of(kind).found += 1;
    }

    pub(super) fn imported(&mut self, kind: RecordKind) {
        self.of(kind).imported += 1;
    }

    pub(super) fn already_there(&mut self, kind: RecordKind) {
        self.of(kind).already_there += 1;
    }

    pub(super) fn refused(&mut self, kind: RecordKind, reason: &str, name: &[u8]) {
        let counts = self.of(kind);
        counts.refused += 1;
        note(&mut counts.refusals, reason, name);
    }

    /// Counts a key or id that has no record to import, so that nothing is lost.
    pub(super) fn skipped(&mut self, kind: RecordKind, reason: &str, name: &[u8]) {
        note(&mut self.of(kind).skipped, reason, name);
    }

    /// Counts a key of a program that ganger does not import.
    pub(super) fn other_key(&mut self, key: &[u8]) {
        self.others.add(display_name(key));
    }

    /// Counts a key of a product whose feature this build lacks.
    pub(super) fn not_built(&mut self, what: SourceKind, key: &[u8]) {
        self.not_built
            .entry(what)
            .or_default()
            .add(display_name(key));
    }

    /// Whether a record could not be imported.
    pub(super) fn has_refused(&self) -> bool {
        !self.not_built.is_empty() || self.kinds.values().any(|counts| counts.refused > 0)
    }

    /// Prints the report of the import.
    pub(super) fn show(
        &self,
        context: &Context,
        source: &str,
        is_dry: bool,
    ) -> Result<(), Failure> {
        if context.is_json() {
            return context.json(&self.document(source, is_dry));
        }
        if self.kinds.is_empty() {
            context.line(format!("{source} has nothing that ganger can import"))?;
        } else {
            context.line(self.table(is_dry))?;
        }
        for (kind, counts) in &self.kinds {
            for (word, reasons) in [("refused", &counts.refusals), ("skipped", &counts.skipped)] {
                for (reason, several) in reasons {
                    let (count, examples) = (several.count, several.examples.join(", "));
                    let name = kind.name();
                    context.line(format!(
                        "{word}: {count} of {name}: {reason} (such as {examples})"
                    ))?;
                }
            }
        }
        for (what, several) in &self.not_built {
            let (count, examples) = (several.count, several.examples.join(", "));
            let (product, feature, _) = what.feature();
            context.line(format!(
                "not imported: {count} keys of {product} (such as {examples}): this build of ganger lacks the Cargo feature `{feature}`; import them with one that has it"
            ))?;
        }
        if self.others.count > 0 {
            let (count, examples) = (self.others.count, self.others.examples.join(", "));
            context.line(format!(
                "not imported: {count} keys of other programs (such as {examples})"
            ))?;
        }
        let namespace = &self.namespace;
        context.line(if is_dry {
            format!("nothing was sent; the import would go into namespace {namespace}")
        } else {
            format!("from {source} into namespace {namespace}")
        })
    }

    fn table(&self, is_dry: bool) -> String {
        if is_dry {
            let mut rows = Rows::new(&["what", ">found"]);
            for (kind, counts) in &self.kinds {
                rows.push([kind.name().to_owned(), counts.found.to_string()]);
            }
            return rows.text();
        }
        let mut rows = Rows::new(&["what", ">found", ">imported", ">already there", ">refused"]);
        for (kind, counts) in &self.kinds {
            rows.push([
                kind.name().to_owned(),
                counts.found.to_string(),
                counts.imported.to_string(),
                counts.already_there.to_string(),
                counts.refused.to_string(),
            ]);
        }
        rows.text()
    }

    fn document(&self, source: &str, is_dry: bool) -> Value {
        let reasons = |reasons: &BTreeMap<String, Examples>| -> Value {
            let each = reasons.iter();
            each.map(|(reason, several)| (reason.clone(), several.document()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        let kinds = self.kinds.iter().map(|(kind, counts)| {
            let document = json!({
                "found": counts.found,
                "taken_over": counts.imported,
                "already_there": counts.already_there,
                "refused": counts.refused,
                "refusals": reasons(&counts.refusals),
                "left_out": reasons(&counts.skipped),
            });
            (kind.key(), document)
        });
        let not_built = self.not_built.iter();
        let not_built =
            not_built.map(|(what, keys)| (what.feature().0.to_owned(), keys.document()));
        json!({
            "source": source,
            "namespace": self.namespace,
            "dry_run": is_dry,
            "records": kinds.collect::<serde_json::Map<_, _>>(),
            "other_keys": self.others.document(),
            "not_built": not_built.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn note(reasons: &mut BTreeMap<String, Examples>, reason: &str, name: &[u8]) {
    let is_known = reasons.contains_key(reason) || reasons.len() < REASONS_MAX;
    let reason = if is_known { reason } else { "other reasons" };
    let several = reasons.entry(reason.to_owned()).or_default();
    several.add(display_name(name));
}

/// Returns a name for display: truncated, with control characters escaped.
pub(super) fn display_name(name: &[u8]) -> String {
    let cut = &name[..name.len().min(NAME_BYTES_MAX)];
    let dots = if cut.len() < name.len() { "..." } else { "" };
    format!("{}{dots}", cut.escape_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_product_that_this_build_lacks_fail_the_import_and_are_named() {
        let mut report = Report::new("default".to_owned());
        report.other_key(b"else");
        assert!(!report.has_refused());
        report.not_built(SourceKind::Qless, b"ql:j:1");
        report.not_built(SourceKind::Qless, b"ql:j:2");
        assert!(report.has_refused());
        let document = report.document("redis://127.0.0.1:6379/0", false);
        let keys = json!({"count": 2, "examples": ["ql:j:1", "ql:j:2"]});
        assert_eq!(document["not_built"], json!({ "qless": keys }));
    }
}
