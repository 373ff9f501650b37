//! Rate limits for messages about troubled workers, servers and unauthenticated connections. Any
//! number of such events may come: a few are printed, the others counted.

use std::collections::BTreeMap;
use std::time::Duration;

use pstrain_compute::id::{ServerId, WorkerId};
use pstrain_compute::time::Time;
use pstrain_roles::node::{Departure, Event};
use pstrain_transports::{LogLimit, LogLimitBySource};

const PERIOD: Duration = Duration::from_secs(10);
/// The limit for all sources of one kind together.
const ALL: LogLimit = LogLimit::new(20, PERIOD);

/// Rate limiters of these messages, by source.
#[derive(Debug)]
pub(crate) struct EventLimiter {
    /// Workers that are cut off, lost, refused or back.
    members: LogLimitBySource<(WorkerId, Kind)>,
    servers: LogLimitBySource<(ServerId, Kind)>,
    /// Refused workers and servers, by the identity that they stated and their host.
    claimants: LogLimitBySource<(String, Option<String>)>,
    /// Other refused connections, by host.
    strangers: LogLimitBySource<Option<String>>,
    /// Connections of this process to its server that were lost or restored.
    dials: LogLimitBySource<Kind>,
    /// Servers that are cut off, with the time.
    away: BTreeMap<ServerId, Time>,
    /// How often workers were cut off since the first server in `away` was.
    cut_off: u64,
}

/// Part of the key of a limiter, so that loss and return of one source are both printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Gone,
    Back,
}

impl EventLimiter {
    pub(crate) const fn new() -> Self {
        let [twice, often] = [LogLimit::new(2, PERIOD), LogLimit::new(5, PERIOD)];
        Self {
            members: LogLimitBySource::new(twice, ALL),
            servers: LogLimitBySource::new(twice, ALL),
            claimants: LogLimitBySource::new(twice, ALL),
            strangers: LogLimitBySource::new(often, ALL),
            dials: LogLimitBySource::new(often, ALL),
            away: BTreeMap::new(),
            cut_off: 0,
        }
    }

    /// Returns the message for an event described by `words`, unless it is suppressed.
    pub(crate) fn say(&mut self, now: Time, event: &Event, words: String) -> Option<String> {
        match event {
            Event::ServerCutOff { server, .. } => {
                self.away.entry(*server).or_insert(now);
                self.servers.say(now, (*server, Kind::Gone), &words)
            }
            Event::ServerJoined { server } => {
                let words = self.returned(now, *server).unwrap_or(words);
                self.servers.say(now, (*server, Kind::Back), &words)
            }
            // A worker needs all servers: while one is away, workers reconnect in vain.
            Event::CutOff { .. } if !self.away.is_empty() => {
                self.cut_off += 1;
                None
            }
            Event::Joined { resumed: true, .. } if !self.away.is_empty() => None,
            Event::CutOff { worker, .. }
            | Event::Departed { worker, how: Departure::Lost | Departure::Left, .. }
            | Event::Refused { worker: Some(worker), .. } => {
                self.members.say(now, (*worker, Kind::Gone), &words)
            }
            Event::Joined { worker, resumed: true, .. } => {
                self.members.say(now, (*worker, Kind::Back), &words)
            }
            Event::Refused { who: Some(who), from, .. } => {
                self.claimants.say(now, (who.clone(), from.clone()), &words)
            }
            Event::Redialling { .. } => self.dials.say(now, Kind::Gone, &words),
            Event::Welcomed { resumed: true, .. } => self.dials.say(now, Kind::Back, &words),
            Event::Refused { from, .. } => self.strangers.say(now, from.clone(), &words),
            _ => Some(words),
        }
    }

    /// Describes the return of a server; None if it was not away.
    fn returned(&mut self, now: Time, server: ServerId) -> Option<String> {
        let seconds = now.since(self.away.remove(&server)?).as_secs_f64();
        let back = format!("server {server} is back after {seconds:.1} s");
        if !self.away.is_empty() {
            return Some(back);
        }
        Some(match std::mem::take(&mut self.cut_off) {
            0 => back,
            1 => format!("{back}; a worker was cut off once meanwhile"),
            times => format!("{back}; workers were cut off {times} times meanwhile"),
        })
    }

    /// Returns counts of suppressed messages, and resets them.
    pub(crate) fn suppressed(&mut self) -> Vec<String> {
        let all = [
            (self.strangers.suppressed(), "more connections were refused"),
            (self.claimants.suppressed(), "more times a worker or server was refused"),
            (self.members.suppressed(), "more times a worker was cut off, lost, refused or back"),
            (self.dials.suppressed(), "more times there was no connection, or again one"),
            (self.servers.suppressed(), "more times a server was cut off or back"),
            (
                std::mem::take(&mut self.cut_off),
                "times a worker was cut off while a server was away",
            ),
        ];
        let some = all.into_iter().filter(|(times, _)| *times > 0);
        some.map(|(times, what)| format!("{times} {what}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use pstrain_compute::id::{Incarnation, PeerId};
    use pstrain_wire::Refusal;

    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn cut_off(worker: u32) -> Event {
        Event::CutOff { worker: WorkerId(worker), why: "gone".into() }
    }

    fn back(worker: u32) -> Event {
        let (worker, name, incarnation) = (WorkerId(worker), String::new(), Incarnation(1));
        Event::Joined { worker, name, incarnation, resumed: true }
    }

    fn refused(who: Option<&str>, from: &str) -> Event {
        let (who, from) = (who.map(str::to_owned), Some(from.to_owned()));
        Event::Refused { peer: PeerId(1), from, worker: None, who, why: Refusal::Over }
    }

    #[test]
    fn a_worker_that_comes_and_goes_is_said_to_twice_and_counted_and_hides_no_other() {
        let mut troubles = EventLimiter::new();
        let mut said = |millis, event: &Event| troubles.say(at(millis), event, "line".into());
        let lines = (0..200).filter(|step| {
            let event = if step % 2 == 0 { cut_off(1) } else { back(1) };
            said(25 * step, &event).is_some()
        });
        assert_eq!(lines.count(), 4);
        assert_eq!(said(5_000, &cut_off(2)).as_deref(), Some("line (and 196 others before)"));
        assert!(said(11_000, &cut_off(1)).is_some(), "ten seconds later it is said again");
    }

    #[test]
    fn while_a_server_is_away_workers_are_counted_and_the_server_is_said_to_be_back() {
        let mut troubles = EventLimiter::new();
        let server = ServerId(1);
        let gone = Event::ServerCutOff { server, why: "gone".into() };
        assert_eq!(troubles.say(at(0), &gone, "gone".into()).as_deref(), Some("gone"));
        for millis in 0..100 {
            assert_eq!(troubles.say(at(50 * millis), &cut_off(1), "cut off".into()), None);
            assert_eq!(troubles.say(at(50 * millis), &back(1), "back".into()), None);
        }
        let joined = Event::ServerJoined { server };
        let said = troubles.say(at(12_300), &joined, "there".into());
        let words = "server 2 is back after 12.3 s; workers were cut off 100 times meanwhile";
        assert_eq!(said.as_deref(), Some(words));
        assert!(troubles.say(at(13_000), &cut_off(1), "cut off".into()).is_some());
        assert!(troubles.suppressed().is_empty());
    }

    #[test]
    fn a_flood_of_refused_connections_hides_no_refused_worker() {
        let mut troubles = EventLimiter::new();
        for number in 0..10_000 {
            let host = format!("10.0.{}.{}", number % 7, number % 250);
            troubles.say(at(number), &refused(None, &host), "noise".into());
        }
        let worker = refused(Some("worker edge-7"), "10.0.0.3");
        assert_eq!(troubles.say(at(10_001), &worker, "refused".into()).as_deref(), Some("refused"));
        // One worker that retries again and again must not hide another.
        for number in 0..1_000 {
            troubles.say(at(10_100 + number), &worker, "refused".into());
        }
        let other = refused(Some("worker edge-8"), "10.0.0.3");
        assert!(troubles.say(at(11_200), &other, "refused".into()).is_some());
        assert!(!troubles.suppressed().is_empty());
        assert!(troubles.suppressed().is_empty(), "it is told once");
    }
}
