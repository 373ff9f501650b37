//! Jobs whose gradients come from compute processes.

use pstrain_data::DataSpec;
use pstrain_data::formats::Numbered;
use pstrain_wire::Status;

/// True if the workers of the job have compute processes.
pub(super) fn has_processes(status: &Status) -> bool {
    let spec: Option<DataSpec> = serde_json::from_str(&status.recipe).ok();
    spec.is_some_and(|spec| spec.schema.kind == Numbered::KIND)
}
