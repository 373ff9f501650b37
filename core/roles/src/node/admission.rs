//! Checks between a worker that wants to join and the server or meeting point.

use alloc::string::String;
use alloc::vec::Vec;

use super::NodeError;
use pstrain_compute::id::WorkerId;
use pstrain_policy::job::{DataFrom, Job};
use pstrain_wire::name::{MOST_NAME_BYTES, is_presentable};
use pstrain_wire::worker::{Hello, Ready, Welcome};
use pstrain_wire::{BUILD, PROTOCOL_VERSION, Refusal, job_digest};

/// Checks that a worker speaks this protocol, is of this release, and can be shown to people.
pub(super) fn check_hello(hello: &Hello, job: &Job) -> Result<(), Refusal> {
    if !(hello.protocol_min..=hello.protocol_max).contains(&PROTOCOL_VERSION) {
        let theirs = (hello.protocol_min, hello.protocol_max);
        return Err(Refusal::Protocol { theirs, ours: PROTOCOL_VERSION });
    }
    if hello.build != BUILD {
        let server = String::from(BUILD);
        return Err(Refusal::Build { worker: hello.build.clone(), server });
    }
    if !is_presentable(&hello.name) {
        let what = alloc::format!(
            "the worker's name is over {MOST_NAME_BYTES} bytes or has control characters"
        );
        return Err(Refusal::Unexpected { what });
    }
    let unreached = hello.unreached.as_ref();
    if unreached.is_some_and(|unreached| !is_presentable(&unreached.why)) {
        let what = alloc::format!(
            "what the worker says of another server is over {MOST_NAME_BYTES} bytes or has \
             control characters"
        );
        return Err(Refusal::Unexpected { what });
    }
    if hello.wants_examples && job.data.from == DataFrom::Own {
        return Err(Refusal::NoRows);
    }
    Ok(())
}

/// Checks the job that a server or a meeting point has sent.
pub(super) fn check_job(welcome: &Welcome) -> Result<(), NodeError> {
    if job_digest(&welcome.job) != welcome.digest {
        let what = "its job means something else here; use the same release";
        return Err(NodeError::Protocol(what.into()));
    }
    let impossible = |error| NodeError::Protocol(alloc::format!("its job makes no sense: {error}"));
    welcome.job.validate().map_err(impossible)
}

/// Checks that a worker has the parts of the job's data that are its own, as far as one can say
/// without other workers. Returns the sizes of its parts.
///
/// # Errors
/// The difference, in words.
pub(super) fn check_parts(job: &Job, worker: WorkerId, ready: &Ready) -> Result<Vec<u64>, String> {
    let parts = job.parts_of(worker);
    let rows: Vec<u64> = parts.iter().filter_map(|part| ready.rows.get(part).copied()).collect();
    let all = rows.iter().fold(0_u64, |all, &rows| all.saturating_add(rows));
    if rows.len() != parts.len() || rows.len() != ready.rows.len() {
        return Err(String::from("they are of other partitions than this worker's"));
    }
    if rows.contains(&0) {
        return Err(String::from("no rows in this worker's partition"));
    }
    if !job.data.is_local() && all > job.data.train.rows {
        return Err(alloc::format!(
            "{all} rows in this worker's partition where the job has {} in all",
            job.data.train.rows
        ));
    }
    Ok(rows)
}

/// Checks the fingerprint of the data that a worker has read itself.
///
/// # Errors
/// The difference, in words.
pub(super) fn check_fingerprint(job: &Job, ready: &Ready, has_own: bool) -> Result<(), String> {
    match &ready.train {
        _ if job.data.is_local() => Ok(()),
        Some(theirs) => theirs.difference(&job.data.train).map_or(Ok(()), Err),
        None if has_own => Err(String::from("they came without a fingerprint")),
        None => Ok(()),
    }
}
