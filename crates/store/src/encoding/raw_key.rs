//! Raw keys and elements of lists.

use ganger_types::{Bytes, Elapsed, ElementRecord, KeyRecord, Namespace};

use super::{Cursor, DecodeError, Record, Writer};

impl Record for KeyRecord {
    const WHAT: &'static str = "raw key";

    fn write(&self, out: &mut Writer<'_>) {
        out.number(self.number);
        out.bytes(self.namespace.as_bytes());
        out.bytes(&self.name);
        out.option(self.expires_at, |out, at| out.number(at.0));
        out.option(self.value.as_ref(), |out, value| out.bytes(value));
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            number: from.number()?,
            namespace: from.name(Namespace::new)?,
            name: Bytes::copy_from_slice(from.bytes()?),
            expires_at: from.option(Cursor::number)?.map(Elapsed),
            value: from.option(|from| from.bytes().map(Bytes::copy_from_slice))?,
        })
    }
}

impl Record for ElementRecord {
    const WHAT: &'static str = "element of a list";

    fn write(&self, out: &mut Writer<'_>) {
        out.number(self.list);
        out.signed(self.place);
        out.bytes(&self.value);
    }

    fn read(_version: u8, from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            list: from.number()?,
            place: from.signed()?,
            value: Bytes::copy_from_slice(from.bytes()?),
        })
    }
}
