//! Paths that corrupt bytes between workers, servers and coordinator in plain text: connections are
//! re-established, and the parameters are unchanged.

use std::ops::Range;

use pstrain_compute::rng::Stream;
use pstrain_tests::{Disturbance, Proxy};

use crate::cluster::{PACED, Server, check_undisturbed, free_address};
use crate::process::Process;

const JOB: [&str; 4] = ["--epochs", "4", "--lease", "10s"];

/// A path to `address` that flips a byte in each of the next connections, after that many bytes.
fn path_to(address: &str, name: &str, connections: u64, after: Range<u64>) -> Proxy {
    let proxy = Proxy::new(&address.parse().unwrap(), Stream::new(5).fork(name, 0).rng());
    proxy.disturb(connections, Disturbance::Flip, after);
    proxy
}

#[test]
fn a_corrupted_byte_on_any_link_of_a_group_does_not_change_the_parameters() {
    let server = Server::tcp(&[&PACED, &JOB, &["--servers", "2"]]);
    // The address on which the second server will listen.
    let free = free_address();
    // If a worker loses one connection, it re-establishes all. So the first connections to the
    // second server are damaged, and later ones to the first.
    let to_first = path_to(&server.address, "worker and first", 6, 500_000..900_000);
    let to_second = path_to(&free, "worker and second", 2, 20_000..60_000);
    // Servers exchange no parameters on this path, so the damage comes after fewer bytes.
    let between = path_to(&server.address, "second and first", 2, 4000..8000);
    let [coordinator, advertised, first] =
        [&between, &to_second, &to_first].map(|proxy| proxy.address().to_string());
    let shard = ["server", "--shard", "2/2", "--coordinator", &coordinator, "--listen", &free];
    let other = Process::start(&[&shard[..], &["--advertise", &advertised]].concat());
    other.wait_to_say("listening on ");
    let worker = |id| Process::start(&["worker", "--server", &first, "--id", id]);
    let workers = vec![worker("1"), worker("2")];
    check_undisturbed(&server.finish(workers), &[&PACED, &JOB]);
    other.wait().with_code(0);
    for (name, proxy) in [("first", to_first), ("second", to_second), ("between", between)] {
        assert!(proxy.times_disturbed() > 0, "{name}: nothing was damaged");
    }
}
