//! The lease record: small, because leases come and go with every attempt.

use ganger_types::{Elapsed, JobKey, LeaseRecord, RequestId, Timestamp, Worker};

use super::failure::{read_token, write_token};
use super::{Cursor, DecodeError, Record, Writer};

impl Record for LeaseRecord {
    const WHAT: &'static str = "lease";

    fn write(&self, out: &mut Writer<'_>) {
        out.number(self.key.0);
        out.number(u64::from(self.attempt));
        out.number(u64::from(self.attempts_counted));
        out.bytes(self.worker.as_bytes());
        write_token(out, self.token);
        out.number(self.granted_at.0);
        out.duration(self.lease_for);
        out.number(self.granted_elapsed.0);
        out.near(self.expires_at.0, self.granted_elapsed.0);
        out.near(self.ready_at.0, self.granted_elapsed.0);
        out.option(self.timeout_at, |out, at| {
            out.near(at.0, self.granted_elapsed.0);
        });
        out.option(self.request.as_ref(), |out, request| {
            out.bytes(request.as_bytes());
        });
        out.flag(self.is_warned);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        let key = JobKey(from.number()?);
        let attempt = from.small()?;
        let attempts_counted = from.small()?;
        let worker = from.name(Worker::new)?;
        let token = read_token(from)?;
        let granted_at = Timestamp(from.number()?);
        let lease_for = from.duration()?;
        let granted_elapsed = Elapsed(from.number()?);
        Ok(Self {
            key,
            attempt,
            attempts_counted,
            worker,
            token,
            granted_at,
            lease_for,
            granted_elapsed,
            expires_at: Elapsed(from.near(granted_elapsed.0)?),
            ready_at: Elapsed(from.near(granted_elapsed.0)?),
            timeout_at: from.option(|from| Ok(Elapsed(from.near(granted_elapsed.0)?)))?,
            request: from.option(|from| from.name(RequestId::new))?,
            is_warned: from.flag()?,
        })
    }
}
