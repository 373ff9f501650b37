//! The setting `power`: what the machines of a run draw, to model its energy.
//!
//! A machine that is on for `t`, computes for `b` of that time, and sends and receives `n` bytes
//! takes
//!
//! ```text
//! idle * t + (busy - idle) * b + byte * n
//! ```
//!
//! joules: two states and traffic, the model behind the utilisation models of servers (Fan, Weber
//! and Barroso, "Power provisioning for a warehouse-sized computer", ISCA 2007).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use pstrain_compute::id::WorkerId;
use pstrain_compute::named;
use pstrain_compute::named::{NamedError, Word};

use super::item::{ScenarioError, Who, items, unknown, write_items};
use super::quantity::{PerByte, Watts};

const SETTING: &str = "power";
const KEYS: &[&str] = &["device", "idle", "busy", "byte"];

/// The power of each machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PowerModel {
    said: BTreeMap<Who, Said>,
}

/// The power of one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Power {
    /// In watts, while it computes nothing.
    pub idle: f64,
    /// In watts, while it computes a mini-batch.
    pub busy: f64,
    /// In joules, of a byte that it sends or receives.
    pub byte: f64,
}

/// A device whose power is published.
///
/// No source tells the energy of a byte: with these, `byte` is 0 unless it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Measured at 5 V: idle 540 mA, `stress --cpu 4` 1280 mA (J. Geerling, "Power consumption
    /// benchmarks", pidramble.com).
    RaspberryPi4,
    /// Measured at the wall: idle 3.1 W, `stress-ng --matrix 0` 5.6 W (J. Geerling, sbc-reviews,
    /// issue 16).
    RaspberryPi3BPlus,
    /// Declared by the maker: idle 6.8 W, at most 39 W ("Mac mini power consumption and thermal
    /// output", support.apple.com).
    MacMiniM1,
    /// Measured at the wall, with its display: idle 3 to 8 W, working 8 to 25 W; the highest figure
    /// of each (a MacBook Air of 2018; Reduction Revolution, "Laptop power consumption").
    Laptop,
    /// Declared, for one virtual core of a cloud server: the averages at 0 and at 100 % load that
    /// Cloud Carbon Footprint derives for AWS from SPECpower results (its methodology, appendix I).
    CloudVcpu,
}

named!(Device: "device", ',' {
    RaspberryPi4 = Word::new("raspberry-pi-4", &[], "idle 2.7 W, busy 6.4 W, measured"),
    RaspberryPi3BPlus = Word::new("raspberry-pi-3b-plus", &[], "idle 3.1 W, busy 5.6 W, measured"),
    MacMiniM1 = Word::new("mac-mini-m1", &[], "idle 6.8 W, busy 39 W, declared by the maker"),
    Laptop = Word::new("laptop", &[],
        "idle 8 W, busy 25 W, measured: a MacBook Air of 2018 with its display"),
    CloudVcpu = Word::new("cloud-vcpu", &[],
        "idle 0.74 W, busy 3.5 W, declared: a virtual core of AWS by Cloud Carbon Footprint"),
});

impl Device {
    /// Idle and busy.
    fn power(self) -> (Watts, Watts) {
        let (idle, busy) = match self {
            Self::RaspberryPi4 => (2_700_000, 6_400_000),
            Self::RaspberryPi3BPlus => (3_100_000, 5_600_000),
            Self::MacMiniM1 => (6_800_000, 39_000_000),
            Self::Laptop => (8_000_000, 25_000_000),
            Self::CloudVcpu => (740_000, 3_500_000),
        };
        (Watts::from_microwatts(idle), Watts::from_microwatts(busy))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Said {
    device: Option<Device>,
    idle: Option<Watts>,
    busy: Option<Watts>,
    byte: Option<PerByte>,
}

impl Said {
    /// The machine's own idle power, or else its device's.
    fn idle(&self) -> Option<Watts> {
        self.idle.or_else(|| self.device.map(|device| device.power().0))
    }

    fn busy(&self) -> Option<Watts> {
        self.busy.or_else(|| self.device.map(|device| device.power().1))
    }

    fn items(&self) -> Vec<String> {
        let device = self.device.map(|device| format!("device={device}"));
        let idle = self.idle.map(|idle| format!("idle={idle}"));
        let busy = self.busy.map(|busy| format!("busy={busy}"));
        let byte = self.byte.map(|byte| format!("byte={byte}"));
        [device, idle, busy, byte].into_iter().flatten().collect()
    }
}

impl Power {
    /// The energy in joules of a machine that is on for `on_s` seconds, computes for `busy_s` of
    /// them, and sends and receives so many bytes.
    #[must_use]
    pub fn energy(&self, on_s: f64, busy_s: f64, bytes: u64) -> Energy {
        Energy {
            idle: self.idle * on_s,
            // A machine cannot compute for longer than it is on: the rest came after the end.
            computing: (self.busy - self.idle) * busy_s.min(on_s),
            bytes: self.byte * bytes as f64,
        }
    }
}

/// The energy of one machine, in joules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Energy {
    /// The energy that it takes because it is on.
    pub idle: f64,
    /// The energy that computing adds.
    pub computing: f64,
    /// The energy that sending and receiving adds.
    pub bytes: f64,
}

impl Energy {
    /// The sum, in joules.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.idle + self.computing + self.bytes
    }
}

impl PowerModel {
    /// True if no power is modelled.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.said.is_empty()
    }

    /// The power of a worker's machine; `None` if it is not said.
    #[must_use]
    pub fn worker(&self, worker: WorkerId) -> Option<Power> {
        self.of(Who::Worker(worker)).ok()
    }

    /// The power of a server's machine, or of the meeting point's; `None` if it is not said.
    #[must_use]
    pub fn server(&self) -> Option<Power> {
        self.of(Who::Server).ok()
    }

    /// The power of a standby's machine, or else of a server's; `None` if neither is said.
    #[must_use]
    pub fn standby(&self) -> Option<Power> {
        let who = if self.said.contains_key(&Who::Standby) { Who::Standby } else { Who::Server };
        self.of(who).ok()
    }

    /// Rejects items about workers that the job does not have, and machines about which not all is
    /// said.
    ///
    /// # Errors
    /// [`ScenarioError`] names the machine and what to add.
    pub fn check(&self, workers: u32) -> Result<(), ScenarioError> {
        if self.is_none() {
            return Ok(());
        }
        let error = |who: Who, why| ScenarioError::new(SETTING, who, why);
        for who in self.said.keys() {
            who.check(workers).map_err(|why| error(*who, why))?;
        }
        let workers = (0..workers).map(|worker| Who::Worker(WorkerId(worker)));
        let standby = self.said.contains_key(&Who::Standby).then_some(Who::Standby);
        for who in workers.chain([Who::Server]).chain(standby) {
            self.of(who).map_err(|why| error(who, why))?;
        }
        Ok(())
    }

    /// The power of a machine: what is said of it counts before what is said of all.
    fn of(&self, who: Who) -> Result<Power, String> {
        let said = [self.said.get(&who), self.said.get(&Who::All)];
        let said = || said.into_iter().flatten();
        let (idle, busy) = (said().find_map(Said::idle), said().find_map(Said::busy));
        let (Some(idle), Some(busy)) = (idle, busy) else {
            let shared = match who {
                Who::Server => {
                    ", or server.idle=0W server.busy=0W if its machine is one of the workers'"
                }
                _ => "",
            };
            return Err(format!(
                "it is not said what it draws; add {who}.device=raspberry-pi-4 or the like, or \
                 {who}.idle=2.7W and {who}.busy=6.4W{shared}"
            ));
        };
        if busy < idle {
            return Err(format!(
                "busy={busy} is less than idle={idle}; busy is the power of the whole machine \
                 while it computes"
            ));
        }
        let byte = said().find_map(|said| said.byte).unwrap_or_default();
        Ok(Power { idle: idle.watts(), busy: busy.watts(), byte: byte.joules() })
    }

    fn take(&mut self, item: &str) -> Result<(), String> {
        let (who, key, value) = match item.split_once('=') {
            None => (Who::All, "device", item),
            Some((path, value)) => match path.split_once('.') {
                None => (Who::All, path, value),
                Some((who, key)) => (Who::read(who)?, key, value),
            },
        };
        if matches!(who, Who::Site(_)) {
            return Err("a site is no machine; say it of a worker, the server or all".into());
        }
        let mut said = self.said.get(&who).copied().unwrap_or_default();
        match key {
            "device" => {
                said.device = Some(value.parse().map_err(|error: NamedError| error.to_string())?);
            }
            "idle" => said.idle = Some(value.parse()?),
            "busy" => said.busy = Some(value.parse()?),
            "byte" => said.byte = Some(value.parse()?),
            _ => return Err(unknown("key of a machine's power", key, KEYS)),
        }
        self.said.insert(who, said);
        Ok(())
    }
}

impl FromStr for PowerModel {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        let mut model = Self::default();
        for item in items(SETTING, text)? {
            model.take(item).map_err(|problem| ScenarioError::new(SETTING, item, problem))?;
        }
        Ok(model)
    }
}

impl fmt::Display for PowerModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = self.said.iter().flat_map(|(who, said)| {
            said.items().into_iter().map(move |item| format!("{who}.{item}"))
        });
        write_items(f, items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(text: &str) -> PowerModel {
        text.parse().unwrap()
    }

    const fn power(idle: f64, busy: f64, byte: f64) -> Option<Power> {
        Some(Power { idle, busy, byte })
    }

    #[test]
    fn a_machines_own_items_come_before_those_of_all() {
        let model = model("raspberry-pi-4 byte=20nJ 2.busy=9W 3.device=laptop server.idle=0W");
        assert_eq!(model.worker(WorkerId(0)), power(2.7, 6.4, 2e-8));
        assert_eq!(model.worker(WorkerId(1)), power(2.7, 9.0, 2e-8));
        assert_eq!(model.worker(WorkerId(2)), power(8.0, 25.0, 2e-8));
        assert_eq!(model.server(), power(0.0, 6.4, 2e-8));
        assert_eq!(model.standby(), model.server());
        let printed = "all.device=raspberry-pi-4 all.byte=20nJ server.idle=0W 2.busy=9W \
                       3.device=laptop";
        assert_eq!(model.to_string(), printed);
        assert_eq!(printed.parse(), Ok(model));
        assert!(PowerModel::default().is_none());
        assert_eq!("none".parse(), Ok(PowerModel::default()));
    }

    #[test]
    fn every_device_draws_more_while_it_computes() {
        for word in <Device as named::Named>::FAMILY.words {
            let model = model(word.name);
            model.check(1).unwrap();
            let Power { idle, busy, byte } = model.server().unwrap();
            assert!(0.0 < idle && idle < busy && byte == 0.0, "{}", word.name);
            let told = format!("idle {idle} W, busy {busy} W, ");
            assert!(word.about.starts_with(&told), "{told}: {}", word.about);
        }
    }

    #[test]
    fn energy_is_of_being_on_of_computing_and_of_bytes() {
        let power = Power { idle: 2.0, busy: 5.0, byte: 0.25 };
        let energy = power.energy(10.0, 4.0, 8);
        assert_eq!(energy, Energy { idle: 20.0, computing: 12.0, bytes: 2.0 });
        assert_eq!(energy.total(), 34.0);
        let all_the_time = power.energy(10.0, 11.0, 0);
        assert_eq!(all_the_time.total(), 50.0);
    }

    #[test]
    fn a_model_that_says_too_little_is_refused_with_its_cure() {
        for (text, told) in [
            ("idle=1W", "power: 1: it is not said what it draws; add 1.device=raspberry-pi-4"),
            ("1.device=laptop 2.device=laptop", "or server.idle=0W server.busy=0W if its machine"),
            ("idle=3W busy=2W", "power: 1: busy=2W is less than idle=3W"),
            ("laptop 3.idle=1W", "power: 3: the job has no such worker"),
            ("laptop standby.idle=30W", "power: standby: busy=25W is less than idle=30W"),
        ] {
            let error = model(text).check(2).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        for (text, told) in [
            ("raspberry", "power: raspberry: \"raspberry\" is no device: use raspberry-pi-4,"),
            ("idle=3", "\"3\" is no power; write one such as 2.7W, 500mW or 1kW"),
            ("byte=20", "\"20\" is no energy of a byte; write one such as 20nJ, 3.6uJ or 500pJ"),
            ("site.idle=3W", "a site is no machine"),
            ("idel=3W", "did you mean idle?"),
            ("x.idle=3W", "\"x\" is no worker"),
            ("laptop none", "it stands alone"),
        ] {
            let error = text.parse::<PowerModel>().unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
