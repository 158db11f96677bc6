//! The dashboard: pages under `/ui` made by the server itself, which work without JavaScript and follow changes with it.

#![forbid(unsafe_code)]
