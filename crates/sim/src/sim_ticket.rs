//! Tickets that record what the core does with a request: when it applies it and when it tries it again.
//!
//! The core asks a waiting request whether its client still listens each time that it tries the request. The ticket
//! records that question, and a marker without a client precedes every other request. The log therefore has the exact
//! order in which the engine handled everything.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ganger_shard::core::Ticket;

/// A request that the core handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TicketEvent {
    /// The command of this operation is applied next.
    Call(u64),
    /// A lease request is tried, for the first time or again.
    Try(u64),
    /// A probe, which shows that the core handles requests.
    Probe,
}

/// The requests that the core has handled since the log was last taken.
pub(crate) type TicketLog = Rc<RefCell<Vec<TicketEvent>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TicketKind {
    Call,
    Lease,
    Marker(TicketEvent),
}

/// The reply channel of a simulated request.
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

    /// Ticket for a lease request, whose client leaves by setting the cell.
    pub(crate) fn lease(op: u64, log: &TicketLog, has_left: &Rc<Cell<bool>>) -> Self {
        let mut ticket = Self::new(op, TicketKind::Lease, log);
        ticket.has_left = Rc::clone(has_left);
        ticket
    }

    /// Marker before a command.
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

    /// The operation of the ticket; `None` for markers.
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
