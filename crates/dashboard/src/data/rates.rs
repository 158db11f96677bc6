//! How fast queues fill and empty, as text.

use ganger_shard::series::Rate;

/// The rates of several queues together.
pub(crate) fn sum(rates: impl Iterator<Item = Rate>) -> Option<(u64, u64)> {
    rates
        .map(|rate| (rate.arrivals_in_tenths(), rate.completions_in_tenths()))
        .reduce(|sum, rate| (sum.0 + rate.0, sum.1 + rate.1))
}

/// A rate in tenths of a job a minute as text.
pub(crate) fn text(tenths: u64) -> String {
    match tenths {
        0 => "0".to_owned(),
        1..=99 => format!("{}.{}", tenths / 10, tenths % 10),
        _ => crate::format::count(tenths / 10),
    }
}
