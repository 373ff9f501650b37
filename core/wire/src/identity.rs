//! The identity that a peer has proved, and the roles that it permits. The transports implement the
//! proof.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;

/// The identity that a peer has proved.
///
/// Its text is the name in a certificate: `pstrain:server`, `pstrain:worker:3`, `pstrain:worker`,
/// `pstrain:client`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Identity {
    /// No specific identity: the peer is on this machine, holds the key that all nodes share, or
    /// authentication is off. It may take any role.
    #[default]
    Anyone,
    /// A server.
    Server,
    /// A worker: the named one, or any if none is named.
    Worker(Option<WorkerId>),
    /// A client, which requests the status or changes the mode.
    Client,
}

impl Identity {
    /// True if a worker or a client may accept the peer as a server.
    #[must_use]
    pub const fn may_serve(self) -> bool {
        matches!(self, Self::Anyone | Self::Server)
    }

    /// Checks that the peer may request the status of a job and change it.
    ///
    /// # Errors
    /// [`OtherIdentity`] if it may not.
    pub const fn may_control(self) -> Result<(), OtherIdentity> {
        match self {
            Self::Anyone | Self::Server | Self::Client => Ok(()),
            Self::Worker(_) => Err(OtherIdentity { is: self, wanted: Self::Client }),
        }
    }

    /// Returns the worker id for a worker that requests `wanted`.
    ///
    /// # Errors
    /// [`OtherIdentity`] if the peer may not be that worker.
    pub fn claim(self, wanted: Option<WorkerId>) -> Result<Option<WorkerId>, OtherIdentity> {
        match self {
            Self::Anyone | Self::Worker(None) => Ok(wanted),
            Self::Worker(own) if wanted.is_none() || wanted == own => Ok(own),
            _ => Err(OtherIdentity { is: self, wanted: Self::Worker(wanted) }),
        }
    }
}

/// Error of a peer that has proved another identity than the required one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherIdentity {
    /// The identity that the peer has proved.
    pub is: Identity,
    /// The required identity.
    pub wanted: Identity,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("pstrain:anyone"),
            Self::Server => f.write_str("pstrain:server"),
            Self::Worker(None) => f.write_str("pstrain:worker"),
            Self::Worker(Some(worker)) => write!(f, "pstrain:worker:{worker}"),
            Self::Client => f.write_str("pstrain:client"),
        }
    }
}

/// Error for a text that is not an identity that can be proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIdentity(String);

impl fmt::Display for UnknownIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is none of pstrain:server, pstrain:worker, pstrain:worker:NUMBER, pstrain:client",
            self.0
        )
    }
}

impl core::error::Error for UnknownIdentity {}

impl FromStr for Identity {
    type Err = UnknownIdentity;

    fn from_str(text: &str) -> Result<Self, UnknownIdentity> {
        Ok(match text {
            "pstrain:server" => Self::Server,
            "pstrain:worker" => Self::Worker(None),
            "pstrain:client" => Self::Client,
            _ => match text.strip_prefix("pstrain:worker:").map(str::parse) {
                Some(Ok(worker)) => Self::Worker(Some(worker)),
                _ => return Err(UnknownIdentity(text.into())),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn identities_are_read_as_they_are_written() {
        let third = Identity::Worker(Some(WorkerId(2)));
        assert_eq!(third.to_string(), "pstrain:worker:3");
        for identity in [Identity::Server, Identity::Worker(None), third, Identity::Client] {
            assert_eq!(identity.to_string().parse(), Ok(identity));
        }
        for text in ["pstrain:anyone", "pstrain:worker:0", "pstrain:worker:", "worker:1", ""] {
            assert!(text.parse::<Identity>().is_err(), "{text}");
        }
    }

    #[test]
    fn nobody_may_be_another_than_was_proved() {
        let [first, second] = [WorkerId(0), WorkerId(1)];
        let own = Identity::Worker(Some(first));
        assert_eq!(own.claim(None), Ok(Some(first)));
        assert_eq!(own.claim(Some(first)), Ok(Some(first)));
        let wanted = Identity::Worker(Some(second));
        assert_eq!(own.claim(Some(second)), Err(OtherIdentity { is: own, wanted }));
        for any in [Identity::Anyone, Identity::Worker(None)] {
            assert_eq!(any.claim(Some(second)), Ok(Some(second)));
            assert_eq!(any.claim(None), Ok(None));
        }
        for other in [Identity::Server, Identity::Client] {
            assert!(other.claim(None).is_err() && other.may_control().is_ok());
        }
        assert!(own.may_control().is_err() && Identity::Anyone.may_control().is_ok());
        assert!(!own.may_serve() && !Identity::Client.may_serve() && Identity::Server.may_serve());
    }
}
