//! The setting `link`: delay, rate, loss and other properties of each link and direction.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::Replicate;
use serde::{Deserialize, Serialize};

use super::item::{ScenarioError, Who, as_text, items, unknown, write_items};
use super::outage::Outage;
use super::pipe::Pipe;
use super::quantity::{Loss, Rate, Span, span};

const SETTING: &str = "link";

/// The links between the workers and the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Links {
    said: BTreeMap<(Who, Direction), Said>,
}

as_text!(Links);

/// Both directions of the link of a worker or a standby.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerLink {
    /// To the server.
    pub up: LinkSpec,
    /// From the server.
    pub down: LinkSpec,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkSpec {
    /// Transit time of a message, without the time that its size takes.
    pub delay: Duration,
    /// Delays that apply from later times on, sorted by time.
    pub later: Vec<Later>,
    /// Magnitude of the delay's variation.
    pub jitter: Duration,
    /// Distribution of the delay's variation.
    pub distribution: Distribution,
    /// Rate of the link; without one the size of a message takes no time.
    pub rate: Option<Rate>,
    /// Share of segments that are lost and sent again.
    pub loss: Loss,
    /// Spans in which the link carries nothing.
    pub outages: Vec<Outage>,
    /// TCP's slow start, and its restart after idle time, are modelled.
    pub slow_start: bool,
}

/// The server's link, shared by all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLink {
    /// From the workers to the server.
    pub up: Option<Rate>,
    /// From the server to the workers.
    pub down: Option<Rate>,
}

/// A delay that applies from a time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Later {
    /// The delay.
    pub delay: Duration,
    /// When it begins to apply.
    pub from: Time,
}

/// Distribution of a delay about its mean, as in `tc netem`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Uniform from `delay - jitter` to `delay + jitter`.
    #[default]
    Uniform,
    /// Normal, with the jitter as standard deviation.
    Normal,
    /// Heavy-tailed: netem's table, a Pareto distribution of shape 3 about its mean.
    Pareto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    Up,
    Down,
}

/// Settings of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Said {
    delay: Option<Duration>,
    /// Sorted by time, at most one for each time.
    later: Option<Vec<Later>>,
    jitter: Option<Duration>,
    distribution: Option<Distribution>,
    /// `rate=none` overrides a rate set for all.
    rate: Option<Option<Rate>>,
    loss: Option<Loss>,
    outages: Option<Vec<Outage>>,
    slow_start: Option<bool>,
    /// Only for the link of a standby.
    replicate: Option<Replicate>,
}

/// A standby's setting that is not about its link, and where it is stored.
const REPLICATE: &str = "replicate";
const STANDBYS: (Who, Direction) = (Who::Standby, Direction::Up);

const KEYS: &[&str] =
    &["delay", "later", "jitter", "distribution", "rate", "loss", "outage", "slow-start"];

impl WorkerLink {
    /// Returns the round trip time of a small message without variation.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        self.up.delay.saturating_add(self.down.delay)
    }

    /// Returns both directions, up and down, before the first message. Their randomness depends
    /// only on `stream` and the worker, so it is the same in real and in virtual time.
    #[must_use]
    pub fn pipes(self, worker: WorkerId, stream: Stream) -> (Pipe, Pipe) {
        let (round_trip, number) = (self.round_trip(), u64::from(worker.0));
        let up = Pipe::new(self.up, round_trip, stream.fork("link up", number));
        let down = Pipe::new(self.down, round_trip, stream.fork("link down", number));
        (up, down)
    }
}

impl Links {
    /// True if no link is modelled.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.said.is_empty()
    }

    /// Returns the link of one worker; `None` if no item is about it.
    #[must_use]
    pub fn of(&self, worker: WorkerId) -> Option<WorkerLink> {
        let up = self.direction(worker, Direction::Up);
        let down = self.direction(worker, Direction::Down);
        if up.is_none() && down.is_none() {
            return None;
        }
        Some(WorkerLink { up: up.unwrap_or_default(), down: down.unwrap_or_default() })
    }

    fn direction(&self, worker: WorkerId, direction: Direction) -> Option<LinkSpec> {
        let own = self.said.get(&(Who::Worker(worker), direction));
        let all = self.said.get(&(Who::All, direction));
        if own.is_none() && all.is_none() {
            return None;
        }
        // The worker's own settings come last and take precedence.
        let mut spec = LinkSpec::default();
        for said in [all, own].into_iter().flatten() {
            said.apply(&mut spec);
        }
        Some(spec)
    }

    /// Returns the link between the server and its standby, up to the server and down from it;
    /// `None` if no item is about it, which means that there is no standby.
    #[must_use]
    pub fn standby(&self) -> Option<WorkerLink> {
        let way = |direction| {
            let said = self.said.get(&(Who::Standby, direction))?;
            let mut spec = LinkSpec::default();
            said.apply(&mut spec);
            Some(spec)
        };
        let (up, down) = (way(Direction::Up), way(Direction::Down));
        let is_said = up.is_some() || down.is_some();
        is_said.then(|| WorkerLink { up: up.unwrap_or_default(), down: down.unwrap_or_default() })
    }

    /// Returns whether the standby receives pushes or combined updates.
    #[must_use]
    pub fn replicate(&self) -> Replicate {
        let said = self.said.get(&(Who::Standby, Direction::Up));
        said.and_then(|said| said.replicate).unwrap_or_default()
    }

    /// Returns the link that all workers share.
    #[must_use]
    pub fn server(&self) -> ServerLink {
        let rate = |direction| self.said.get(&(Who::Server, direction))?.rate?;
        ServerLink { up: rate(Direction::Up), down: rate(Direction::Down) }
    }

    /// Rejects items about workers that a job with `workers` workers does not have.
    ///
    /// # Errors
    /// [`ScenarioError`] names the item.
    pub fn check(&self, workers: u32) -> Result<(), ScenarioError> {
        for (&(who, direction), said) in &self.said {
            who.check(workers).map_err(|problem| {
                let item = said.items().into_iter().next().unwrap_or_default();
                ScenarioError::new(SETTING, format!("{who}.{direction}.{item}"), problem)
            })?;
        }
        Ok(())
    }

    fn take(&mut self, item: &str) -> Result<(), String> {
        let Some((path, value)) = item.split_once('=') else {
            return Err("write KEY=VALUE, such as 1.delay=100ms".into());
        };
        let mut words: Vec<&str> = path.split('.').collect();
        let key = words.pop().unwrap_or_default();
        let direction = match words.last() {
            Some(&"up") => Some(Direction::Up),
            Some(&"down") => Some(Direction::Down),
            _ => None,
        };
        if direction.is_some() {
            words.pop();
        }
        let who = match words.as_slice() {
            [] => Who::All,
            [word] => Who::read(word)?,
            _ => return Err("write [WHO.][up.|down.]KEY=VALUE".into()),
        };
        if who == Who::Server && key != "rate" {
            return Err(format!(
                "{key:?} cannot be said of the server, only rate; the delay of a link is said of \
                 its worker"
            ));
        }
        if key == REPLICATE && (who, direction.unwrap_or(Direction::Up)) != STANDBYS {
            return Err(format!("{REPLICATE} is said of the standby: standby.{REPLICATE}=pushes"));
        }
        let directions = match (direction, who) {
            (Some(direction), _) => vec![direction],
            (None, Who::Server) => vec![Direction::Up, Direction::Down],
            (None, _) => vec![Direction::Up],
        };
        for direction in directions {
            let mut said = self.said.get(&(who, direction)).cloned().unwrap_or_default();
            said.take(key, value)?;
            self.said.insert((who, direction), said);
        }
        Ok(())
    }
}

impl Said {
    fn take(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "delay" => self.delay = Some(span(value)?),
            "later" if value == "none" => self.later = Some(Vec::new()),
            "later" => {
                let one: Later = value.parse()?;
                let later = self.later.get_or_insert_default();
                later.retain(|other| other.from != one.from);
                later.push(one);
                later.sort_by_key(|later| later.from);
            }
            "jitter" => self.jitter = Some(span(value)?),
            "distribution" => self.distribution = Some(value.parse()?),
            "rate" if value == "none" => self.rate = Some(None),
            "rate" => self.rate = Some(Some(value.parse()?)),
            "loss" => self.loss = Some(value.parse()?),
            "outage" if value == "none" => self.outages = Some(Vec::new()),
            "outage" => self.outages.get_or_insert_default().push(value.parse()?),
            "slow-start" => {
                self.slow_start = Some(match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(unknown("switch", value, &["on", "off"])),
                });
            }
            REPLICATE => {
                self.replicate = Some(match value {
                    "pushes" => Replicate::Pushes,
                    "updates" => Replicate::Updates,
                    _ => return Err(unknown("way to replicate", value, &["pushes", "updates"])),
                });
            }
            _ => return Err(unknown("key of a link", key, KEYS)),
        }
        Ok(())
    }

    fn apply(&self, spec: &mut LinkSpec) {
        spec.delay = self.delay.unwrap_or(spec.delay);
        if let Some(later) = &self.later {
            spec.later.clone_from(later);
        }
        spec.jitter = self.jitter.unwrap_or(spec.jitter);
        spec.distribution = self.distribution.unwrap_or(spec.distribution);
        spec.rate = self.rate.unwrap_or(spec.rate);
        spec.loss = self.loss.unwrap_or(spec.loss);
        if let Some(outages) = &self.outages {
            spec.outages.clone_from(outages);
        }
        spec.slow_start = self.slow_start.unwrap_or(spec.slow_start);
    }

    /// Returns the settings as `KEY=VALUE`.
    fn items(&self) -> Vec<String> {
        let mut items = Vec::new();
        items.extend(self.delay.map(|delay| format!("delay={}", Span(delay))));
        match self.later.as_deref() {
            Some([]) => items.push("later=none".into()),
            later => items.extend(later.iter().copied().flatten().map(|l| format!("later={l}"))),
        }
        items.extend(self.jitter.map(|jitter| format!("jitter={}", Span(jitter))));
        items.extend(self.distribution.map(|how| format!("distribution={how}")));
        items.extend(self.rate.map(|rate| match rate {
            Some(rate) => format!("rate={rate}"),
            None => "rate=none".into(),
        }));
        items.extend(self.loss.map(|loss| format!("loss={loss}")));
        match self.outages.as_deref() {
            Some([]) => items.push("outage=none".into()),
            outages => {
                items.extend(outages.iter().copied().flatten().map(|o| format!("outage={o}")))
            }
        }
        items.extend(
            self.slow_start.map(|on| format!("slow-start={}", if on { "on" } else { "off" })),
        );
        items.extend(self.replicate.map(|replicate| match replicate {
            Replicate::Pushes => format!("{REPLICATE}=pushes"),
            Replicate::Updates => format!("{REPLICATE}=updates"),
        }));
        items
    }
}

impl FromStr for Links {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let mut links = Self::default();
        for item in items(SETTING, text)? {
            links.take(item).map_err(|problem| ScenarioError::new(SETTING, item, problem))?;
        }
        Ok(links)
    }
}

impl fmt::Display for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.said.iter().flat_map(|(&(who, direction), said)| {
            said.items().into_iter().map(move |item| format!("{who}.{direction}.{item}"))
        });
        write_items(f, items)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Up => "up",
            Self::Down => "down",
        })
    }
}

impl FromStr for Later {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((delay, from)) = text.split_once('@') else {
            return Err(format!("{text:?} is no later delay; write DELAY@TIME, such as 100ms@60s"));
        };
        Ok(Self { delay: span(delay)?, from: Time::ZERO + span(from)? })
    }
}

impl fmt::Display for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", Span(self.delay), Span(self.from.since(Time::ZERO)))
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "uniform" => Ok(Self::Uniform),
            "normal" => Ok(Self::Normal),
            "pareto" => Ok(Self::Pareto),
            _ => Err(unknown("distribution", word, &["uniform", "normal", "pareto"])),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
        })
    }
}

#[cfg(test)]
mod tests {
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
            (
                "delay=5",
                "link: delay=5: \"5\" is no time; write one such as 100ms, 4.5ms, 250us or 2s",
            ),
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
            (
                "delay=5ms none",
                "link: none: it stands alone: nothing is modelled then; leave it out",
            ),
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
}
