//! Workers that a compute process has started.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use tempfile::TempDir;

use crate::cluster::path;
use crate::process::Process;

#[test]
fn a_worker_without_a_server_ends_with_the_process_that_started_it() {
    // It would dial for twelve leases.
    let folder = TempDir::new().unwrap();
    let server = format!("unix:{}", path(&folder.path().join("none")));
    let args = ["worker", "--server", &server, "--process", "-", "--lease", "1m"];
    let socket = UnixStream::pair().map(|(ours, theirs)| (OwnedFd::from(ours), theirs.into()));
    let pipe = std::io::pipe().map(|(theirs, ours)| (ours.into(), theirs.into()));
    let pairs: [(OwnedFd, OwnedFd); 2] = [socket.unwrap(), pipe.unwrap()];
    for (ours, theirs) in pairs {
        let worker = Process::start_reading(&args, theirs);
        worker.wait_to_say("no connection");
        drop(ours);
        let said = worker.wait().with_code(1).stderr;
        let words = "the compute process (-), which started this worker, has ended while the \
                     worker had no server";
        assert!(said.contains(words), "{said}");
    }
}
