//! `ganger audit-log`: who did what, when, from where, and how it ended.

use clap::Args;
use ganger_client::{AuditFilter, AuditRecord};

use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::table::Rows;
use crate::show::{escape, time};

/// Number of records fetched at once.
const PAGE_RECORDS: u32 = 500;

/// Lists the newest records of the server's audit log, the newest first. All conditions given must hold.
#[derive(Args, Debug)]
pub(crate) struct AuditLogArgs {
    /// Only records whose caller contains this text.
    #[arg(long, value_name = "TEXT")]
    who: Option<String>,

    /// Only records of this operation, such as cancelJob (HTTP) or ganger.v1.Jobs/Cancel (gRPC).
    #[arg(long, value_name = "OPERATION")]
    what: Option<String>,

    /// Only records that ended so: done, refused or denied.
    #[arg(long, value_name = "OUTCOME", value_parser = ["done", "refused", "denied"])]
    outcome: Option<String>,

    /// Maximum number of records; 0 for all that the server keeps.
    #[arg(short, long, default_value_t = 100)]
    limit: u64,
}

pub(crate) async fn run(context: &Context, args: AuditLogArgs) -> Outcome {
    let limit = if args.limit == 0 {
        u64::MAX
    } else {
        args.limit
    };
    let mut filter = AuditFilter {
        who: args.who,
        what: args.what,
        outcome: args.outcome,
        ..AuditFilter::default()
    };
    let client = context.client().await?;
    let mut records: Vec<AuditRecord> = Vec::new();
    let mut shown: u64 = 0;
    loop {
        filter.limit = u32::try_from(limit - shown)
            .unwrap_or(PAGE_RECORDS)
            .min(PAGE_RECORDS);
        let page = client.audit_log(filter.clone()).await?;
        shown += u64::try_from(page.records.len()).unwrap_or(0);
        if context.is_json() {
            for record in &page.records {
                context.json(record)?;
            }
        } else {
            records.extend(page.records);
        }
        filter.after = page.next;
        if filter.after.is_none() || shown >= limit {
            break;
        }
    }
    if context.is_json() {
        return Ok(Exit::Done);
    }
    if records.is_empty() {
        remark("no records");
    } else {
        context.line(table(&records))?;
    }
    if filter.after.is_some() {
        remark(format!(
            "there are more than these {shown}: give --limit N, or 0 for all"
        ));
    }
    Ok(Exit::Done)
}

fn table(records: &[AuditRecord]) -> String {
    let mut rows = Rows::new(&["time", "who", "what", "outcome", "on", "namespace", "from"]);
    for record in records {
        let text = |text: &Option<String>| text.as_deref().map_or_else(String::new, escape::line);
        let outcome = match &record.detail {
            Some(detail) => format!("{}: {}", record.outcome, escape::short(detail, 60)),
            None => record.outcome.clone(),
        };
        let from = match &record.via {
            Some(via) => format!("{} ({})", text(&record.from), escape::line(via)),
            None => text(&record.from),
        };
        rows.push([
            time::absolute(record.at),
            escape::line(&record.who),
            escape::line(&record.what),
            outcome,
            escape::short(record.on.as_deref().unwrap_or_default(), 60),
            text(&record.namespace),
            from,
        ]);
    }
    rows.text()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_record_is_a_line_with_reason_and_way() {
        let record = AuditRecord {
            at: SystemTime::UNIX_EPOCH,
            who: "token \"ci\"".to_owned(),
            what: "cancelJob".to_owned(),
            on: Some("/api/v1/jobs/a/cancel\n".to_owned()),
            namespace: Some("mail".to_owned()),
            from: Some("127.0.0.1:7".to_owned()),
            outcome: "refused".to_owned(),
            detail: Some("job_ended".to_owned()),
            via: Some("ui".to_owned()),
        };
        let text = table(&[record]);
        let line = text.lines().nth(1).expect("a line of the record");
        for part in [
            "token \"ci\"  cancelJob  refused: job_ended",
            "  /api/v1/jobs/a/cancel  ",
            "mail       127.0.0.1:7 (ui)",
        ] {
            assert!(line.contains(part), "{text}");
        }
    }
}
