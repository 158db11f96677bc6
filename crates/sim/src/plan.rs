//! Plans (swarm testing): each seed draws the features, the kinds and rates of faults, and the number of names. Half
//! of the seeds have at most two kinds of faults, some have none.

use crate::rng::{Rng, mix};

macro_rules! switches {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $name { $($variant,)* }

        impl $name {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

switches! {
    /// A feature that producers, workers and operators may use in a run.
    Feature {
        Bulk = "bulk",
        Delays = "delays",
        Priorities = "priorities",
        UniqueKeys = "unique-keys",
        GivenIds = "given-ids",
        IdempotencyKeys = "idempotency-keys",
        Graphs = "graphs",
        EdgePolicies = "edge-policies",
        Refusals = "refusals",
        Deadlines = "deadlines",
        Timeouts = "timeouts",
        Labels = "labels",
        RetryPolicies = "retry-policies",
        Renewals = "renewals",
        Releases = "releases",
        Failures = "failures",
        Prefetch = "prefetch",
        TakeModes = "take-modes",
        RequestIds = "request-ids",
        Logs = "logs",
        NextQueues = "next-queues",
        Deregistrations = "deregistrations",
        Pauses = "pauses",
        Limits = "limits",
        Cancels = "cancels",
        Deletes = "deletes",
        Retries = "retries",
        Alters = "alters",
        HandTimeOuts = "hand-time-outs",
        Dependencies = "dependencies",
        Retention = "retention",
        Schedules = "schedules",
        Namespaces = "namespaces",
        Reads = "reads",
        Graces = "graces",
        CallersClock = "callers-clock",
        NextDependencies = "next-dependencies",
        QuickRestarts = "quick-restarts",
        Imports = "imports",
        Operations = "operations",
    }
}

switches! {
    /// A kind of fault in a run.
    Fault {
        RequestsLost = "requests-lost",
        AnswersLost = "answers-lost",
        Latency = "latency",
        Crashes = "crashes",
        CommitsRefused = "commits-refused",
        CommitsUnknown = "commits-unknown",
        CommitsSlow = "commits-slow",
        Fences = "fences",
        WallJumps = "wall-jumps",
        Drift = "drift",
        WorkersDie = "workers-die",
        WorkersSlow = "workers-slow",
        Zombies = "zombies",
        WrongTokens = "wrong-tokens",
        Repeats = "repeats",
        Outages = "outages",
    }
}

/// A set of switches, as bits in order of `ALL`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchSet(pub(crate) u64);

impl SwitchSet {
    pub(crate) fn has(self, bit: usize) -> bool {
        self.0 >> bit & 1 == 1
    }

    pub(crate) fn set(&mut self, bit: usize) {
        self.0 |= 1 << bit;
    }
}

/// The time between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Milliseconds, so that everything overlaps.
    Dense,
    /// Up to two seconds.
    Even,
    /// Minutes, now and then days.
    Sparse,
}

/// The plan of a run, drawn from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) features: SwitchSet,
    pub(crate) faults: SwitchSet,
    /// Rate of the enabled faults, per mille.
    pub(crate) fault_rate: u64,
    pub(crate) queues: usize,
    pub(crate) workers: usize,
    pub(crate) keys: usize,
    pub(crate) steps: usize,
    pub(crate) pace: Pace,
    /// Usual length of leases in milliseconds.
    pub(crate) lease_ms: u64,
    /// Elapsed microseconds per million microseconds of the world.
    pub(crate) rate: u64,
    /// Whether network delays are multiples of one value, so that commands arrive together and share a turn.
    pub(crate) delays_on_grid: bool,
    /// Target number of live jobs.
    pub(crate) live_target: usize,
}

/// Features that only level 1 has, because their part of the oracle needs each command to be applied on arrival.
pub(crate) fn of_level_1() -> SwitchSet {
    let mut bits = SwitchSet::default();
    bits.set(index_of(Feature::ALL, &Feature::CallersClock));
    bits
}

fn index_of<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter()
        .position(|other| other == one)
        .expect("every switch is listed")
}

impl Plan {
    /// The plan of a seed, with `features_off` and `faults_off` switched off.
    pub(crate) fn draw(seed: u64, features_off: SwitchSet, faults_off: SwitchSet) -> Self {
        let mut rng = Rng::new(mix(seed ^ 0x51A7));
        let mut features = SwitchSet::default();
        let share = rng.within(250, 900);
        // Later features have random numbers of their own, so that the plans of older seeds do not change.
        let mut later = Rng::new(mix(seed ^ 0x1A7E));
        let first = index_of(Feature::ALL, &Feature::Graces) + 1;
        for bit in 0..Feature::ALL.len() {
            let rng = if bit < first { &mut rng } else { &mut later };
            if rng.chance(share) {
                features.set(bit);
            }
        }
        features.set(index_of(Feature::ALL, &Feature::QuickRestarts));
        let mut faults = SwitchSet::default();
        for _ in 0..Self::draw_fault_kinds(&mut rng) {
            faults.set(rng.index(Fault::ALL.len()));
        }
        features.0 &= !features_off.0;
        faults.0 &= !faults_off.0;
        let pace = *rng.pick(&[
            Pace::Dense,
            Pace::Dense,
            Pace::Even,
            Pace::Even,
            Pace::Sparse,
        ]);
        let drifts = faults.has(index_of(Fault::ALL, &Fault::Drift));
        let drift = rng.within(950_000, 1_050_000);
        Self {
            features,
            faults,
            fault_rate: *rng.pick(&[5, 20, 60, 150]),
            queues: rng.index(4) + 2,
            workers: rng.index(6) + 3,
            keys: 2,
            steps: rng.index(500) + 150,
            pace,
            lease_ms: *rng.pick(&[300, 2_000, 10_000, 60_000]),
            rate: if drifts { drift } else { 1_000_000 },
            delays_on_grid: *rng.pick(&[false, false, true, true]),
            live_target: *rng.pick(&[5, 15, 40]),
        }
    }

    /// Draws the number of kinds of faults: 5 % none, about half at most two, the rest up to all.
    fn draw_fault_kinds(rng: &mut Rng) -> usize {
        match rng.below(100) {
            0..5 => 0,
            5..50 => rng.index(2) + 1,
            _ => rng.index(10) + 3,
        }
    }

    pub(crate) fn does(&self, feature: Feature) -> bool {
        self.features.has(index_of(Feature::ALL, &feature))
    }

    pub(crate) fn suffers(&self, fault: Fault) -> bool {
        self.faults.has(index_of(Fault::ALL, &fault))
    }
}
