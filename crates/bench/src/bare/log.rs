//! The upper limit: an append-only file that is flushed after each batch.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{Error, rate};

/// Bytes of a record besides the payload: ids, times, names, checksum.
const RECORD_BYTES: usize = 120;

/// Number of records in the life of a job: enqueue, lease, completion.
const RECORDS_A_LIFE: u64 = 3;

/// Measures the lives per second that a bare log could record with `batch` records per flush.
pub(crate) fn measure(
    dir: &Path,
    batch: usize,
    payload: usize,
    time: Duration,
) -> Result<f64, Error> {
    let path = dir.join("bare.log");
    let mut file = OpenOptions::new()
        .create_new(true)
        .append(true)
        .open(&path)
        .map_err(|error| Error::file(&path, error))?;
    // Only the first of the three records contains the payload.
    let records_bytes = batch * RECORD_BYTES + batch.div_ceil(3) * payload;
    let records = vec![0x5a; records_bytes];
    let begun = Instant::now();
    let mut flushed: u64 = 0;
    while begun.elapsed() < time {
        file.write_all(&records)?;
        file.sync_data()?;
        flushed += 1;
    }
    let took = begun.elapsed();
    drop(file);
    fs::remove_file(&path).map_err(|error| Error::file(&path, error))?;
    let records = flushed * u64::try_from(batch).unwrap_or(1);
    Ok(rate(records / RECORDS_A_LIFE, took))
}
