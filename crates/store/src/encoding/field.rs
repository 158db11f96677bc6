//! Fields of records: the type of a field alone determines its encoding.
//!
//! [`record!`], [`fields!`] and [`choice!`] make the encoder, the decoder and, in tests, the strategy of a type from
//! one list, so that the three cannot differ. A later field names the version `since` which it exists, and its value
//! in older records. New fields go to the end of a list; the number of a variant keeps its meaning forever.

use std::time::Duration;

use ganger_types::name::{
    Graph, Group, IdempotencyKey, JobName, Kind, LabelKey, LabelValue, Namespace, Queue, RequestId,
    ScheduleId, Tag, UniqueKey, Worker,
};
use ganger_types::{
    Bytes, Day, Elapsed, Epoch, IdTag, JobId, JobKey, JobRef, LeaseToken, Position, Priority,
    ShardId, Timestamp,
};

use super::{Cursor, DecodeError, Record, Writer};

/// A type that can be a field of a record.
pub(super) trait Field: Sized {
    /// Appends the field to `out`.
    fn put(&self, out: &mut Writer<'_>);

    /// Reads the field in the layout of the record's version.
    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError>;
}

/// An encoding of a field other than that of its type; a list names it after `as`.
pub(super) trait Form<T> {
    /// Appends `field` to `out`.
    fn put(field: &T, out: &mut Writer<'_>);

    /// Reads a field in this encoding.
    fn take(from: &mut Cursor<'_>) -> Result<T, DecodeError>;
}

/// Random bits, for which a varint would be longer: eight bytes in little-endian order.
pub(super) struct Bits;

impl Form<u64> for Bits {
    fn put(field: &u64, out: &mut Writer<'_>) {
        out.raw(&field.to_le_bytes());
    }

    fn take(from: &mut Cursor<'_>) -> Result<u64, DecodeError> {
        let raw = from.raw(8)?.try_into().expect("eight bytes were taken");
        Ok(u64::from_le_bytes(raw))
    }
}

impl Form<Vec<u64>> for Bits {
    fn put(field: &Vec<u64>, out: &mut Writer<'_>) {
        out.length(field.len());
        for bits in field {
            Self::put(bits, out);
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Vec<u64>, DecodeError> {
        from.list(<Self as Form<u64>>::take)
    }
}

/// A point in time that is the origin of others in the record.
pub(super) struct Origin;

/// A point in time, stored as its difference from the origin, which is short.
pub(super) struct Near;

/// Implements the encodings of points in time.
macro_rules! times {
    ($($time:ident)*) => {$(
        impl Form<$time> for Origin {
            fn put(field: &$time, out: &mut Writer<'_>) {
                out.origin(field.0);
            }

            fn take(from: &mut Cursor<'_>) -> Result<$time, DecodeError> {
                from.origin().map($time)
            }
        }

        impl Form<$time> for Near {
            fn put(field: &$time, out: &mut Writer<'_>) {
                out.near(field.0);
            }

            fn take(from: &mut Cursor<'_>) -> Result<$time, DecodeError> {
                from.near().map($time)
            }
        }

        impl Form<Option<$time>> for Near {
            fn put(field: &Option<$time>, out: &mut Writer<'_>) {
                out.option(field.as_ref(), |out, field| Self::put(field, out));
            }

            fn take(from: &mut Cursor<'_>) -> Result<Option<$time>, DecodeError> {
                from.option(<Self as Form<$time>>::take)
            }
        }
    )*};
}

times! { Timestamp Elapsed }

/// The encoding of a record with its version before it.
pub(super) struct Versioned;

impl<R: Record> Form<R> for Versioned {
    fn put(field: &R, out: &mut Writer<'_>) {
        out.record(field);
    }

    fn take(from: &mut Cursor<'_>) -> Result<R, DecodeError> {
        from.record()
    }
}

/// Implements [`Field`] for a struct: its fields in the order of the list, and an optional check after decoding.
macro_rules! fields {
    ($type:ident {
        $($field:ident $(as $form:ident)? $(since $version:literal or $absent:expr)?),* $(,)?
    } $(checked by $check:path)?) => {
        impl $crate::encoding::field::Field for $type {
            fn put(&self, out: &mut $crate::encoding::Writer<'_>) {
                $(fields!(@put out, &self.$field $(, $form)?);)*
            }

            fn take(
                from: &mut $crate::encoding::Cursor<'_>,
            ) -> Result<Self, $crate::encoding::DecodeError> {
                let value = Self {
                    $($field: fields!(@take from $(, as $form)? $(, $version, $absent)?),)*
                };
                $($check(&value).map_err(|why| from.error(why))?;)?
                Ok(value)
            }
        }

        #[cfg(any(test, feature = "suite"))]
        $crate::encoding::any::any_struct!($type { $($field),* } $(checked by $check)?);
    };
    (@put $out:ident, $value:expr) => {
        $crate::encoding::field::Field::put($value, $out)
    };
    (@put $out:ident, $value:expr, $form:ident) => {
        <$form as $crate::encoding::field::Form<_>>::put($value, $out)
    };
    (@take $from:ident) => {
        $crate::encoding::field::Field::take($from)?
    };
    (@take $from:ident, as $form:ident) => {
        <$form as $crate::encoding::field::Form<_>>::take($from)?
    };
    (@take $from:ident, $version:literal, $absent:expr) => {
        if $from.version() < $version {
            $absent
        } else {
            $crate::encoding::field::Field::take($from)?
        }
    };
}

/// Implements [`Record`] for a struct: its name in errors, its version, and its fields.
macro_rules! record {
    ($what:literal, version $version:literal, $type:ident $fields:tt $(checked by $check:path)?) => {
        impl $crate::encoding::Record for $type {
            const VERSION: u8 = $version;
            const WHAT: &'static str = $what;

            fn write(&self, out: &mut $crate::encoding::Writer<'_>) {
                $crate::encoding::field::Field::put(self, out);
            }

            fn read(
                from: &mut $crate::encoding::Cursor<'_>,
            ) -> Result<Self, $crate::encoding::DecodeError> {
                $crate::encoding::field::Field::take(from)
            }
        }

        fields!($type $fields $(checked by $check)?);
    };
}

/// Implements [`Field`] for an enum: the error for an unknown number, then each variant with its number and fields.
/// Fields of a tuple variant get names for readability only. A field after `;` is not written, because the number
/// implies it. Numbers `inside` belong to the enum in the following variant, which writes and reads them itself.
macro_rules! choice {
    (
        $type:ident, $unknown:literal { $($number:tt $variant:ident $fields:tt)* }
        $(inside $inner_numbers:pat => $inner:ident)?
    ) => {
        impl $crate::encoding::field::Field for $type {
            fn put(&self, out: &mut $crate::encoding::Writer<'_>) {
                match self {$(
                    choice!(@shape $type $variant $fields) => {
                        out.byte($number);
                        choice!(@put out $fields);
                    }
                )*
                    $($type::$inner(inner) => $crate::encoding::field::Field::put(inner, out),)?
                }
            }

            fn take(
                from: &mut $crate::encoding::Cursor<'_>,
            ) -> Result<Self, $crate::encoding::DecodeError> {
                $(if let Some($inner_numbers) = from.peek() {
                    return Ok($type::$inner($crate::encoding::field::Field::take(from)?));
                })?
                Ok(match from.byte()? {
                    $($number => {
                        choice!(@take from $fields);
                        choice!(@shape $type $variant $fields)
                    })*
                    _ => return Err(from.error($unknown)),
                })
            }
        }

        #[cfg(any(test, feature = "suite"))]
        $crate::encoding::any::any_enum!($type { $($variant $fields)* $($inner(inner))? });
    };
    (@shape $type:ident $variant:ident ($($field:ident $(as $form:ident)?),*)) => {
        $type::$variant($($field),*)
    };
    (@shape $type:ident $variant:ident {
        $($field:ident $(as $form:ident)?),* $(; $implied:ident: $value:literal)?
    }) => {
        $type::$variant { $($field,)* $($implied: $value)? }
    };
    (@put $out:ident ($($field:ident $(as $form:ident)?),*)) => {
        $(fields!(@put $out, $field $(, $form)?);)*
    };
    (@put $out:ident {
        $($field:ident $(as $form:ident)?),* $(; $implied:ident: $value:literal)?
    }) => {
        $(fields!(@put $out, $field $(, $form)?);)*
    };
    (@take $from:ident ($($field:ident $(as $form:ident)?),*)) => {
        $(let $field = fields!(@take $from $(, as $form)?);)*
    };
    (@take $from:ident {
        $($field:ident $(as $form:ident)?),* $(; $implied:ident: $value:literal)?
    }) => {
        $(let $field = fields!(@take $from $(, as $form)?);)*
    };
}

pub(super) use {choice, fields, record};

/// Implements [`Field`] by an encoder and a decoder.
macro_rules! plain {
    ($($type:ty: |$value:ident, $out:ident| $write:expr, |$from:ident| $read:expr;)*) => {$(
        impl Field for $type {
            fn put(&self, $out: &mut Writer<'_>) {
                let $value = self;
                $write;
            }

            fn take($from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
                $read
            }
        }
    )*};
}

plain! {
    bool: |it, out| out.flag(*it), |from| from.flag();
    u8: |it, out| out.byte(*it), |from| from.byte();
    u16: |it, out| out.number(u64::from(*it)), |from| from.small();
    u32: |it, out| out.number(u64::from(*it)), |from| from.small();
    u64: |it, out| out.number(*it), |from| from.number();
    i64: |it, out| out.signed(*it), |from| from.signed();
    f64: |it, out| out.float(*it), |from| from.float();
    Duration: |it, out| out.duration(*it), |from| from.duration();
    Bytes: |it, out| out.bytes(it), |from| from.bytes().map(Self::copy_from_slice);
    String: |it, out| out.bytes(it.as_bytes()), |from| from.text().map(Self::from);
    Day: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    Elapsed: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    Epoch: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    IdTag: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    JobKey: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    Position: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    Timestamp: |it, out| it.0.put(out), |from| Field::take(from).map(Self);
    Priority: |it, out| out.signed(it.millionths()), |from| from.signed().map(Self::from_millionths);
    LeaseToken: |it, out| out.raw(&it.to_bytes()), |from| {
        let raw = from.raw(28)?;
        Ok(Self::from_bytes(raw).expect("a token has 28 bytes"))
    };
    ShardId: |it, out| out.bytes(it.as_str().as_bytes()), |from| {
        let text = from.text()?;
        Self::new(text).ok_or_else(|| from.error("names a shard as none can be named"))
    };
}

/// Implements [`Field`] for names, which are stored as their bytes.
macro_rules! names {
    ($($name:ident)*) => {
        plain! {$(
            $name: |it, out| out.bytes(it.as_bytes()), |from| from.name(Self::new);
        )*}
    };
}

names! {
    Graph Group IdempotencyKey JobId JobName Kind LabelKey LabelValue Namespace Queue RequestId ScheduleId Tag UniqueKey
    Worker
}

fields!(JobRef { shard, id });

impl<F: Field> Field for Option<F> {
    fn put(&self, out: &mut Writer<'_>) {
        out.option(self.as_ref(), |out, field| field.put(out));
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        from.option(F::take)
    }
}

impl<F: Field> Field for Vec<F> {
    fn put(&self, out: &mut Writer<'_>) {
        out.length(self.len());
        for field in self {
            field.put(out);
        }
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        from.list(F::take)
    }
}

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Writer<'_>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<A: Field, B: Field, C: Field> Field for (A, B, C) {
    fn put(&self, out: &mut Writer<'_>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        Ok((A::take(from)?, B::take(from)?, C::take(from)?))
    }
}

/// A boxed record has its version before it.
impl<R: Record> Field for Box<R> {
    fn put(&self, out: &mut Writer<'_>) {
        out.record(&**self);
    }

    fn take(from: &mut Cursor<'_>) -> Result<Self, DecodeError> {
        from.record().map(Self::new)
    }
}
