//! The binary messages between worker and supervisor.
//!
//! Both ends are the same binary, so there is no version; a message that cannot be parsed ends the connection.

use std::ffi::CString;

pub(super) const RUN: u8 = 1;
pub(super) const TERMINATE: u8 = 2;
pub(super) const SWEEP: u8 = 3;

/// Maximum bytes of an order with its environment. The kernel allows more, the socket does not.
pub(super) const ORDER_BYTES_MAX: usize = 128 << 10;

/// Limits that the kernel enforces on the program; `None` for the worker's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Seconds of CPU time.
    pub(crate) cpu_seconds: Option<u64>,
    /// Bytes of address space.
    pub(crate) memory_bytes: Option<u64>,
    /// Processes and threads of the user.
    pub(crate) processes: Option<u64>,
    /// Largest number of open files.
    pub(crate) open_files: Option<u64>,
    /// Bytes in one file.
    pub(crate) file_bytes: Option<u64>,
}

/// The user and group that a program runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Id of the user.
    pub(crate) uid: u32,
    /// Id of the group.
    pub(crate) gid: u32,
}

/// A program to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    /// Bounds on the program's resources.
    pub(crate) limits: Limits,
    /// User to run as; `None` for the worker's.
    pub(crate) user: Option<User>,
    /// Whether an interpreter must open the program again, by its path or its descriptor.
    pub(crate) is_script: bool,
    /// Whether the program may write only below its working directory.
    pub(crate) is_sandboxed: bool,
    /// Whether the program may send signals only to processes of its own run, if the kernel can enforce that.
    pub(crate) is_confined: bool,
    /// Absolute path, which is also the program's `argv[0]`.
    pub(crate) name: CString,
    /// Environment variables, each as `NAME=value`.
    pub(crate) environment: Vec<CString>,
}

const NONE: u64 = u64::MAX;
const NUMBERS: usize = 8;

impl Order {
    pub(super) fn encode(&self) -> Vec<u8> {
        let flags = u64::from(self.is_script)
            | u64::from(self.is_sandboxed) << 1
            | u64::from(self.user.is_some()) << 2
            | u64::from(self.is_confined) << 3;
        let user = self.user.unwrap_or(User { uid: 0, gid: 0 });
        let limits = &self.limits;
        let numbers: [u64; NUMBERS] = [
            flags,
            u64::from(user.uid),
            u64::from(user.gid),
            limits.cpu_seconds.unwrap_or(NONE),
            limits.memory_bytes.unwrap_or(NONE),
            limits.processes.unwrap_or(NONE),
            limits.open_files.unwrap_or(NONE),
            limits.file_bytes.unwrap_or(NONE),
        ];
        let mut bytes = vec![RUN];
        for number in numbers {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        for text in std::iter::once(&self.name).chain(&self.environment) {
            bytes.extend_from_slice(text.as_bytes_with_nul());
        }
        bytes
    }

    /// Decodes the bytes after [`RUN`].
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, strings) = bytes.split_at_checked(NUMBERS * 8)?;
        let mut numbers = numbers
            .chunks_exact(8)
            .filter_map(|chunk| Some(u64::from_le_bytes(chunk.try_into().ok()?)));
        let mut number = || numbers.next();
        let flags = number()?;
        let (uid, gid) = (number()?.try_into().ok()?, number()?.try_into().ok()?);
        let mut limit = || number().map(|value| (value != NONE).then_some(value));
        let limits = Limits {
            cpu_seconds: limit()?,
            memory_bytes: limit()?,
            processes: limit()?,
            open_files: limit()?,
            file_bytes: limit()?,
        };
        let mut strings = strings
            .split_inclusive(|byte| *byte == 0)
            .map(|text| CString::from_vec_with_nul(text.to_vec()));
        Some(Self {
            limits,
            user: (flags & 4 != 0).then_some(User { uid, gid }),
            is_script: flags & 1 != 0,
            is_sandboxed: flags & 2 != 0,
            is_confined: flags & 8 != 0,
            name: strings.next()?.ok()?,
            environment: strings.collect::<Result<_, _>>().ok()?,
        })
    }
}

/// The step at which starting a program failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartStep {
    /// Creation of the process.
    Process,
    /// Setup of its session, descriptors and directory.
    Surroundings,
    /// Setting of its resource limits.
    Limits,
    /// Change to its user and group.
    User,
    /// Setup of its sandbox.
    Sandbox,
    /// Execution of the program itself.
    Execute,
}

impl StartStep {
    const ALL: [Self; 6] = [
        Self::Process,
        Self::Surroundings,
        Self::Limits,
        Self::User,
        Self::Sandbox,
        Self::Execute,
    ];
}

/// Report of a supervisor to the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SupervisorMessage {
    NotStarted { step: StartStep, errno: i32 },
    Exited { status: i32, is_clean: bool },
    Clean { killed: u32 },
    Stuck,
}

impl SupervisorMessage {
    pub(super) fn encode(self) -> [u8; 6] {
        let (tag, small, number) = match self {
            Self::NotStarted { step, errno } => {
                let place = StartStep::ALL
                    .iter()
                    .position(|one| *one == step)
                    .unwrap_or(0);
                (1, u8::try_from(place).unwrap_or(0), errno.to_le_bytes())
            }
            Self::Exited { status, is_clean } => (2, u8::from(is_clean), status.to_le_bytes()),
            Self::Clean { killed } => (3, 0, killed.to_le_bytes()),
            Self::Stuck => (4, 0, [0; 4]),
        };
        let [a, b, c, d] = number;
        [tag, small, a, b, c, d]
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let &[tag, small, a, b, c, d] = bytes else {
            return None;
        };
        let number = [a, b, c, d];
        Some(match tag {
            1 => Self::NotStarted {
                step: *StartStep::ALL.get(usize::from(small))?,
                errno: i32::from_le_bytes(number),
            },
            2 => Self::Exited {
                status: i32::from_le_bytes(number),
                is_clean: small != 0,
            },
            3 => Self::Clean {
                killed: u32::from_le_bytes(number),
            },
            4 => Self::Stuck,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_decodes_as_it_was_encoded() {
        let order = Order {
            limits: Limits {
                memory_bytes: Some(1 << 30),
                open_files: Some(0),
                ..Limits::default()
            },
            user: Some(User { uid: 7, gid: 8 }),
            is_script: true,
            is_sandboxed: false,
            is_confined: true,
            name: c"/etc/ganger/worker.d/greet".into(),
            environment: vec![c"PATH=/bin".into(), c"EMPTY=".into()],
        };
        assert_eq!(Order::decode(&order.encode()[1..]), Some(order));
    }

    #[test]
    fn every_message_decodes_as_it_was_encoded() {
        let step = StartStep::Execute;
        for message in [
            SupervisorMessage::NotStarted { step, errno: 8 },
            SupervisorMessage::Exited {
                status: -1,
                is_clean: true,
            },
            SupervisorMessage::Clean { killed: 70_000 },
            SupervisorMessage::Stuck,
        ] {
            assert_eq!(SupervisorMessage::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn a_truncated_order_is_rejected() {
        let bytes = Order {
            name: c"x".into(),
            ..Order::default()
        }
        .encode();
        for length in 1..bytes.len() {
            assert_eq!(Order::decode(&bytes[1..length]), None, "cut at {length}");
        }
    }
}
