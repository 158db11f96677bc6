//! The steps that several commands share.

pub(crate) mod configuration;
pub(crate) mod ending;
pub(crate) mod expiry;
pub(crate) mod hand_out;
pub(crate) mod history;
pub(crate) mod links;
pub(crate) mod promotion;
pub(crate) mod retention;
pub(crate) mod spawning;
pub(crate) mod tags;
pub(crate) mod throttles;
