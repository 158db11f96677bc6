//! Resource usage of this process, as reported by the kernel.

use std::fs;

use crate::telemetry::error::TelemetryError;
use crate::telemetry::sampler::Sampler;

/// Default of the ticks per second in which Linux counts the processor time of processes.
const TICKS_PER_SECOND_DEFAULT: u64 = 100;
/// Key of the entry in the auxiliary vector that holds the ticks per second.
const AT_CLKTCK: u64 = 17;

/// Resource usage of a process since its start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usage {
    /// Processor time in user mode, in seconds.
    pub user_seconds: f64,
    /// Processor time in the kernel, in seconds.
    pub system_seconds: f64,
    /// Peak resident memory, in KiB.
    pub resident_max_kib: f64,
}

impl Usage {
    /// Returns the usage of this process; `None` if there is no `/proc`.
    pub fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let ticks = fs::read("/proc/self/auxv")
            .map_or(TICKS_PER_SECOND_DEFAULT, |vector| ticks_per_second(&vector));
        read(&stat, &status, ticks)
    }
}

/// Samples processor time and memory of this process. The series of a garbage collector, which ganger does not have, get
/// zeros, because analysis scripts expect them.
///
/// # Errors
/// See [`Sampler::sample`].
pub fn sample_runtime(sampler: &Sampler) -> Result<(), TelemetryError> {
    let Some(usage) = Usage::now() else {
        return Ok(());
    };
    let series = [
        ("user time", usage.user_seconds),
        ("system time", usage.system_seconds),
        ("max rss", usage.resident_max_kib),
        ("gc collections", 0.0),
        ("gc collected", 0.0),
        ("gc uncollectable", 0.0),
    ];
    for (label, measurement) in series {
        sampler.sample(label, measurement)?;
    }
    Ok(())
}

fn read(stat: &str, status: &str, ticks: u64) -> Option<Usage> {
    // The second field is the program's name in parentheses, which may contain any characters.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut seconds = || {
        let counted: f64 = fields.next()?.parse().ok()?;
        let ticks: f64 = u32::try_from(ticks).ok()?.into();
        Some(counted / ticks)
    };
    let (user_seconds, system_seconds) = (seconds()?, seconds()?);
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let resident_max_kib = peak.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Usage {
        user_seconds,
        system_seconds,
        resident_max_kib,
    })
}

/// Returns the ticks per second from the auxiliary vector: pairs of machine words, each a key and a value.
fn ticks_per_second(vector: &[u8]) -> u64 {
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| {
        let bytes = bytes.try_into().unwrap_or_default();
        u64::try_from(usize::from_ne_bytes(bytes)).unwrap_or_default()
    };
    vector
        .chunks_exact(2 * WORD)
        .find(|pair| word(&pair[..WORD]) == AT_CLKTCK)
        .map(|pair| word(&pair[WORD..]))
        .filter(|ticks| *ticks > 0)
        .unwrap_or(TICKS_PER_SECOND_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_peak_memory_are_read() {
        let stat = "7 (a) b ) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        let status = "Name:\ta\nVmPeak:\t  9 kB\nVmHWM:\t  5632 kB\n";
        let usage = read(stat, status, 100).expect("readable");
        let wanted = Usage {
            user_seconds: 2.5,
            system_seconds: 0.5,
            resident_max_kib: 5_632.0,
        };
        assert_eq!(usage, wanted);
        assert_eq!(read("7 (a) S", status, 100), None);
    }

    #[test]
    fn ticks_per_second_come_from_the_auxiliary_vector() {
        let pairs = [(6, 4_096), (17, 250), (0, 0_usize)];
        let vector: Vec<u8> = pairs
            .iter()
            .flat_map(|(kind, value): &(usize, usize)| {
                [kind.to_ne_bytes(), value.to_ne_bytes()].concat()
            })
            .collect();
        assert_eq!(ticks_per_second(&vector), 250);
        assert_eq!(ticks_per_second(&[]), TICKS_PER_SECOND_DEFAULT);
    }

    #[test]
    fn a_process_gives_six_series() {
        let directory = tempfile::tempdir().expect("a directory");
        let sampler = Sampler::open(directory.path(), crate::telemetry::RUNTIME).expect("made");
        sample_runtime(&sampler).expect("gathered");
        sampler.flush().expect("written");
        let mut files = fs::read_dir(directory.path()).expect("readable");
        let file = files.next().expect("a file").expect("readable");
        let text = fs::read_to_string(file.path()).expect("readable");
        assert_eq!(text.lines().count(), 7, "{text}");
        assert!(text.contains(",0,gc uncollectable,"), "{text}");
    }
}
