//! Tickets that tell what the core does with a request: when it was taken, when it was tried again.
//!
//! The core asks a waiting request whether anybody still listens each time it turns to it. That
//! question is heard here, and a marker that nobody listens to goes in front of every other request:
//! so the order in which the engine saw everything is known, to the last try.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ganger_shard::core::Ticket;

/// Something the core turned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketEvent {
    /// The command of this operation is applied next.
    Call(u64),
    /// A lease request is tried, for the first time or again.
    Try(u64),
    /// Nothing; it shows that the core takes requests.
    Probe,
}

/// What the core has turned to since the log was last taken.
pub(crate) type TicketLog = Rc<RefCell<Vec<TicketEvent>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketKind {
    Call,
    Lease,
    Marker(TicketEvent),
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) struct SimTicket {
    op: u64,
    kind: TicketKind,
    log: TicketLog,
    has_left: Rc<Cell<bool>>,
}

impl SimTicket {
    /// Ticket for the reply to a command.
    pub(crate) fn call(op: u64, log: &TicketLog) -> Self {
        Self::new(op, TicketKind::Call, log)
    }

    /// For a lease request; its client leaves by setting the cell.
    pub(crate) fn lease(op: u64, log: &TicketLog, has_left: &Rc<Cell<bool>>) -> Self {
        let mut ticket = Self::new(op, TicketKind::Lease, log);
        ticket.has_left = Rc::clone(has_left);
        ticket
    }

    /// In front of a command.
    pub(crate) fn marker(mark: TicketEvent, log: &TicketLog) -> Self {
        Self::new(0, TicketKind::Marker(mark), log)
    }

    fn new(op: u64, kind: TicketKind, log: &TicketLog) -> Self {
        let has_left = Rc::default();
        let log = Rc::clone(log);
        Self {
            op,
            kind,
            log,
            has_left,
        }
    }

    /// The operation that waits for the answer; markers have none.
    pub(crate) fn op(&self) -> Option<u64> {
        (!matches!(self.kind, TicketKind::Marker(_))).then_some(self.op)
    }
}

impl Ticket for SimTicket {
    fn is_gone(&self) -> bool {
        let mark = match self.kind {
            TicketKind::Call => return false,
            TicketKind::Lease if self.has_left.get() => return true,
            TicketKind::Lease => TicketEvent::Try(self.op),
            TicketKind::Marker(mark) => mark,
        };
        self.log.borrow_mut().push(mark);
        matches!(self.kind, TicketKind::Marker(_))
    }
}
