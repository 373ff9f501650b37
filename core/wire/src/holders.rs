//! Which server holds which keys, as workers are told, and servers that they cannot reach.

use alloc::string::String;
use alloc::vec::Vec;

use pstrain_compute::id::ServerId;
use pstrain_compute::params::KeyMap;
use serde::{Deserialize, Serialize};

use crate::name::MOST_NAME_BYTES;

/// Which server has which keys, and where workers reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// Who has which keys.
    pub map: KeyMap,
    /// Where they are, in the order of the map, without the coordinator, which is its first.
    pub addresses: Vec<String>,
}

/// A worker to the coordinator, in its hello: with this server it could not be, so it went away
/// from all of them and came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    /// Which.
    pub server: ServerId,
    /// Why, in words that may be shown as they are
    /// ([`is_presentable`](crate::name::is_presentable)).
    pub why: String,
}

impl Unreached {
    /// The same with `why` made fit to be shown.
    #[must_use]
    pub fn new(server: ServerId, why: &str) -> Self {
        let fits = |(at, it): &(usize, char)| at + it.len_utf8() <= MOST_NAME_BYTES;
        let shown = why.char_indices().take_while(fits);
        let shown = shown.map(|(_, it)| if it.is_control() { ' ' } else { it });
        Self { server, why: shown.collect() }
    }
}
