//! Which server has which keys, as workers learn it, and servers that a worker cannot reach.

use alloc::string::String;
use alloc::vec::Vec;

use pstrain_compute::id::ServerId;
use pstrain_compute::params::KeyMap;
use serde::{Deserialize, Serialize};

use crate::name::MOST_NAME_BYTES;

/// Which server has which keys, and where workers reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// The key ranges and their servers.
    pub map: KeyMap,
    /// Addresses of the servers in the order of the map, without the first: the coordinator.
    pub addresses: Vec<String>,
}

/// Worker to coordinator, in its Hello: the worker could not connect to this server, so it
/// disconnected from all servers and came back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreached {
    /// The server.
    pub server: ServerId,
    /// Why, in words that may be shown as they are
    /// ([`is_presentable`](crate::name::is_presentable)).
    pub why: String,
}

impl Unreached {
    /// Makes `why` presentable: truncates it and replaces control characters.
    #[must_use]
    pub fn new(server: ServerId, why: &str) -> Self {
        let fits = |(at, it): &(usize, char)| at + it.len_utf8() <= MOST_NAME_BYTES;
        let shown = why.char_indices().take_while(fits);
        let shown = shown.map(|(_, it)| if it.is_control() { ' ' } else { it });
        Self { server, why: shown.collect() }
    }
}
