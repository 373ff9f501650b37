//! Network cuts longer than a lease that heal without any connection being closed: processes run in
//! network namespaces, which only root can create.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::cluster::{Left, PACED, Server, check_undisturbed, number};
use crate::process::Process;

const JOB: [&str; 8] =
    ["--epochs", "5", "--workers", "2", "--lease", "600ms", "--on-worker-loss", "wait"];
/// The namespaces hold only our own processes, so plain text is safe.
const PLAIN: &str = "--insecure";

/// Network namespaces on one switch.
struct Net {
    /// Names of the namespaces; the first holds the switch.
    names: Vec<String>,
}

/// Runs `ip`; returns true on success.
fn ip(args: &str) -> bool {
    let mut command = Command::new("ip");
    command.args(args.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Net {
    /// Creates `places` namespaces.
    fn new(test: &str, places: usize) -> Self {
        let name = |place: usize| format!("pstrain-{}-{test}-{place}", std::process::id());
        let net = Self { names: (0..=places).map(name).collect() };
        assert!(net.make().is_some(), "network namespaces need root and `ip`");
        net
    }

    fn make(&self) -> Option<()> {
        let (hub, places) = self.names.split_first()?;
        let done = |done: bool| done.then_some(());
        done(ip(&format!("netns add {hub}")))?;
        done(ip(&format!("-n {hub} link add switch type bridge")))?;
        done(ip(&format!("-n {hub} link set switch up")))?;
        for (place, name) in (1..).zip(places) {
            let address = Self::address(place);
            done(ip(&format!("netns add {name}")))?;
            done(ip(&format!("-n {hub} link add p{place} type veth peer name eth0 netns {name}")))?;
            done(ip(&format!("-n {hub} link set p{place} master switch up")))?;
            done(ip(&format!("-n {name} addr add {address}/24 dev eth0")))?;
            done(ip(&format!("-n {name} link set eth0 up")))?;
            done(ip(&format!("-n {name} link set lo up")))?;
        }
        Some(())
    }

    /// Returns the address of a namespace, counted from 1.
    fn address(place: usize) -> String {
        format!("10.77.0.{place}")
    }

    /// Runs `pstrain` in a namespace.
    fn start(&self, place: usize, args: &[&str]) -> Process {
        let name = self.names[place].as_str();
        Process::start_under(&["ip", "netns", "exec", name], args)
    }

    /// Drops all packets between two namespaces without an error on either side: a static neighbour
    /// entry sends the frames to a MAC address that no machine has.
    fn cut(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let (name, to) = (&self.names[from], Self::address(to));
            let nobody = "lladdr 02:00:00:00:00:99 dev eth0 nud permanent";
            assert!(ip(&format!("-n {name} neigh replace {to} {nobody}")));
        }
    }

    fn heal(&self, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            let (name, to) = (&self.names[from], Self::address(to));
            assert!(ip(&format!("-n {name} neigh del {to} dev eth0")));
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&format!("netns del {name}"));
        }
    }
}

/// Starts the coordinator in the first namespace.
fn server(net: &Net, more: &[&str]) -> Server {
    let address = format!("{}:0", Net::address(1));
    let under = ["ip", "netns", "exec", &net.names[1]];
    Server::under(&under, &address, &[&PACED, &JOB, &[PLAIN], more]).for_clients(&[PLAIN])
}

fn worker(net: &Net, place: usize, server: &Server, id: &str) -> Process {
    net.start(place, &["worker", "--server", &server.address, "--id", id, PLAIN])
}

/// Checks that a run has the parameters of a run without cuts.
#[track_caller]
fn check(left: &Left) {
    check_undisturbed(left, &[&PACED, &JOB]);
}

#[test]
#[cfg_attr(not(namespaces), ignore = "needs root and iproute2: network namespaces")]
fn a_worker_cut_off_from_its_server_rejoins_without_lost_or_repeated_gradients() {
    let net = Net::new("worker", 3);
    let server = server(&net, &[]);
    let workers = vec![worker(&net, 2, &server, "1"), worker(&net, 3, &server, "2")];
    for (updates, place) in [(5, 2), (20, 3)] {
        server.wait_for_updates(updates);
        net.cut(1, place);
        server.wait_for("lost worker", |status| status["workers"][place - 2]["state"] == "lost");
        sleep(Duration::from_millis(500));
        net.heal(1, place);
    }
    let left = server.finish(workers);
    check(&left);
    let updates: Vec<u64> = left.summary["workers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|worker| number(&worker["updates"]))
        .collect();
    assert_eq!(updates[0], updates[1], "each has its part in each round");
}

#[test]
#[cfg_attr(not(namespaces), ignore = "needs root and iproute2: network namespaces")]
fn servers_cut_off_from_each_other_continue_where_they_were() {
    let net = Net::new("server", 3);
    let server = server(&net, &["--servers", "2"]);
    let listen = format!("{}:0", Net::address(2));
    let shard = ["server", "--shard", "2/2", "--coordinator", &server.address, "--listen", &listen];
    let other = net.start(2, &[&shard[..], &[PLAIN]].concat());
    let workers = vec![worker(&net, 3, &server, "1"), worker(&net, 3, &server, "2")];
    for updates in [5, 20] {
        server.wait_for_updates(updates);
        net.cut(1, 2);
        server.wait_for("server to come", |status| status["wait"]["reason"] == "server 2 to come");
        sleep(Duration::from_millis(900));
        net.heal(1, 2);
    }
    check(&server.finish(workers));
    other.wait().with_code(0);
}

#[test]
#[cfg_attr(not(namespaces), ignore = "needs root and iproute2: network namespaces")]
fn a_worker_cut_off_from_one_of_two_servers_leaves_both_and_rejoins() {
    let net = Net::new("one", 4);
    let server = server(&net, &["--servers", "2"]);
    let listen = format!("{}:0", Net::address(2));
    let shard = ["server", "--shard", "2/2", "--coordinator", &server.address, "--listen", &listen];
    let other = net.start(2, &[&shard[..], &[PLAIN]].concat());
    let workers = vec![worker(&net, 3, &server, "1"), worker(&net, 4, &server, "2")];
    server.wait_for_updates(5);
    net.cut(2, 4);
    sleep(Duration::from_millis(1800));
    net.heal(2, 4);
    check(&server.finish(workers));
    other.wait().with_code(0);
}
