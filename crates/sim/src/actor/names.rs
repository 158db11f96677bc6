//! The small universe: a few names for everything, so that things collide.

use ganger_types::{
    ClaimKey, Group, Kind, LabelKey, LabelValue, Namespace, Queue, ScheduleId, Tag, UniqueKey,
    Worker,
};

use crate::dice::Dice;
use crate::plan::{Feature, Plan};

const SHORT: &str = "a name of the simulator is short";

pub(crate) fn namespace(plan: &Plan, dice: &mut Dice) -> Namespace {
    if plan.does(Feature::Namespaces) && dice.chance(250) {
        Namespace::from_static("other")
    } else {
        Namespace::default()
    }
}

pub(crate) fn namespaces(plan: &Plan) -> Vec<Namespace> {
    let mut all = vec![Namespace::default()];
    if plan.does(Feature::Namespaces) {
        all.push(Namespace::from_static("other"));
    }
    all
}

pub(crate) fn queue_number(number: usize) -> Queue {
    Queue::new(format!("q{number}")).expect(SHORT)
}

pub(crate) fn queue(plan: &Plan, dice: &mut Dice) -> Queue {
    queue_number(dice.index(plan.queues))
}

pub(crate) fn worker(number: usize, incarnation: u64) -> Worker {
    Worker::new(format!("w{number}.{incarnation}")).expect(SHORT)
}

pub(crate) fn kind(dice: &mut Dice) -> Kind {
    Kind::from_static(dice.word(&["fetch", "count", "merge"]))
}

pub(crate) fn group(dice: &mut Dice) -> Group {
    Group::from_static(dice.word(&["network", "bad-input"]))
}

pub(crate) fn tag(dice: &mut Dice) -> Tag {
    Tag::from_static(dice.word(&["red", "green", "blue"]))
}

pub(crate) fn label(dice: &mut Dice) -> (LabelKey, LabelValue) {
    let value = LabelValue::from_static(dice.word(&["one", "two"]));
    (LabelKey::from_static("tenant"), value)
}

pub(crate) fn claim(plan: &Plan, dice: &mut Dice) -> ClaimKey {
    ClaimKey::new(format!("claim{}", dice.index(plan.keys * 4))).expect(SHORT)
}

pub(crate) fn unique(plan: &Plan, dice: &mut Dice) -> UniqueKey {
    UniqueKey::new(format!("unique{}", dice.index(plan.keys))).expect(SHORT)
}

pub(crate) fn schedule(plan: &Plan, dice: &mut Dice) -> ScheduleId {
    ScheduleId::new(format!("every{}", dice.index(plan.keys))).expect(SHORT)
}
