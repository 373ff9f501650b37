//! What is wrong, in plain words, and what to do about it.

use pstrain_compute::id::WorkerId;
use pstrain_wire::Status;
use serde::Serialize;

use super::{Way, gone, slow, stops};

/// One cause, with its cure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Its stable name.
    pub(crate) cause: Cause,
    /// The worker that it is about, if it is about one.
    pub(crate) worker: Option<WorkerId>,
    pub(crate) says: String,
    pub(crate) cure: String,
}

impl Finding {
    pub(super) fn new(
        cause: Cause,
        worker: Option<WorkerId>,
        says: String,
        cure: impl Into<String>,
    ) -> Self {
        Self { cause, worker, says, cure: cure.into() }
    }
}

/// What can be the matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Cause {
    Missing,
    Lost,
    Refused,
    Unreached,
    Silent,
    CutOff,
    Overdue,
    Link,
    Machine,
    Ending,
    NetworkBound,
    ComputeBound,
    TooEarly,
}

/// The findings of a status: the most urgent first, and at least one. `way` is how the server was
/// asked.
///
/// First comes what all wait for, then workers that are gone, silent or late, then refusals, then
/// workers that are far slower than the others. Only if there is none of these, it says where the
/// time goes.
pub(crate) fn verdict(status: &Status, way: &Way) -> Vec<Finding> {
    let mut findings = stops::findings(status, way);
    findings.extend(gone::findings(status, way));
    findings.extend(stops::refused(status));
    if !stops::stand_still(status) {
        findings.extend(slow::findings(status));
    }
    if findings.is_empty() {
        findings.push(slow::bound(status));
    }
    findings
}
