//! Jobs whose gradients come from compute processes.

use std::time::Duration;

use pstrain_data::DataSpec;
use pstrain_data::formats::Numbered;
use pstrain_wire::{MemberStatus, Status};

use super::{Usual, pace};

/// How long the first gradient of a compute process may take. No other tells its usual time.
const FIRST: Duration = Duration::from_secs(10);

/// True if no worker has made a step, and the compute process of this one does not answer.
pub(super) fn is_first_awaited(status: &Status, member: &MemberStatus) -> bool {
    has_processes(status) && member.since > FIRST && pace::median(status, Usual::own).is_none()
}

/// True if the workers of the job have compute processes.
pub(super) fn has_processes(status: &Status) -> bool {
    let spec: Option<DataSpec> = serde_json::from_str(&status.recipe).ok();
    spec.is_some_and(|spec| spec.schema.kind == Numbered::KIND)
}
