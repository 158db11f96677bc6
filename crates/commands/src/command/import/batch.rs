//! Sends records to the server in batches.

use ganger_client::import::{ImportOutcome, QlessSource};
use ganger_client::{Bytes, Client, ImportRecord};

use super::report::{RecordKind, Report};
use crate::exit::{Exit, Failure};

/// Maximum number of records in a batch.
const RECORDS_MAX: usize = 500;
/// Maximum bytes of a batch; a larger record is sent alone.
const BYTES_MAX: usize = 2 << 20;
/// Maximum bytes of a record that a request can carry.
pub(super) const RECORD_BYTES_MAX: usize = 4 << 20;

/// Sends records to a server and counts their outcomes.
pub(super) struct Target {
    /// The server; `None` for a dry run, which sends nothing.
    client: Option<Client>,
    namespace: String,
    batch: Vec<(RecordKind, String, ImportRecord)>,
    bytes: usize,
    pub(super) report: Report,
}

impl Target {
    pub(super) fn new(client: Option<Client>, namespace: String) -> Self {
        Self {
            client,
            report: Report::new(namespace.clone()),
            namespace,
            batch: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds a record to the batch, which is sent when it is full. `name` identifies the record in the report; `bytes`
    /// is its approximate size.
    pub(super) async fn send(
        &mut self,
        kind: RecordKind,
        name: &[u8],
        bytes: usize,
        record: ImportRecord,
    ) -> Result<(), Failure> {
        self.report.found(kind);
        if bytes > RECORD_BYTES_MAX {
            let reason = format!(
                "it is larger than {} MiB, which is the limit of a record",
                RECORD_BYTES_MAX >> 20
            );
            self.report.refused(kind, &reason, name);
            return Ok(());
        }
        if self.batch.len() >= RECORDS_MAX || self.bytes + bytes > BYTES_MAX {
            self.flush().await?;
        }
        self.bytes += bytes;
        let name = super::report::display_name(name);
        self.batch.push((kind, name, record));
        Ok(())
    }

    /// Makes jobs of qless ready whose dependencies have all ended.
    pub(super) async fn release(&mut self, jids: Vec<Bytes>) -> Result<(), Failure> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        let release = |jid| ImportRecord::Qless(Box::new(QlessSource::Release { jid }));
        for jids in jids.chunks(RECORDS_MAX) {
            let records = jids.iter().cloned().map(release).collect();
            let released = client.import(&self.namespace, records).await;
            released.map_err(import_failure)?;
        }
        Ok(())
    }

    /// Sends the batch to the server, and counts the outcome of each record.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        let Some(client) = self.client.as_ref().filter(|_| !batch.is_empty()) else {
            return Ok(());
        };
        let (names, records): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .map(|(kind, name, record)| ((kind, name), record))
            .unzip();
        let imported = client.import(&self.namespace, records).await;
        let imported = imported.map_err(import_failure)?;
        for ((kind, name), imported) in names.into_iter().zip(imported) {
            match imported {
                ImportOutcome::Taken => self.report.imported(kind),
                ImportOutcome::AlreadyThere => self.report.already_there(kind),
                ImportOutcome::Refused(reason) => {
                    self.report.refused(kind, &reason, name.as_bytes());
                }
            }
        }
        Ok(())
    }

    /// Sends the last batch; returns the report.
    pub(super) async fn finish(mut self) -> Result<Report, Failure> {
        self.flush().await?;
        Ok(self.report)
    }
}

fn import_failure(error: ganger_client::Error) -> Failure {
    let mut failure = Failure::from(error);
    failure.message = format!("the server accepted no more records: {}", failure.message);
    let step = match failure.exit {
        Exit::Unreachable => {
            "when the server is back, run the import again: imported records are not imported twice"
        }
        _ if failure.next_step.is_none() => {
            "run the import again: imported records are not imported twice"
        }
        _ => return failure,
    };
    failure.then(step)
}
