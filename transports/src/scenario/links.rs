//! The setting `link`: delay, rate, loss and other properties of each link and direction.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

use pstrain_compute::id::WorkerId;
use pstrain_compute::rng::Stream;
use pstrain_compute::time::Time;
use pstrain_roles::node::Replicate;
use serde::{Deserialize, Serialize};

use super::item::{ScenarioError, Who, as_text, items, unknown, write_items};
use super::link_model::LinkModel;
use super::outage::Outage;
use super::quantity::{Loss, Rate, Span, span};

const SETTING: &str = "link";

/// The links between the workers and the server.
///
/// Workers of a site share the link between its switch and the one at which the server is.
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
    /// Workers of a site; only for the links of sites.
    size: Option<NonZeroU32>,
}

/// A standby's setting that is not about its link, and where it is stored.
const REPLICATE: &str = "replicate";
const STANDBYS: (Who, Direction) = (Who::Standby, Direction::Up);

/// The number of workers of a site, and where it is stored.
const SIZE: &str = "size";
const SITES: (Who, Direction) = (Who::Site(None), Direction::Up);

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
    pub fn pipes(self, worker: WorkerId, stream: Stream) -> (LinkModel, LinkModel) {
        let (round_trip, number) = (self.round_trip(), u64::from(worker.0));
        let up = LinkModel::new(self.up, round_trip, stream.fork("link up", number));
        let down = LinkModel::new(self.down, round_trip, stream.fork("link down", number));
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
        if up.is_none() && down.is_none() && !self.has_sites() {
            return None;
        }
        Some(WorkerLink { up: up.unwrap_or_default(), down: down.unwrap_or_default() })
    }

    /// True if workers share links of their sites.
    #[must_use]
    pub fn has_sites(&self) -> bool {
        self.said.keys().any(|(who, _)| matches!(who, Who::Site(_)))
    }

    /// Returns the site of a worker, by its number from 0 on; `None` if there are no sites.
    #[must_use]
    pub fn site_of(&self, worker: WorkerId) -> Option<u32> {
        Some(worker.0 / self.said.get(&SITES)?.size?)
    }

    /// Returns the link between a site and the switch at which the server is.
    #[must_use]
    pub fn site(&self, site: u32) -> WorkerLink {
        let way = |direction| {
            self.merged(Who::Site(Some(site)), Who::Site(None), direction).unwrap_or_default()
        };
        WorkerLink { up: way(Direction::Up), down: way(Direction::Down) }
    }

    fn direction(&self, worker: WorkerId, direction: Direction) -> Option<LinkSpec> {
        self.merged(Who::Worker(worker), Who::All, direction)
    }

    /// One direction of a link, by what is said of it and of all like it; `None` without either.
    fn merged(&self, own: Who, all: Who, direction: Direction) -> Option<LinkSpec> {
        let own = self.said.get(&(own, direction));
        let all = self.said.get(&(all, direction));
        if own.is_none() && all.is_none() {
            return None;
        }
        // Its own settings come last and take precedence.
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
        self.check_sites(workers)?;
        for (&(who, direction), said) in &self.said {
            who.check(workers).map_err(|problem| {
                let item = said.items().into_iter().next().unwrap_or_default();
                ScenarioError::new(SETTING, format!("{who}.{direction}.{item}"), problem)
            })?;
        }
        Ok(())
    }

    fn check_sites(&self, workers: u32) -> Result<(), ScenarioError> {
        if !self.has_sites() {
            return Ok(());
        }
        let problem = |item: String, problem: &str| {
            Err(ScenarioError::new(SETTING, item, String::from(problem)))
        };
        let Some(size) = self.said.get(&SITES).and_then(|said| said.size) else {
            let why = "how many workers are a site? say it too, such as site.size=4";
            return problem("site".into(), why);
        };
        let sites = workers.div_ceil(size.get());
        let of_site = |(who, _): &(Who, Direction)| match who {
            Who::Site(Some(site)) => Some(*site),
            _ => None,
        };
        match self.said.keys().filter_map(of_site).find(|site| *site >= sites) {
            Some(site) => problem(
                format!("site{}", site + 1),
                &format!("the job has no such site; its sites are numbered 1 to {sites}"),
            ),
            None => Ok(()),
        }
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
        if key == SIZE && (who, direction.unwrap_or(Direction::Up)) != SITES {
            return Err(format!("{SIZE} is said of all sites: site.{SIZE}=4"));
        }
        if key == "slow-start" && matches!(who, Who::Site(_)) {
            return Err("a window is of a connection; say it of workers: all.slow-start=on".into());
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
            SIZE => {
                let size = value.parse();
                self.size = Some(size.map_err(|_not_a_number| {
                    format!("{value:?} is no number of workers; write 1 or more")
                })?);
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
        items.extend(self.size.map(|size| format!("{SIZE}={size}")));
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
mod tests;
