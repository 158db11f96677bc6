//! Strategies for any value of a stored type, for property tests in this and other crates. They are made from the
//! same lists as encoder and decoder.

use std::fmt::Debug;
use std::time::Duration;

use ganger_types::name::{
    Graph, Group, IdempotencyKey, JobName, Kind, LabelKey, LabelValue, NameError, Namespace, Queue,
    RequestId, ScheduleId, Tag, UniqueKey, Worker,
};
use ganger_types::{
    Bytes, Day, Elapsed, Epoch, ExternalJob, IdTag, JobId, JobKey, JobState, JobStates, LeaseToken,
    OperationNumber, PageCursor, Position, Priority, ShardId, Timestamp,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::{num, option};

/// A stored type with a strategy for its values.
pub trait Any: Debug + Sized + 'static {
    /// A strategy for all values, which shrinks to small ones.
    fn any() -> BoxedStrategy<Self>;
}

/// Implements [`Any`] for a struct whose fields implement it; values that the check refuses are skipped.
macro_rules! any_struct {
    ($type:ident $fields:tt $(checked by $check:path)?) => {
        impl $crate::encoding::any::Any for $type {
            fn any() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::Strategy;
                $crate::encoding::any::any_struct!(@of $type $fields)
                    $(.prop_filter("what is read back", |value| $check(value).is_ok()))?
                    .boxed()
            }
        }
    };
    (@of $type:ident { $($field:ident),* }) => {
        $crate::encoding::any::any_struct!(@any $($field)*).prop_map(
            |$crate::encoding::any::any_struct!(@names $($field)*)| $type { $($field),* },
        )
    };
    (@any) => { proptest::strategy::Just(()) };
    (@any $first:ident $($rest:ident)*) => {
        (
            $crate::encoding::any::Any::any(),
            $crate::encoding::any::any_struct!(@any $($rest)*),
        )
    };
    (@names) => { () };
    (@names $first:ident $($rest:ident)*) => {
        ($first, $crate::encoding::any::any_struct!(@names $($rest)*))
    };
}

/// Implements [`Any`] for an enum whose fields implement it.
macro_rules! any_enum {
    ($type:ident { $($variant:ident $fields:tt)* }) => {
        impl $crate::encoding::any::Any for $type {
            fn any() -> proptest::strategy::BoxedStrategy<Self> {
                use proptest::strategy::Strategy;
                proptest::strategy::Union::new([
                    $($crate::encoding::any::any_enum!(@variant $type $variant $fields),)*
                ])
                .boxed()
            }
        }
    };
    (@variant $type:ident $variant:ident ($($field:ident $(as $form:ident)?),*)) => {
        $crate::encoding::any::any_struct!(@any $($field)*)
            .prop_map(|$crate::encoding::any::any_struct!(@names $($field)*)| {
                $type::$variant($($field),*)
            })
            .boxed()
    };
    (@variant $type:ident $variant:ident {
        $($field:ident $(as $form:ident)?),* $(; $implied:ident: $value:literal)?
    }) => {
        $crate::encoding::any::any_struct!(@any $($field)*)
            .prop_map(|$crate::encoding::any::any_struct!(@names $($field)*)| {
                $type::$variant { $($field,)* $($implied: $value)? }
            })
            .boxed()
    };
}

pub(super) use {any_enum, any_struct};

/// Implements [`Any`] by a strategy.
macro_rules! plain {
    ($($type:ty: $strategy:expr;)*) => {$(
        impl Any for $type {
            fn any() -> BoxedStrategy<Self> {
                $strategy.boxed()
            }
        }
    )*};
}

plain! {
    bool: any::<bool>();
    u8: any::<u8>();
    u16: any::<u16>();
    u32: any::<u32>();
    u64: any::<u64>();
    i64: any::<i64>();
    // All values except NaN, which does not equal itself.
    f64: num::f64::NORMAL | num::f64::SUBNORMAL | num::f64::POSITIVE | num::f64::NEGATIVE
        | num::f64::ZERO | num::f64::INFINITE;
    Duration: (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Self::new(s, n));
    Bytes: vec(any::<u8>(), 0..40).prop_map(Self::from);
    String: ".{0,12}";
    Day: any::<u32>().prop_map(Self);
    Elapsed: any::<u64>().prop_map(Self);
    Epoch: any::<u64>().prop_map(Self);
    IdTag: (0..1_u32 << 20).prop_map(Self);
    JobKey: prop_oneof![0..1_000_u64, any::<u64>()].prop_map(Self);
    OperationNumber: any::<u64>().prop_map(Self);
    Position: any::<u64>().prop_map(Self);
    JobStates: vec(select(JobState::ALL.to_vec()), 0..4).prop_map(|states| states.into_iter().collect());
    PageCursor: prop_oneof![
        JobKey::any().prop_map(Self::Job),
        ExternalJob::any().prop_map(Self::ExternalJob),
    ];
    Timestamp: any::<u64>().prop_map(Self);
    Priority: any::<i64>().prop_map(Self::from_millionths);
    LeaseToken: (any::<[u64; 2]>(), any::<[u8; 12]>()).prop_map(|([epoch, counter], secret)| Self {
        epoch: Epoch(epoch),
        counter,
        secret,
    });
    ShardId: "[A-Za-z0-9._-]{1,64}".prop_map(|text| Self::new(&text).expect("it has the right form"));
}

fn name<T: Debug>(make: fn(Vec<u8>) -> Result<T, NameError>) -> impl Strategy<Value = T> {
    vec(any::<u8>(), 0..20).prop_map(move |bytes| make(bytes).expect("short"))
}

/// Implements [`Any`] for names: any bytes.
macro_rules! names {
    ($($name:ident)*) => {
        plain! {$($name: name(Self::new);)*}
    };
}

names! {
    Graph Group IdempotencyKey JobId JobName Kind LabelKey LabelValue Namespace Queue RequestId ScheduleId Tag UniqueKey
    Worker
}

impl<T: Any> Any for Option<T> {
    fn any() -> BoxedStrategy<Self> {
        option::of(T::any()).boxed()
    }
}

impl<T: Any> Any for Vec<T> {
    fn any() -> BoxedStrategy<Self> {
        vec(T::any(), 0..4).boxed()
    }
}

impl<A: Any, B: Any> Any for (A, B) {
    fn any() -> BoxedStrategy<Self> {
        (A::any(), B::any()).boxed()
    }
}

impl<A: Any, B: Any, C: Any> Any for (A, B, C) {
    fn any() -> BoxedStrategy<Self> {
        (A::any(), B::any(), C::any()).boxed()
    }
}

impl<T: Any> Any for Box<T> {
    fn any() -> BoxedStrategy<Self> {
        T::any().prop_map(Self::new).boxed()
    }
}
