//! A run in one process: its server and, of several servers, the others, new or from a state
//! folder. The others keep their state in folders inside the folder of the first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use pstrain_compute::id::ServerId;
use pstrain_transports::{Address, SocketTransport, WallClock};
use pstrain_wire::group::Place;
use pstrain_wire::worker::EndReason;

use super::fresh_run;
use super::host::{Follower, JobServer, ShardServer, Training, shard_config};
use super::plan::{Begins, Keeps, NewState, Says};
use super::serve::{Ended, Lives};
use crate::args::Form;
use crate::durable::{DurableFolder, Resumed};
use crate::job::Layers;
use crate::signals::Drain;

/// The state with which a run in one process begins.
pub(crate) enum InProcess {
    New(Keeps),
    Resumed(Box<DurableFolder>),
}

impl InProcess {
    /// Opens the state folder of a run that is resumed. Returns the job, too.
    pub(crate) fn open(begins: Begins<(Layers, Keeps)>) -> anyhow::Result<(Layers, Self)> {
        match begins {
            Begins::New((layers, keeps)) => Ok((layers, Self::New(keeps))),
            Begins::Resumed(resumed) => {
                let (folder, layers) = DurableFolder::open(&resumed)?;
                if folder.identity().standby.is_some() {
                    bail!(
                        "{} is of a standby: continue with `pstrain server --resume`",
                        resumed.folder.display()
                    );
                }
                layers.real_time()?;
                Ok((layers, Self::Resumed(Box::new(folder))))
            }
        }
    }

    /// True if a state is kept.
    pub(crate) const fn is_durable(&self) -> bool {
        match self {
            Self::New(keeps) => keeps.parts().is_some(),
            Self::Resumed(_) => true,
        }
    }

    /// How another server of the run begins.
    pub(crate) fn of_shard(&self, server: ServerId) -> Begins<Keeps> {
        let inside = |folder: &Path| -> PathBuf { folder.join(format!("server-{server}")) };
        let new = |state: &NewState| {
            let checkpoint_every = state.checkpoint_every;
            NewState { folder: inside(&state.folder), checkpoint_every }
        };
        match self {
            Self::New(Keeps::Nothing) => Begins::New(Keeps::Nothing),
            Self::New(Keeps::Checkpoints(state)) => Begins::New(Keeps::Checkpoints(new(state))),
            Self::New(Keeps::Log(state)) => Begins::New(Keeps::Log(new(state))),
            Self::Resumed(folder) => {
                Begins::Resumed(Resumed::as_it_was(inside(folder.state().path())))
            }
        }
    }
}

impl Training {
    /// The server of a run in one process.
    pub(crate) fn in_one_process(self, begins: InProcess) -> anyhow::Result<JobServer> {
        match begins {
            InProcess::Resumed(folder) => self.kept(*folder),
            InProcess::New(keeps) => match keeps.parts() {
                Some(kept) => self.keeping(fresh_run(), kept, None),
                None => self.alone(),
            },
        }
    }
}

impl JobServer {
    /// Serves a run in one process over sockets to its end. Returns the last server, which may be
    /// one of a checkpoint.
    pub(crate) fn serve_sockets(
        self,
        transport: SocketTransport,
        clock: WallClock,
    ) -> anyhow::Result<(Self, EndReason)> {
        let (server, ended, _transport) = self.live(transport, clock)?;
        Ok((server, ended.context("the server ended")?))
    }
}

/// A server that does not coordinate, in the process of the run, with a state of its own.
pub(crate) struct KeptShard(ShardServer);

impl KeptShard {
    /// Opens the server at `place`, which workers reach at `address`.
    pub(crate) fn open(
        (place, begins): (Place, &Begins<Keeps>),
        (address, coordinator): (&Address, &Address),
        lease: Duration,
        drain: Drain,
    ) -> anyhow::Result<Self> {
        let config = shard_config(place, address, lease);
        let says = Says { form: Form::default(), quiet: true };
        let follower = Follower { config, coordinator: coordinator.clone(), says, drain };
        Ok(Self(follower.begin(place, begins)?))
    }

    /// Serves to the end of the run.
    pub(crate) fn serve(
        self,
        transport: SocketTransport,
        clock: WallClock,
    ) -> anyhow::Result<Ended> {
        let (_, ended, _) = self.0.live(transport, clock)?;
        Ok(ended)
    }
}
