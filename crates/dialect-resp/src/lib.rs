//! The Redis face of a ganger server.

#![forbid(unsafe_code)]
