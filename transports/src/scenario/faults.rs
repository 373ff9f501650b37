//! The setting `faults`: crashes, restarts, cuts and duplicate pushes, with their times.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::{Random, Stream};
use pstrain_compute::time::Time;
use serde::{Deserialize, Serialize};

use super::item::{ScenarioError, Who, as_text, items, unknown, write_items};
use super::outage::window;
use super::quantity::{Span, span};

const SETTING: &str = "faults";

/// A fault of a worker or a server, or its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process dies.
    Crash,
    /// The process restarts; a server restarts as the standby of the other server.
    Restart,
    /// The machine is cut off: no message reaches it or leaves it. Neither side is notified; each
    /// notices after too long a silence.
    Cut,
    /// The connection works again, and delayed messages arrive.
    Heal,
    /// Workers only: the answer to the next push is lost with the connection, so that the worker
    /// pushes it again.
    Duplicate,
}

/// Subject of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Victim {
    /// A worker.
    Worker(WorkerId),
    /// The machine on which the server starts.
    Server,
    /// The machine on which the server's standby starts.
    Standby,
}

/// Faults and their times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FaultPlan {
    items: Vec<Item>,
}

as_text!(FaultPlan);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    At { who: Who, fault: Fault, at: Time },
    Random { count: u32, seed: Option<u64>, begin: Time, length: Duration },
}

/// Error of a fault that needs a standby where there is none.
const NO_STANDBY: &str = "there is no standby; say what its link to the server is like, such as \
    --link standby.delay=1ms";

/// Maximum number of random incidents per item.
const MOST_RANDOM: u32 = 1_000_000;

impl FaultPlan {
    /// True if there are no faults.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.items.is_empty()
    }

    /// Rejects items about workers that a job with `workers` workers does not have.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub fn check(&self, workers: u32) -> Result<(), ScenarioError> {
        for item in &self.items {
            if let Item::At { who, .. } = item {
                who.check(workers).map_err(|problem| ScenarioError::new(SETTING, item, problem))?;
            }
        }
        Ok(())
    }

    /// Rejects items about servers that a job lacks. With several servers no server can have a
    /// fault, and a server can restart only if it has a standby to follow.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub(super) fn check_servers(&self, servers: u32, standby: bool) -> Result<(), ScenarioError> {
        for item in &self.items {
            let Item::At { who, fault, .. } = item else { continue };
            let problem = match who {
                Who::Server | Who::Standby if servers > 1 => {
                    "faults are those of workers where a job has several servers"
                }
                Who::Standby if !standby => NO_STANDBY,
                Who::Server if !standby && *fault == Fault::Restart => NO_STANDBY,
                _ => continue,
            };
            return Err(ScenarioError::new(SETTING, item, problem.into()));
        }
        Ok(())
    }

    /// Rejects faults of a server, for a job whose workers have none.
    pub(super) fn check_meeting(&self) -> Result<(), ScenarioError> {
        let of_server =
            |item: &&Item| matches!(item, Item::At { who: Who::Server | Who::Standby, .. });
        match self.items.iter().find(of_server) {
            Some(item) => {
                let problem = "faults are those of workers where they have no server";
                Err(ScenarioError::new(SETTING, item, problem.into()))
            }
            None => Ok(()),
        }
    }

    /// Returns all faults, sorted by time. Randomness comes from `stream`, unless an item has its
    /// own seed.
    #[must_use]
    pub fn resolve(&self, workers: u32, stream: Stream) -> Vec<(Time, Victim, Fault)> {
        let mut faults = Vec::new();
        for (index, item) in self.items.iter().enumerate() {
            match *item {
                Item::At { who: Who::Worker(worker), fault, at } => {
                    faults.push((at, Victim::Worker(worker), fault));
                }
                Item::At { who: Who::Server, fault, at } => {
                    faults.push((at, Victim::Server, fault));
                }
                Item::At { who: Who::Site(_), .. } => unreachable!("refused as it was read"),
                Item::At { who: Who::Standby, fault, at } => {
                    faults.push((at, Victim::Standby, fault));
                }
                Item::At { who: Who::All, fault, at } => {
                    let all = (0..workers).map(|worker| Victim::Worker(WorkerId(worker)));
                    faults.extend(all.map(|worker| (at, worker, fault)));
                }
                Item::Random { count, seed, begin, length } => {
                    let stream =
                        seed.map_or_else(|| stream.fork("faults", index as u64), Stream::new);
                    let mut random = stream.rng();
                    for _ in 0..count {
                        incident(workers, begin, length, &mut random, &mut faults);
                    }
                }
            }
        }
        faults.sort_by_key(|&(at, ..)| at);
        faults
    }
}

/// Adds one random incident that begins within `length` of `begin`: a crash, a cut or a duplicate
/// push. Nine of ten crashes and cuts are repaired within a quarter of `length`.
fn incident(
    workers: u32,
    begin: Time,
    length: Duration,
    random: &mut Random,
    faults: &mut Vec<(Time, Victim, Fault)>,
) {
    let worker = Victim::Worker(WorkerId(random.below(workers.into()) as u32));
    let length = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let at = begin + Duration::from_nanos(random.below(length));
    let mended = at + Duration::from_nanos(1 + random.below(length / 4));
    let is_mended = random.below(10) > 0;
    let (fault, mend) = match random.below(5) {
        0 | 1 => (Fault::Crash, Some(Fault::Restart)),
        2 | 3 => (Fault::Cut, Some(Fault::Heal)),
        _ => (Fault::Duplicate, None),
    };
    faults.push((at, worker, fault));
    faults.extend(mend.filter(|_| is_mended).map(|mend| (mended, worker, mend)));
}

impl FromStr for Item {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_prefix("random:") {
            return random_item(rest);
        }
        let parts = text
            .split_once('@')
            .and_then(|(path, at)| path.split_once('.').map(|(who, fault)| (who, fault, at)));
        let Some((who, fault, at)) = parts else {
            return Err(
                "write WORKER.FAULT@TIME, such as 1.crash@10s, or random:COUNT@START+LENGTH".into(),
            );
        };
        let who = Who::read(who)?;
        let fault = fault.parse()?;
        if matches!(who, Who::Site(_)) {
            return Err("a site has an outage of its link, such as --link site1.outage=10s+2s; \
                        faults are of its workers"
                .into());
        }
        if matches!(who, Who::Server | Who::Standby) && fault == Fault::Duplicate {
            return Err("only workers push; name one by its number, or all".into());
        }
        Ok(Self::At { who, fault, at: Time::ZERO + span(at)? })
    }
}

/// Parses `COUNT[,SEED]@START+LENGTH`.
fn random_item(text: &str) -> Result<Item, String> {
    let parts = text.split_once('@').and_then(|(numbers, span)| {
        let (count, seed) = match numbers.split_once(',') {
            Some((count, seed)) => (count, Some(seed.parse().ok()?)),
            None => (numbers, None),
        };
        let count = count.parse().ok().filter(|count| (1..=MOST_RANDOM).contains(count))?;
        Some((count, seed, span))
    });
    let Some((count, seed, span)) = parts else {
        return Err(format!(
            "write random:COUNT@START+LENGTH or random:COUNT,SEED@START+LENGTH, with a count from \
             1 to {MOST_RANDOM}"
        ));
    };
    let (begin, length) = window(span)?;
    Ok(Item::Random { count, seed, begin, length })
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At { who, fault, at } => {
                write!(f, "{who}.{fault}@{}", Span(at.since(Time::ZERO)))
            }
            Self::Random { count, seed, begin, length } => {
                write!(f, "random:{count}")?;
                if let Some(seed) = seed {
                    write!(f, ",{seed}")?;
                }
                write!(f, "@{}+{}", Span(begin.since(Time::ZERO)), Span(*length))
            }
        }
    }
}

const FAULTS: &[(&str, Fault)] = &[
    ("crash", Fault::Crash),
    ("restart", Fault::Restart),
    ("cut", Fault::Cut),
    ("heal", Fault::Heal),
    ("duplicate", Fault::Duplicate),
];

impl FromStr for Fault {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        if let Some(&(_, fault)) = FAULTS.iter().find(|(name, _)| *name == word) {
            return Ok(fault);
        }
        let known: Vec<&str> = FAULTS.iter().map(|&(name, _)| name).collect();
        let hint = if word == "slow" {
            " (a slow machine is said with compute: slow=10x@30s+60s)"
        } else {
            ""
        };
        Err(unknown("fault", word, &known) + hint)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FAULTS.iter().find(|(_, fault)| fault == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

impl FromStr for FaultPlan {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let read =
            |item: &str| item.parse().map_err(|problem| ScenarioError::new(SETTING, item, problem));
        let items = items(SETTING, text)?.into_iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { items })
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_items(f, self.items.iter())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn resolve(text: &str, seed: u64) -> Vec<(Time, Victim, Fault)> {
        text.parse::<FaultPlan>().unwrap().resolve(3, Stream::new(seed))
    }

    #[test]
    fn faults_come_in_the_order_of_their_times() {
        let s = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let faults =
            resolve("1.restart@12s 1.crash@10s all.cut@11s standby.cut@14s server.crash@13s", 1);
        let worker = |worker| Victim::Worker(WorkerId(worker));
        let expected = [
            (s(10), worker(0), Fault::Crash),
            (s(11), worker(0), Fault::Cut),
            (s(11), worker(1), Fault::Cut),
            (s(11), worker(2), Fault::Cut),
            (s(12), worker(0), Fault::Restart),
            (s(13), Victim::Server, Fault::Crash),
            (s(14), Victim::Standby, Fault::Cut),
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn random_faults_are_mostly_mended() {
        let faults = resolve("random:1000@5s+1m", 1);
        let count = |fault| faults.iter().filter(|&&(.., f)| f == fault).count();
        for (fault, mend) in [(Fault::Crash, Fault::Restart), (Fault::Cut, Fault::Heal)] {
            assert!(count(fault) > 300, "{fault}");
            assert!(count(mend) < count(fault) && count(mend) > count(fault) * 8 / 10, "{mend}");
        }
        assert!(count(Fault::Duplicate) > 100);
        assert!(faults.is_sorted_by_key(|&(at, ..)| at));
        assert!(faults[0].0 >= Time::ZERO + Duration::from_secs(5));
        assert_eq!(resolve("random:1000@5s+1m", 1), faults);
        assert_ne!(resolve("random:1000@5s+1m", 2), faults);
        assert_eq!(resolve("random:9,5@0s+1s", 1), resolve("random:9,5@0s+1s", 2));
    }

    #[test]
    fn errors_name_the_item_and_what_is_allowed() {
        for (text, told) in [
            (
                "1.crsh@1s",
                "faults: 1.crsh@1s: \"crsh\" is no fault (did you mean crash?); there are",
            ),
            (
                "2.slow@30s",
                "faults: 2.slow@30s: \"slow\" is no fault; there are crash, restart, cut, heal, \
                 duplicate (a slow machine is said with compute",
            ),
            ("crash@1s", "faults: crash@1s: write WORKER.FAULT@TIME"),
            ("1.crash@x", "faults: 1.crash@x: \"x\" is no time"),
            ("random:0@0s+1s", "faults: random:0@0s+1s: write random:COUNT@START+LENGTH"),
            ("random:9", "faults: random:9: write random:COUNT@START+LENGTH"),
            ("server.duplicate@1s", "faults: server.duplicate@1s: only workers push"),
        ] {
            let error = text.parse::<FaultPlan>().unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    proptest! {
        #[test]
        fn the_canonical_text_reads_back(
            plan in prop::collection::vec((0_u32..6, 0_usize..5, 0_u64..u64::MAX), 0..9),
            random in prop::option::of((1_u32..9, prop::option::of(any::<u64>()), any::<u32>())),
        ) {
            let mut items: Vec<Item> = plan
                .into_iter()
                .map(|(who, fault, at)| Item::At {
                    who: match who {
                        0 => Who::All,
                        4 if fault < 4 => Who::Server,
                        5 if fault < 4 => Who::Standby,
                        _ => Who::Worker(WorkerId(who)),
                    },
                    fault: FAULTS[fault].1,
                    at: Time::from_nanos(at),
                })
                .collect();
            items.extend(random.map(|(count, seed, begin)| {
                let begin = Time::from_nanos(begin.into());
                Item::Random { count, seed, begin, length: Duration::from_millis(70) }
            }));
            let plan = FaultPlan { items };
            prop_assert_eq!(plan.to_string().parse::<FaultPlan>().unwrap(), plan);
        }
    }
}
