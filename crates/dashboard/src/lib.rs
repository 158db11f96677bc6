//! The dashboard: pages under `/ui` made by the server itself, which work without JavaScript and follow changes with it.
//!
//! A dialect like the others: it sends commands and queries to the shards, and no rule of the queue lives here. A page is
//! read (`data`, the first half of each file in `pages`) and shown (the second half) by separate functions. It consists
//! of parts; the stream of a page (`live`) makes the parts again after events and sends those that changed. Actions are in
//! `actions`. Everything from outside goes through `text`, which escapes it; `svg` alone makes markup from text.

#![forbid(unsafe_code)]

mod actions;
mod ansi;
mod answer;
mod assets;
mod cron_words;
mod data;
mod fault;
mod filter;
mod format;
mod frame;
mod links;
mod live;
mod notice;
mod pace;
mod page;
mod pages;
mod paging;
mod params;
mod question;
mod rights;
mod session;
mod settings;
mod site;
mod svg;
mod text;
mod view;
mod widgets;
mod wire;

pub use answer::{Dashboard, Elsewhere, Forwarded, Place, Visitor};
pub use session::Session;
pub use settings::{Accepted, Gate, Options, Others, Payloads, Settings, Unaccepted};
