//! `ganger check`: audits a store at rest, or a running server.

use std::path::PathBuf;

use clap::Args;
use ganger_store_embedded::AuditReport;
use serde_json::json;

use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};
use crate::show::{counted, escape};

/// Audits a store: reads every row, verifies every checksum, and compares all indexes and counts.
///
/// The store may be in use; nothing is written into it. With --live the running server recomputes its state in memory
/// and compares. Exits with 1 if something disagrees.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Path of the store's file.
    #[arg(required_unless_present = "live", conflicts_with = "live")]
    path: Option<PathBuf>,

    /// Audit the server named by --server.
    #[arg(long)]
    live: bool,
}

pub(crate) async fn run(context: &Context, args: CheckArgs) -> Outcome {
    let Some(path) = args.path else {
        return live(context).await;
    };
    if !path.exists() {
        return Err(Failure::new(
            Exit::NotFound,
            "file",
            format!("there is no store {}", path.display()),
        ));
    }
    let mut tell = |rows: u64| {
        if !context.is_json() && rows.is_multiple_of(1_000_000) && rows > 0 {
            remark(format!("{rows} rows"));
        }
    };
    let report = ganger_store_embedded::check(&path, &mut tell)
        .map_err(|error| Failure::failed(error.to_string()))?;
    print(context, &report)
}

/// Prints what an audit of a store found.
pub(crate) fn print(context: &Context, report: &AuditReport) -> Outcome {
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    if context.is_json() {
        context.json(&json!({
            "clean": report.is_clean(),
            "live_jobs": report.live_jobs,
            "finished_jobs": report.finished_jobs,
            "leases": report.leases,
            "external_rows": report.external_rows,
            "rows": report.rows,
            "sequence": report.sequence,
            "waiting": report.waiting,
            "doubt": report.doubt,
            "findings": findings,
            "findings_dropped": report.findings_dropped,
        }))?;
    } else {
        for finding in &findings {
            context.line(escape::line(finding))?;
        }
        if report.findings_dropped > 0 {
            context.line(format!("and {} more", report.findings_dropped))?;
        }
        if let Some(doubt) = &report.doubt {
            context.line(format!("doubtful: {}", escape::line(doubt)))?;
        }
        if report.waiting > 0 {
            context.line(format!(
                "{} in the turn log were not checked: the server has not written them into its tables in time",
                counted(report.waiting, "commit")
            ))?;
        }
        let verdict = if report.is_clean() {
            "all is well"
        } else {
            "something disagrees"
        };
        context.line(format!(
            "{verdict}: {}, {} finished, {}, {} read, up to commit {}",
            counted(report.live_jobs, "live job"),
            report.finished_jobs,
            counted(report.leases, "lease"),
            counted(report.rows, "row"),
            report.sequence
        ))?;
    }
    Ok(if report.is_clean() {
        Exit::Done
    } else {
        Exit::Failed
    })
}

async fn live(context: &Context) -> Outcome {
    let findings = context.client().await?.audit().await?;
    if context.is_json() {
        context.json(&json!({ "clean": findings.is_empty(), "findings": findings }))?;
    } else {
        for finding in &findings {
            context.line(escape::line(finding))?;
        }
        context.line(match findings.len() {
            0 => "all is well".to_owned(),
            count => counted(u64::try_from(count).unwrap_or(u64::MAX), "finding"),
        })?;
    }
    Ok(if findings.is_empty() {
        Exit::Done
    } else {
        Exit::Failed
    })
}
