//! `ganger top`: what a server does and what needs attention, live in a terminal.
//!
//! What is on the screen is a pure function of a [`State`] ([`draw::draw`]). Keys change the state (`keys`), one task
//! asks the server for what the screen needs (`feed`), and `run` connects them with the terminal.

#![forbid(unsafe_code)]

mod action;
pub mod data;
pub mod draw;
mod feed;
pub mod keys;
mod once;
mod run;
mod screen;
pub mod state;
mod terminal;
mod text;
pub mod theme;

pub use feed::Source;
pub use once::{Size, document, frame};
pub use run::{End, Failed, Settings, run};
pub use screen::Screen;
pub use state::State;
pub use theme::Theme;
