//! Imports the statistics of a queue and day, and adds them to existing ones.

use bytes::Bytes;
use ganger_types::import::QlessStatisticsSource;
use ganger_types::qless::QlessSample;

use super::{Fields, ImportError};
use crate::number;
use crate::state::Qless;
use crate::statistics;

/// Imports the statistics of a queue and day. Always returns true.
pub(super) fn import(
    state: &mut Qless,
    source: &QlessStatisticsSource,
) -> Result<bool, ImportError> {
    let counters = Fields(&source.counters);
    let counter = |name| counters.number(name, Some(0.0)).map(number::truncate);
    let (failed, failures, retries) = (
        counter("failed")?,
        counter("failures")?,
        counter("retries")?,
    );
    let (wait, run) = (sample(&source.wait)?, sample(&source.run)?);
    state.edit_statistics(&source.queue, source.day, |it| {
        it.failed = it.failed.saturating_add(failed);
        it.failures = it.failures.saturating_add(failures);
        it.retries = it.retries.saturating_add(retries);
        add(&mut it.wait, wait);
        add(&mut it.run, run);
    });
    Ok(true)
}

fn sample(fields: &[(Bytes, Bytes)]) -> Result<QlessSample, ImportError> {
    let known = Fields(fields);
    let total = number::truncate(known.number("total", Some(0.0))?);
    let mut bins = Vec::new();
    for (name, count) in fields {
        let count = number::parse(count).map(number::truncate);
        let count = count.and_then(|it| u64::try_from(it).ok());
        if let (Some(bin), Some(count)) = (bin(name), count) {
            bins.push((bin, count));
        }
    }
    bins.sort_unstable();
    bins.dedup_by_key(|(bin, _)| *bin);
    Ok(QlessSample {
        total: u64::try_from(total).unwrap_or(0),
        mean: known.number("mean", Some(0.0))?,
        vk: known.number("vk", Some(0.0))?,
        bins,
    })
}

/// Returns the bin of a histogram's field, whose name is a letter for the unit and a number of units; `None` for other
/// fields.
fn bin(name: &[u8]) -> Option<u16> {
    let (unit, digits) = name.split_first()?;
    let seconds = match unit {
        b's' => 1.0,
        b'm' => 60.0,
        b'h' => 3_600.0,
        b'd' => 86_400.0,
        _ => return None,
    };
    statistics::bin(number::parse(digits)? * seconds)
}

/// Adds a sample to another. The result equals a sample of all their values.
fn add(to: &mut QlessSample, other: QlessSample) {
    let total = to.total.saturating_add(other.total);
    if other.total > 0 {
        let (one, two) = (
            number::from_count(to.total),
            number::from_count(other.total),
        );
        let all = number::from_count(total);
        let distance = number::sum(other.mean, -to.mean);
        let spread = number::sum(to.vk, other.vk);
        to.vk = number::sum(spread, distance * distance * one * two / all);
        to.mean = number::sum(to.mean, distance * two / all);
        to.total = total;
    }
    for (bin, count) in other.bins {
        match to.bins.binary_search_by_key(&bin, |(it, _)| *it) {
            Ok(index) => to.bins[index].1 = to.bins[index].1.saturating_add(count),
            Err(index) => to.bins.insert(index, (bin, count)),
        }
    }
}
