//! `ganger backup`: a consistent copy of a store, even while the server runs.

use std::path::PathBuf;

use clap::Args;

use crate::command::check;
use crate::context::{Context, remark};
use crate::exit::{Exit, Failure, Outcome};

/// Copies a store into a new file and audits the copy. The server may continue to run.
///
/// The copy contains everything acknowledged before the command began. To restore it, stop the server, move the old
/// file away together with its -wal, -shm and -turns* files, and put the copy in its place.
#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// Path of the store's file.
    #[arg(long, value_name = "FILE", env = "GANGER_DB")]
    db: PathBuf,

    /// Path of the backup file to write.
    to: PathBuf,
}

pub(crate) fn run(context: &Context, args: &BackupArgs) -> Outcome {
    if !args.db.exists() {
        let message = format!("there is no store {}", args.db.display());
        return Err(
            Failure::new(Exit::NotFound, "file", message).then("name the store's file with --db")
        );
    }
    let report = ganger_store_embedded::backup(&args.db, &args.to)
        .map_err(|error| Failure::failed(error.to_string()))?;
    if !context.is_json() {
        remark(format!(
            "{} copied to {}",
            args.db.display(),
            args.to.display()
        ));
    }
    check::print(context, &report)
}
