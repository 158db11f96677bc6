//! Records on their way to the server, in batches.

use ganger_client::import::{ImportOutcome, QlessSource};
use ganger_client::{Bytes, Client, ImportRecord};

use super::report::{RecordKind, Report};
use crate::exit::{Exit, Failure};

/// Records of a batch.
const RECORDS_MAX: usize = 500;
/// Bytes of a batch; a larger record goes by itself.
const BYTES_MAX: usize = 2 << 20;
/// Bytes of a record that fits a request.
pub(super) const RECORD_BYTES_MAX: usize = 4 << 20;

/// The server, and what became of the records.
pub(super) struct Target {
    /// `None`: nothing is sent.
    client: Option<Client>,
    namespace: String,
    waiting: Vec<(RecordKind, String, ImportRecord)>,
    bytes: usize,
    pub(super) report: Report,
}

impl Target {
    pub(super) fn new(client: Option<Client>, namespace: String) -> Self {
        Self {
            client,
            report: Report::new(namespace.clone()),
            namespace,
            waiting: Vec::new(),
            bytes: 0,
        }
    }

    /// Takes a record to be sent. `name` is shown if it is refused, `bytes` is about its size.
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
        if self.waiting.len() >= RECORDS_MAX || self.bytes + bytes > BYTES_MAX {
            self.flush().await?;
        }
        self.bytes += bytes;
        let name = super::report::shown(name);
        self.waiting.push((kind, name, record));
        Ok(())
    }

    /// Lets jobs of qless go on for which nothing is left to wait for.
    pub(super) async fn release(&mut self, jids: Vec<Bytes>) -> Result<(), Failure> {
        let Some(client) = &self.client else {
            return Ok(());
        };
        let release = |jid| ImportRecord::Qless(Box::new(QlessSource::Release { jid }));
        for jids in jids.chunks(RECORDS_MAX) {
            let records = jids.iter().cloned().map(release).collect();
            let released = client.import(&self.namespace, records).await;
            released.map_err(no_more)?;
        }
        Ok(())
    }

    /// Sends the records that wait in the batch.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        let waiting = std::mem::take(&mut self.waiting);
        self.bytes = 0;
        let Some(client) = self.client.as_ref().filter(|_| !waiting.is_empty()) else {
            return Ok(());
        };
        let (names, records): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .map(|(kind, name, record)| ((kind, name), record))
            .unzip();
        let imported = client.import(&self.namespace, records).await;
        let imported = imported.map_err(no_more)?;
        for ((kind, name), imported) in names.into_iter().zip(imported) {
            match imported {
                ImportOutcome::Taken => self.report.taken(kind),
                ImportOutcome::AlreadyThere => self.report.already_there(kind),
                ImportOutcome::Refused(reason) => {
                    self.report.refused(kind, &reason, name.as_bytes())
                }
            }
        }
        Ok(())
    }

    /// Sends the rest; what became of all.
    pub(super) async fn finish(mut self) -> Result<Report, Failure> {
        self.flush().await?;
        Ok(self.report)
    }
}

fn no_more(error: ganger_client::Error) -> Failure {
    let mut failure = Failure::from(error);
    failure.message = format!("the server took no more: {}", failure.message);
    let step = match failure.exit {
        Exit::Unreachable => {
            "when the server is back, run the import again: what was taken over is not taken twice"
        }
        _ if failure.next_step.is_none() => {
            "run the import again: what was taken over is not taken twice"
        }
        _ => return failure,
    };
    failure.then(step)
}
