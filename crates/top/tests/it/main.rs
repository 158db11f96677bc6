//! Frames of fixed data at several sizes, and what keys change.

mod frames;
mod keys;
mod kit;
