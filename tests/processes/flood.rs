//! During a flood of TLS hellos, members that were cut off or killed rejoin.

use pstrain_compute::rng::Stream;
use pstrain_tests::{Flood, FloodSpec, Proxy, tls_hello};

use crate::cluster::{ENDLESS, Server};
use crate::lab::Lab;
use crate::process::Process;

/// Maximum number of hellos, about half a minute of flood; the test's end also ends it.
const MOST: u64 = 45_000;

#[test]
fn cut_off_and_killed_members_rejoin_during_a_flood_of_hellos() {
    let lab = Lab::with_nodes();
    let [own, first, second, client] =
        ["server", "worker-1", "worker-2", "client"].map(|name| lab.at(name));
    let small = ["--data", "synthetic:4000", "--model", "mlp:64", "--lease", "20s"];
    let server =
        Server::tcp(&[&small, &ENDLESS, &["--tls", &own]]).for_clients(&["--tls", &client]);
    let address = server.address.parse().unwrap();
    let proxy = Proxy::new(&address, Stream::new(1).fork("flood", 0).rng());
    let there = proxy.address().to_string();
    let cut_off = Process::start(&["worker", "--server", &there, "--tls", &first]);
    let killed = server.worker(&["--tls", &second]);
    server.wait_for_updates(5);
    let mut asks = None;
    let hello = tls_hello(|address| {
        asks = Some(Process::start(&["status", address, "--tls", &client]));
    });
    let flood = Flood::start(&FloodSpec {
        server: server.address.trim_start_matches("tcp://").parse().unwrap(),
        hello: hello.unwrap(),
        addresses: 50,
        rate: 1500,
        most: MOST,
    });
    while flood.sent() < MOST / 15 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    proxy.cut();
    proxy.heal();
    cut_off.wait_to_say("is connected again");
    drop(killed);
    let again = server.worker(&["--tls", &second]);
    again.wait_to_say("worker 2 of 2");
    assert!(!flood.is_over(), "it was in only once the flood of {MOST} hellos was over");
    drop(flood);
    drop(asks);
    server.interrupt(vec![cut_off, again]);
}
