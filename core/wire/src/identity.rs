//! Who a peer has proved to be, and who it may therefore be in a job. How that is proved, the
//! transports know.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use pstrain_compute::id::WorkerId;

/// Who a peer has proved to be.
///
/// Its text is the name that a certificate carries: `pstrain:server`, `pstrain:worker:3`,
/// `pstrain:worker`, `pstrain:client`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Identity {
    /// Nobody in particular: it is on this machine, holds the key that all share, or nothing was
    /// asked. It may be whoever it says it is.
    #[default]
    Anyone,
    /// A server.
    Server,
    /// A worker: this one, or any if none is named.
    Worker(Option<WorkerId>),
    /// A client, which asks for the status or changes the mode.
    Client,
}

impl Identity {
    /// Whether a worker or a client may take it for a server.
    #[must_use]
    pub const fn may_serve(self) -> bool {
        matches!(self, Self::Anyone | Self::Server)
    }

    /// Whether it may ask how a job is doing, and change it.
    ///
    /// # Errors
    /// [`OtherIdentity`] if it may not.
    pub const fn may_control(self) -> Result<(), OtherIdentity> {
        match self {
            Self::Anyone | Self::Server | Self::Client => Ok(()),
            Self::Worker(_) => Err(OtherIdentity { is: self, wanted: Self::Client }),
        }
    }

    /// The worker id to be given to a worker that wants to be `wanted`.
    ///
    /// # Errors
    /// [`OtherIdentity`] if it may not be that one.
    pub fn claim(self, wanted: Option<WorkerId>) -> Result<Option<WorkerId>, OtherIdentity> {
        match self {
            Self::Anyone | Self::Worker(None) => Ok(wanted),
            Self::Worker(own) if wanted.is_none() || wanted == own => Ok(own),
            _ => Err(OtherIdentity { is: self, wanted: Self::Worker(wanted) }),
        }
    }
}

/// A peer has proved another identity than the one that is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherIdentity {
    /// The identity that it has proved.
    pub is: Identity,
    /// The identity that is wanted.
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

/// A text that is no identity that can be proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoIdentity(String);

impl fmt::Display for NoIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is none of pstrain:server, pstrain:worker, pstrain:worker:NUMBER, pstrain:client",
            self.0
        )
    }
}

impl core::error::Error for NoIdentity {}

impl FromStr for Identity {
    type Err = NoIdentity;

    fn from_str(text: &str) -> Result<Self, NoIdentity> {
        Ok(match text {
            "pstrain:server" => Self::Server,
            "pstrain:worker" => Self::Worker(None),
            "pstrain:client" => Self::Client,
            _ => match text.strip_prefix("pstrain:worker:").map(str::parse) {
                Some(Ok(worker)) => Self::Worker(Some(worker)),
                _ => return Err(NoIdentity(text.into())),
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
