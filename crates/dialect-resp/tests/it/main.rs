//! The integration tests of this crate, in one program: each further one links everything again.

mod by_hand;
mod codec;
mod connection;
mod differential;
mod kit;
mod limits;
#[cfg(feature = "qless")]
mod qless;
mod relay;
#[cfg(not(feature = "qless"))]
mod without_qless;
