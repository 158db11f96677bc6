//! Changes and rows of external systems: raw keys, elements of lists, rows of qless.

mod qless;

use ganger_types::{ElementRecord, ExternalChange, KeyRecord};

use super::field::{choice, fields, record};

// The numbers are those of changes; see `commit`.
choice!(ExternalChange, "has a change of an external system that this program does not know" {
    34 PutKey(record)
    35 RemoveKey(number)
    36 PutElement(record)
    37 RemoveElement(list, place)
    38 PutQless(namespace, row)
    39 RemoveQless(namespace, key)
});

record!("raw key", version 1, KeyRecord { number, namespace, name, expires_at, value });

record!("element of a list", version 1, ElementRecord { list, place, value });

#[cfg(any(test, feature = "suite"))]
impl super::any::Any for ganger_types::ExternalJob {
    fn any() -> proptest::strategy::BoxedStrategy<Self> {
        use ganger_types::Bytes;
        use proptest::strategy::Strategy;

        use super::any::Any;

        let item = (<Bytes as Any>::any(), <Bytes as Any>::any());
        <Bytes as Any>::any()
            .prop_map(Self::Qless)
            .boxed()
            .prop_union(
                item.prop_map(|(queue, id)| Self::Item { queue, id })
                    .boxed(),
            )
            .boxed()
    }
}

/// The numbers a second time, because a changed number in the list above would break existing logs.
#[cfg(test)]
pub(super) fn number(change: &ExternalChange) -> u8 {
    match change {
        ExternalChange::PutKey(..) => 34,
        ExternalChange::RemoveKey(..) => 35,
        ExternalChange::PutElement(..) => 36,
        ExternalChange::RemoveElement(..) => 37,
        ExternalChange::PutQless(..) => 38,
        ExternalChange::RemoveQless(..) => 39,
    }
}
