use proptest::prelude::*;

use super::*;

fn links(text: &str) -> Links {
    text.parse().unwrap()
}

#[test]
fn the_last_item_wins_and_a_numbered_one_over_all() {
    let links = links(
        "2.delay=5ms delay=10ms delay=20ms 1.down.delay=3ms rate=10mbit 2.rate=none \
         outage=1s+1s outage=5s+1s 2.outage=9s+1s",
    );
    let first = links.of(WorkerId(0)).unwrap();
    assert_eq!(first.up.delay, Duration::from_millis(20));
    assert_eq!(first.down.delay, Duration::from_millis(3));
    assert_eq!(first.round_trip(), Duration::from_millis(23));
    assert_eq!(first.up.rate, Rate::new(10_000_000));
    assert_eq!(first.down.rate, None);
    assert_eq!(first.up.outages.len(), 2);
    let second = links.of(WorkerId(1)).unwrap();
    assert_eq!(second.up.delay, Duration::from_millis(5));
    assert_eq!(second.up.rate, None);
    assert_eq!(second.up.outages, ["9s+1s".parse().unwrap()]);
}

#[test]
fn nothing_said_is_told_from_nothing_to_wait() {
    assert_eq!(links("2.delay=0ms server.rate=1gbit").of(WorkerId(0)), None);
    assert_eq!(links("2.delay=0ms").of(WorkerId(1)), Some(WorkerLink::default()));
    assert_eq!(links("all.delay=1ms").standby(), None);
    let standby = links("all.delay=1ms standby.down.delay=2ms").standby().unwrap();
    assert_eq!(standby.round_trip(), Duration::from_millis(2));
    assert!(links(" none ").is_none());
    assert_eq!(links("standby.delay=2ms").replicate(), Replicate::Updates);
    let pushes = links("standby.delay=2ms standby.replicate=pushes");
    assert_eq!(pushes.replicate(), Replicate::Pushes);
    assert_eq!(links(&pushes.to_string()), pushes);
    assert!("2.replicate=pushes".parse::<Links>().is_err());
}

#[test]
fn the_server_has_a_rate_each_way() {
    let rate = Rate::new;
    let gigabit = rate(1_000_000_000);
    assert_eq!(links("server.rate=1gbit").server(), ServerLink { up: gigabit, down: gigabit });
    let two = links("server.rate=1gbit server.down.rate=10mbit").server();
    assert_eq!(two, ServerLink { up: gigabit, down: rate(10_000_000) });
}

#[test]
fn workers_of_a_site_share_a_link() {
    let all =
        links("all.delay=1ms site.size=3 site.delay=20ms site2.delay=50ms site.down.rate=8mbit");
    let sites = (0..7).map(|worker| all.site_of(WorkerId(worker)));
    assert_eq!(sites.collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1, 2].map(Some));
    assert_eq!(all.site(0).up.delay, Duration::from_millis(20));
    assert_eq!(all.site(1).up.delay, Duration::from_millis(50));
    assert_eq!(all.site(1).down.rate, Rate::new(8_000_000));
    assert_eq!(links(&all.to_string()), all);
    assert_eq!(links("all.delay=1ms").site_of(WorkerId(0)), None);
    // Workers have links without delay where only links of sites are said.
    assert_eq!(links("site.size=2").of(WorkerId(5)), Some(WorkerLink::default()));
    assert_eq!(all.check(4), Ok(()));
    for (text, told) in [
        (
            "site.delay=5ms",
            "link: site: how many workers are a site? say it too, such as site.size=4",
        ),
        (
            "site.size=4 site2.delay=5ms",
            "link: site2: the job has no such site; its sites are numbered 1 to 1",
        ),
    ] {
        assert_eq!(links(text).check(4).unwrap_err().to_string(), told);
    }
    for (text, told) in [
        ("site.size=0", "link: site.size=0: \"0\" is no number of workers; write 1 or more"),
        ("site2.size=4", "link: site2.size=4: size is said of all sites: site.size=4"),
        ("2.size=4", "link: 2.size=4: size is said of all sites: site.size=4"),
        (
            "site0.delay=5ms",
            "link: site0.delay=5ms: \"site0\" is no site; write site and its \
             number from 1, or site alone",
        ),
        (
            "site.slow-start=on",
            "link: site.slow-start=on: a window is of a connection; say it of \
             workers: all.slow-start=on",
        ),
    ] {
        assert_eq!(text.parse::<Links>().unwrap_err().to_string(), told);
    }
    let fault = "site1.cut@5s".parse::<crate::scenario::FaultPlan>().unwrap_err().to_string();
    assert!(fault.contains("site1.outage=10s+2s"), "{fault}");
}

#[test]
fn errors_name_the_item_and_what_is_allowed() {
    for (text, told) in [
        (
            "all.latency=5ms",
            "link: all.latency=5ms: \"latency\" is no key of a link; did you mean delay?",
        ),
        (
            "1.Bandwidth=1mbit",
            "link: 1.Bandwidth=1mbit: \"Bandwidth\" is no key of a link; did you mean rate?",
        ),
        (
            "1.dela=5ms",
            "link: 1.dela=5ms: \"dela\" is no key of a link (did you mean delay?); there are \
             delay, later, jitter, distribution, rate, loss, outage, slow-start",
        ),
        (
            "2.later=5ms",
            "link: 2.later=5ms: \"5ms\" is no later delay; write DELAY@TIME, such as 100ms@60s",
        ),
        ("delay=5", "link: delay=5: \"5\" is no time; write one such as 100ms, 4.5ms, 250us or 2s"),
        (
            "0.delay=5ms",
            "link: 0.delay=5ms: \"0\" is no worker; write its number (they count from 1), \
             or all",
        ),
        ("delay", "link: delay: write KEY=VALUE, such as 1.delay=100ms"),
        (
            "server.delay=5ms",
            "link: server.delay=5ms: \"delay\" cannot be said of the server, only rate; the \
             delay of a link is said of its worker",
        ),
        ("delay=5ms none", "link: none: it stands alone: nothing is modelled then; leave it out"),
        ("slow-start=yes", "link: slow-start=yes: \"yes\" is no switch; there are on, off"),
    ] {
        assert_eq!(text.parse::<Links>().unwrap_err().to_string(), told);
    }
}

fn item() -> impl Strategy<Value = String> {
    let who = prop_oneof![
        Just(String::new()),
        Just("all.".to_owned()),
        Just("standby.".to_owned()),
        (1_u32..5).prop_map(|worker| format!("{worker}.")),
    ];
    let direction = prop_oneof![Just(""), Just("up."), Just("down.")];
    let value = prop_oneof![
        (0..u64::MAX).prop_map(|ns| format!("delay={}", Span(Duration::from_nanos(ns)))),
        (0..9_999_u32).prop_map(|us| format!("jitter={us}us")),
        (0..9_u32, 0..5_u32).prop_map(|(delay, at)| format!("later={delay}ms@{at}s")),
        Just("later=none".to_owned()),
        prop_oneof![Just("uniform"), Just("normal"), Just("pareto")]
            .prop_map(|how| format!("distribution={how}")),
        (1..u32::MAX).prop_map(|bits| format!("rate={bits}bit")),
        Just("rate=none".to_owned()),
        (0..99_u32, 0..9_u32).prop_map(|(a, b)| format!("loss={a}.{b}%")),
        (0..99_u32, 1..99_u32).prop_map(|(a, b)| format!("outage={a}s+{b}ms")),
        Just("outage=none".to_owned()),
        prop_oneof![Just("slow-start=on"), Just("slow-start=off")].prop_map(str::to_owned),
    ];
    (who, direction, value).prop_map(|(who, way, value)| format!("{who}{way}{value}"))
}

proptest! {
    #[test]
    fn the_canonical_text_reads_back(items in prop::collection::vec(item(), 0..12)) {
        let links = links(&items.join(" "));
        let text = links.to_string();
        prop_assert_eq!(&text.parse::<Links>().unwrap(), &links);
        let json = serde_json::to_string(&links).unwrap();
        prop_assert_eq!(json, format!("{text:?}"));
    }
}
