//! Findings about a run: causes of trouble and their cures, in plain words.

use pstrain_compute::id::WorkerId;
use pstrain_wire::{MemberStatus, Status};
use serde::Serialize;

use super::{ConnectionFlags, absent, run_waits, slow};

/// A cause with its cure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// The cause, under a name that stays stable for programs.
    pub(crate) cause: Cause,
    /// The worker concerned, if it is a single one.
    pub(crate) worker: Option<WorkerId>,
    /// Its name, if it has one.
    pub(crate) name: Option<String>,
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
        Self { cause, worker, name: None, says, cure: cure.into() }
    }
}

/// The causes that a finding can have.
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
    Processor,
    Ending,
    NetworkBound,
    ComputeBound,
    TooEarly,
}

/// Returns the findings of a status, the most urgent first, and at least one. `way` is the
/// connection over which the status was requested.
///
/// The order is: waits of the whole run, workers that are gone, silent or late, refusals, workers
/// that are far slower than the others. If there are none of these, the first finding is where the
/// time goes. Workers whose messages take another route come last.
pub(crate) fn verdict(status: &Status, way: &ConnectionFlags) -> Vec<Finding> {
    let mut findings = run_waits::findings(status, way);
    findings.extend(absent::findings(status, way));
    findings.extend(run_waits::refused(status, &findings));
    if !run_waits::is_stalled(status) {
        findings.extend(slow::findings(status));
    }
    if findings.is_empty() {
        findings.push(slow::bound(status));
    }
    findings.extend(run_waits::detours(status));
    for finding in &mut findings {
        let of = |member: &&MemberStatus| Some(member.worker) == finding.worker;
        let name = status.members.iter().find(of).map(|member| member.name.clone());
        finding.name = name.filter(|name| !name.is_empty());
    }
    findings
}
