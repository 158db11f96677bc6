//! What needs attention: between messages and the documents of HTTP and the SDK.

use std::time::{Duration, SystemTime};

use ganger_document::view::alert::Alert;
use ganger_document::view::attention::{Gravity, Item};

use crate::v1;

impl From<&Item> for v1::AttentionItem {
    fn from(item: &Item) -> Self {
        Self {
            code: item.code.clone(),
            is_error: item.gravity == Gravity::Error,
            text: item.text.clone(),
            shard: item.shard.clone().unwrap_or_default(),
            queue: item.queue.clone().unwrap_or_default(),
            schedule: item.schedule.clone().unwrap_or_default(),
            alert: item.alert.clone().unwrap_or_default(),
            since_us: item.since.map(us).unwrap_or_default(),
            count: item.count,
        }
    }
}

impl From<v1::AttentionItem> for Item {
    fn from(wire: v1::AttentionItem) -> Self {
        let named = |name: String| (!name.is_empty()).then_some(name);
        Self {
            code: wire.code,
            gravity: gravity(wire.is_error),
            text: wire.text,
            shard: named(wire.shard),
            queue: named(wire.queue),
            schedule: named(wire.schedule),
            alert: named(wire.alert),
            since: time(wire.since_us),
            count: wire.count,
        }
    }
}

impl From<&Alert> for v1::AlertView {
    fn from(alert: &Alert) -> Self {
        Self {
            name: alert.name.clone(),
            condition: alert.condition.clone(),
            is_error: alert.gravity == Gravity::Error,
            since_us: alert.since.map(us).unwrap_or_default(),
            text: alert.text.clone(),
            webhook: alert.webhook,
            delivered: alert.delivered,
            failed: alert.failed,
            last_error: alert.last_error.clone().unwrap_or_default(),
        }
    }
}

impl From<v1::AlertView> for Alert {
    fn from(wire: v1::AlertView) -> Self {
        Self {
            name: wire.name,
            condition: wire.condition,
            gravity: gravity(wire.is_error),
            firing: wire.since_us > 0,
            since: time(wire.since_us),
            text: wire.text,
            webhook: wire.webhook,
            delivered: wire.delivered,
            failed: wire.failed,
            last_error: (!wire.last_error.is_empty()).then_some(wire.last_error),
        }
    }
}

fn gravity(is_error: bool) -> Gravity {
    if is_error {
        Gravity::Error
    } else {
        Gravity::Warning
    }
}

/// A time in microseconds since 1970.
fn us(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}

/// The time of so many microseconds since 1970; `None` for 0.
fn time(us: u64) -> Option<SystemTime> {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(us));
    time.filter(|_| us > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_alerts_come_back_as_they_were() {
        let item = Item {
            code: "no_worker".to_owned(),
            gravity: Gravity::Error,
            text: "Queue mail: 1 ready".to_owned(),
            shard: Some("1".to_owned()),
            queue: Some("mail".to_owned()),
            schedule: None,
            alert: None,
            since: time(1_790_000_000_000_001),
            count: Some(0),
        };
        let bare = Item {
            gravity: Gravity::Warning,
            shard: None,
            queue: None,
            schedule: Some("nightly".to_owned()),
            alert: Some("late".to_owned()),
            since: None,
            count: None,
            ..item.clone()
        };
        for item in [item, bare] {
            assert_eq!(Item::from(v1::AttentionItem::from(&item)), item);
        }
        let alert = Alert {
            name: "late".to_owned(),
            condition: "a queue is late".to_owned(),
            gravity: Gravity::Error,
            firing: true,
            since: time(7),
            text: "queue mail".to_owned(),
            webhook: true,
            delivered: 1,
            failed: 2,
            last_error: Some("no connection".to_owned()),
        };
        let quiet = Alert {
            firing: false,
            since: None,
            last_error: None,
            ..alert.clone()
        };
        for alert in [alert, quiet] {
            assert_eq!(Alert::from(v1::AlertView::from(&alert)), alert);
        }
    }
}
