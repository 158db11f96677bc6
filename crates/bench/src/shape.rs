//! The loads by their names: how many connections, and what each of them sends and takes.

/// The messages of one producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messages {
    /// Jobs in one message; they are enqueued together.
    pub jobs: usize,
    /// Messages that may be sent and not acknowledged.
    pub unanswered: usize,
}

impl Messages {
    /// Messages of so many jobs, of which so many may be unanswered.
    pub const fn new(jobs: usize, unanswered: usize) -> Self {
        Self { jobs, unanswered }
    }
}

/// The connections of a load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The producers, each with a connection of its own.
    pub producers: Vec<Messages>,
    /// Number of consumers, each with a connection of its own.
    pub consumers: usize,
    /// Jobs in one delivery and report.
    pub take: usize,
}

impl Shape {
    /// Producers that all send the same, and consumers.
    pub fn new(producers: usize, messages: Messages, consumers: usize, take: usize) -> Self {
        Self {
            producers: vec![messages; producers],
            consumers,
            take,
        }
    }
}

/// How a load is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Producers enqueue, and nobody takes jobs.
    Enqueue,
    /// Taking and completing jobs that wait, for each second of the measurement so many.
    Take(u32),
    /// Producers and consumers at once.
    Flow,
    /// The same on an empty queue, then above many jobs that wait.
    Deep,
    /// Producers that send so many jobs a second together, and consumers, if there are any.
    Paced(u32),
}

/// A load that is measured the same way of every system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`Named::about` describes each")]
pub enum Named {
    E1,
    E256,
    E100,
    E4x64,
    P1,
    P4,
    P4x64,
    P16x64,
    M,
    Mixed,
    Ack,
    L,
    Paced,
    D,
}

const SINGLE: Messages = Messages::new(1, 1);
const SINGLES_64: Messages = Messages::new(1, 64);
const BATCHES_100: Messages = Messages::new(100, 2);

impl Named {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 14] = [
        Self::E1,
        Self::E256,
        Self::E100,
        Self::E4x64,
        Self::P1,
        Self::P4,
        Self::P4x64,
        Self::P16x64,
        Self::M,
        Self::Mixed,
        Self::Ack,
        Self::L,
        Self::Paced,
        Self::D,
    ];

    /// The name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::E1 => "E1",
            Self::E256 => "E256",
            Self::E100 => "E100",
            Self::E4x64 => "E4x64",
            Self::P1 => "P1",
            Self::P4 => "P4",
            Self::P4x64 => "P4x64",
            Self::P16x64 => "P16x64",
            Self::M => "M",
            Self::Mixed => "MIXED",
            Self::Ack => "ACK",
            Self::L => "L",
            Self::Paced => "PACED",
            Self::D => "D",
        }
    }

    /// What it does, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Self::E1 => "Enqueue one by one over 1 connection",
            Self::E256 => "Enqueue over 1 connection, 256 single-job messages unanswered",
            Self::E100 => "Enqueue over 1 connection in batches of 100, two unanswered",
            Self::E4x64 => "Enqueue over 4 connections, 64 single-job messages unanswered each",
            Self::P1 => "Take and complete one by one over 1 connection",
            Self::P4 => "Take and complete one by one over 4 connections",
            Self::P4x64 => "Take and complete in batches of 64 over 4 connections",
            Self::P16x64 => "Take and complete in batches of 64 over 16 connections",
            Self::M => {
                "2 producers with 64 single-job messages unanswered each, 4 consumers with batches of 16"
            }
            Self::Mixed => {
                "As m, but one producer sends single jobs and the other batches of 100, two unanswered"
            }
            Self::Ack => {
                "1 producer at 1,000 jobs a second, and nobody takes: enqueue to acknowledgement"
            }
            Self::L => "1 producer at 1,000 jobs a second and 1 idle consumer: enqueue to start",
            Self::Paced => "As m at 5,000 jobs a second: enqueue to start, CPU a job",
            Self::D => "As m on an empty queue and above 1,000,000 jobs that wait (--waiting)",
        }
    }

    /// How it is measured.
    pub fn method(self) -> Method {
        match self {
            Self::E1 | Self::E256 | Self::E100 | Self::E4x64 => Method::Enqueue,
            Self::P1 => Method::Take(10_000),
            Self::P4 => Method::Take(20_000),
            Self::P4x64 | Self::P16x64 => Method::Take(100_000),
            Self::M | Self::Mixed => Method::Flow,
            Self::Ack | Self::L => Method::Paced(1_000),
            Self::Paced => Method::Paced(5_000),
            Self::D => Method::Deep,
        }
    }

    /// The connections of the load, and what each of them sends.
    pub fn shape(self) -> Shape {
        match self {
            Self::E1 => Shape::new(1, SINGLE, 0, 1),
            Self::E256 => Shape::new(1, Messages::new(1, 256), 0, 1),
            Self::E100 => Shape::new(1, BATCHES_100, 0, 1),
            Self::E4x64 => Shape::new(4, SINGLES_64, 0, 1),
            Self::P1 => Shape::new(0, SINGLE, 1, 1),
            Self::P4 => Shape::new(0, SINGLE, 4, 1),
            Self::P4x64 => Shape::new(0, SINGLE, 4, 64),
            Self::P16x64 => Shape::new(0, SINGLE, 16, 64),
            Self::M | Self::Paced | Self::D => Shape::new(2, SINGLES_64, 4, 16),
            Self::Mixed => Shape {
                producers: vec![SINGLES_64, BATCHES_100],
                ..Self::M.shape()
            },
            Self::Ack => Shape::new(1, SINGLES_64, 0, 1),
            Self::L => Shape::new(1, SINGLES_64, 1, 1),
        }
    }

    /// The load of this name; upper and lower case are the same.
    pub fn find(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|named| named.name().eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_is_found_by_its_name() {
        for named in Named::ALL {
            assert_eq!(Named::find(&named.name().to_lowercase()), Some(named));
        }
        assert_eq!(Named::find("E2"), None);
    }

    #[test]
    fn the_mixed_load_has_singles_and_batches() {
        let shape = Named::Mixed.shape();
        assert_eq!(shape.producers, [SINGLES_64, BATCHES_100]);
        assert_eq!((shape.consumers, shape.take), (4, 16));
    }
}
