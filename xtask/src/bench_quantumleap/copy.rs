//! The upper limit: `psql \copy` of the same rows into the same table with the same index.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;

use super::inserts::Rate;
use crate::bench_peers::postgres;
use crate::process::output;

/// Copies the rows out of the table and into a new one; prints the measured rates relative to that.
pub(super) fn measure(
    programs: &Path,
    database: &postgres::Server,
    directory: &Path,
    rates: &[Rate],
) -> Result<()> {
    let file = directory.join("rooms.txt");
    let port = database.address().port().to_string();
    let psql = |command: &str| {
        let mut psql = Command::new(programs.join("psql"));
        psql.args(["-h", "127.0.0.1", "-p", &port, "-U", postgres::USER])
            .args(["-d", "postgres", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c"])
            .arg(command);
        output(&mut psql)
    };
    psql(&format!("\\copy etroom to '{}'", file.display()))?;
    psql("create table again (like etroom including all)")?;
    let began = Instant::now();
    psql(&format!("\\copy again from '{}'", file.display()))?;
    let seconds = began.elapsed().as_secs_f64();
    let rows: u32 = database
        .query_value("SELECT count(*)::text FROM again")?
        .parse()?;
    let limit = f64::from(rows) / seconds;
    println!("\n`psql \\copy` of the same {rows} rows: {limit:.0} rows/s\n");
    println!("| workers | entities each | of `\\copy` |");
    println!("|---:|---:|---:|");
    for rate in rates {
        println!(
            "| {} | {} | {:.2} |",
            rate.workers,
            rate.entities,
            rate.rows / limit
        );
    }
    Ok(())
}
