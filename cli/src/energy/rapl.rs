//! Energy that the machine of this process measures: the counters of RAPL in Linux's powercap.
//!
//! `intel-rapl:0/` is a package, and `intel-rapl:0:1/` a domain in it; AMD's processors have the
//! same names. `energy_uj` counts microjoules up to `max_energy_range_uj` and begins at 0 again, at
//! 100 W after 44 minutes on many machines: the counters are read at least every [`EVERY`].
//! Packages count, and their memory (`dram`), which is no part of them. Cores and graphics are a
//! part of their package, and `psys` and `intel-rapl-mmio` count packages once more.
//!
//! Only root reads the counters, since they tell of other processes' data (Lipp et al.,
//! "PLATYPUS: Software-based power side-channel attacks on x86", IEEE S&P 2021; CVE-2020-8694), and
//! most virtual machines and containers have none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use pstrain_compute::time::Time;
use pstrain_transports::WallClock;
use serde::Serialize;

use super::joules;

/// The folder of the counters, unless the environment names another.
const FOLDER: &str = "/sys/class/powercap";
/// Names another folder: the host's in a container, say.
const VARIABLE: &str = "PSTRAIN_POWERCAP";
/// The names of folders of packages and of domains in them begin so.
const PREFIX: &str = "intel-rapl:";
/// The longest time between two readings.
const EVERY: Duration = Duration::from_secs(30);

/// The energy that the machine of a process has measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Measured {
    /// The name of the machine.
    pub(crate) machine: String,
    /// Equal for all processes of a machine since its start: each of them measures the whole
    /// machine, which counts once.
    pub(crate) boot: String,
    /// For how long it was measured: from the start of training, or else of the process, to the end
    /// of the run.
    pub(crate) seconds: f64,
    /// Energy of the machine in joules: processors and memory, whatever they were busy with.
    pub(crate) joules: f64,
    /// The same by domain: `package-0` is a processor, `package-0-dram` its memory.
    pub(crate) domains: BTreeMap<String, f64>,
    /// Energy in joules for each example of the applied gradients; of a process that applies none,
    /// nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) joules_per_sample: Option<f64>,
    /// Energy in joules until the evaluation that reached the target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) joules_to_target: Option<f64>,
    /// Grams of carbon dioxide, or of what warms as much, if the job has a carbon intensity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) carbon_g: Option<f64>,
}

impl Measured {
    /// Formats the energy of the machine and of its domains.
    pub(crate) fn in_words(&self) -> String {
        let domains = self.domains.iter().map(|(name, used)| format!("{name} {}", joules(*used)));
        let domains: Vec<String> = domains.collect();
        format!("{} measured on {}: {}", joules(self.joules), self.machine, domains.join(", "))
    }
}

/// A counter of energy.
#[derive(Debug)]
struct Domain {
    name: String,
    file: PathBuf,
    /// The largest value that it shows.
    range: u64,
    last: u64,
    /// Microjoules since it was first read.
    used: u64,
}

impl Domain {
    fn new(name: String, folder: &Path) -> Result<Self, String> {
        let range = number(&folder.join("max_energy_range_uj"))?;
        let file = folder.join("energy_uj");
        let last = number(&file)?;
        Ok(Self { name, file, range, last, used: 0 })
    }

    fn poll(&mut self) -> Result<(), String> {
        let now = number(&self.file)?;
        self.used += match now.checked_sub(self.last) {
            Some(more) => more,
            // The counter has begun at 0 again.
            None => now + self.range.saturating_sub(self.last) + 1,
        };
        self.last = now;
        Ok(())
    }
}

fn text(file: &Path) -> Result<String, String> {
    let text = fs::read_to_string(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

fn number(file: &Path) -> Result<u64, String> {
    let text = text(file)?;
    text.parse().map_err(|_no_number| format!("{}: {text:?} is no number", file.display()))
}

/// The counters in `folder` of the packages and their memory.
fn domains(folder: &Path) -> Result<Vec<Domain>, String> {
    let entries = fs::read_dir(folder)
        .map_err(|error| format!("cannot read {}: {error}", folder.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| name.starts_with(PREFIX)).collect();
    names.sort_unstable();
    let mut domains = Vec::new();
    for entry in names {
        let place = folder.join(&entry);
        let name = text(&place.join("name"))?;
        if name.starts_with("package-") {
            domains.push(Domain::new(name, &place)?);
        } else if name == "dram"
            && let Some((package, _)) = entry.rsplit_once(':')
        {
            let package = text(&folder.join(package).join("name"))?;
            domains.push(Domain::new(format!("{package}-dram"), &place)?);
        }
    }
    if domains.is_empty() {
        return Err(format!("{} has no {PREFIX}*: this machine has no RAPL", folder.display()));
    }
    Ok(domains)
}

/// The counters at a moment.
#[derive(Clone, Debug)]
struct Mark {
    at: Time,
    /// Microjoules of each domain since the first reading.
    used: Vec<u64>,
}

#[derive(Debug)]
struct Readings {
    clock: WallClock,
    domains: Vec<Domain>,
    /// None before training: the first reading counts.
    begun: Option<Mark>,
    reached: Option<Mark>,
    ended: Option<Mark>,
    /// Why the counters could not be read any more.
    broken: Option<String>,
}

impl Readings {
    fn now(&mut self) -> Mark {
        let read = self.domains.iter_mut().try_for_each(Domain::poll);
        self.broken = self.broken.take().or_else(|| read.err());
        let used = self.domains.iter().map(|domain| domain.used).collect();
        Mark { at: self.clock.now(), used }
    }
}

/// Reads the counters from its creation on, until all its clones are dropped.
#[derive(Clone, Debug)]
pub(crate) struct Meter(Arc<Mutex<Readings>>);

impl Meter {
    /// Begins to measure this machine.
    ///
    /// # Errors
    /// Why nothing can be measured here.
    pub(crate) fn here() -> Result<Self, String> {
        let folder = std::env::var_os(VARIABLE).map_or_else(|| FOLDER.into(), PathBuf::from);
        Self::of(&folder)
    }

    fn of(folder: &Path) -> Result<Self, String> {
        let (clock, domains) = (WallClock::start(), domains(folder)?);
        let (begun, reached, ended, broken) = (None, None, None, None);
        let readings = Readings { clock, domains, begun, reached, ended, broken };
        let readings = Arc::new(Mutex::new(readings));
        let weak = Arc::downgrade(&readings);
        std::thread::spawn(move || keep_reading(&weak));
        Ok(Self(readings))
    }

    fn with<T>(&self, then: impl FnOnce(&mut Readings) -> T) -> T {
        then(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Training begins now. Only the first call counts.
    pub(crate) fn begin(&self) {
        self.with(|readings| {
            if readings.begun.is_none() {
                readings.begun = Some(readings.now());
            }
        });
    }

    /// The target is reached now. Only the first call counts.
    pub(crate) fn reach(&self) {
        self.with(|readings| {
            if readings.reached.is_none() {
                readings.reached = Some(readings.now());
            }
        });
    }

    /// The run ends now.
    pub(crate) fn end(&self) {
        self.with(|readings| readings.ended = Some(readings.now()));
    }

    /// The energy from the beginning to the end, or until now.
    ///
    /// # Errors
    /// Why the counters could not be read all the time.
    pub(crate) fn measured(&self) -> Result<Measured, String> {
        self.with(|readings| {
            let end = readings.ended.clone().unwrap_or_else(|| readings.now());
            if let Some(why) = &readings.broken {
                return Err(why.clone());
            }
            let begin = readings
                .begun
                .clone()
                .unwrap_or_else(|| Mark { at: Time::ZERO, used: vec![0; readings.domains.len()] });
            let since = |mark: &Mark| -> Vec<f64> {
                let pairs = mark.used.iter().zip(&begin.used);
                pairs.map(|(now, then)| now.saturating_sub(*then) as f64 / 1e6).collect()
            };
            let used = since(&end);
            let names = readings.domains.iter().map(|domain| domain.name.clone());
            Ok(Measured {
                machine: kernel("hostname"),
                boot: kernel("random/boot_id"),
                seconds: end.at.since(begin.at).as_secs_f64(),
                joules: used.iter().sum(),
                domains: names.zip(used).collect(),
                joules_per_sample: None,
                joules_to_target: readings.reached.as_ref().map(|mark| since(mark).iter().sum()),
                carbon_g: None,
            })
        })
    }
}

/// A text of the kernel about this machine; empty if there is none.
fn kernel(name: &str) -> String {
    text(&Path::new("/proc/sys/kernel").join(name)).unwrap_or_default()
}

/// Reads the counters often enough that none comes round unseen.
fn keep_reading(readings: &Weak<Mutex<Readings>>) {
    while let Some(readings) = readings.upgrade() {
        drop(Meter(readings).with(Readings::now));
        std::thread::sleep(EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these domains: name of the folder, of the domain, and its counter.
    fn folder(domains: &[(&str, &str, u64)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (entry, name, energy) in domains {
            fs::create_dir(folder.path().join(entry)).unwrap();
            let write = |file: &str, text: &str| {
                fs::write(folder.path().join(entry).join(file), format!("{text}\n")).unwrap();
            };
            write("name", name);
            write("max_energy_range_uj", "999999");
            write("energy_uj", &energy.to_string());
        }
        folder
    }

    fn set(folder: &tempfile::TempDir, entry: &str, energy: u64) {
        let file = folder.path().join(entry).join("energy_uj");
        // A meter reads at the same time: it sees the old counter or the new one.
        let new = file.with_extension("new");
        fs::write(&new, format!("{energy}\n")).unwrap();
        fs::rename(new, file).unwrap();
    }

    const MACHINE: [(&str, &str, u64); 8] = [
        ("intel-rapl", "control type", 0),
        ("intel-rapl:0", "package-0", 100_000),
        ("intel-rapl:0:0", "core", 50_000),
        ("intel-rapl:0:1", "dram", 10_000),
        ("intel-rapl:1", "package-1", 0),
        ("intel-rapl:2", "psys", 7),
        ("intel-rapl-mmio:0", "package-0", 100_000),
        ("dtpm", "dtpm", 0),
    ];

    #[test]
    fn packages_and_their_memory_count_and_nothing_that_is_part_of_them() {
        let folder = folder(&MACHINE);
        let meter = Meter::of(folder.path()).unwrap();
        meter.begin();
        for (entry, energy) in [
            ("intel-rapl:0", 350_000),
            ("intel-rapl:0:0", 250_000),
            ("intel-rapl:0:1", 35_000),
            ("intel-rapl:1", 500_000),
            ("intel-rapl:2", 900_000),
            ("intel-rapl-mmio:0", 350_000),
        ] {
            set(&folder, entry, energy);
        }
        meter.reach();
        set(&folder, "intel-rapl:1", 600_000);
        meter.reach();
        meter.end();
        set(&folder, "intel-rapl:1", 700_000);
        let measured = meter.measured().unwrap();
        let domains: Vec<_> =
            measured.domains.iter().map(|(name, used)| (name.as_str(), *used)).collect();
        let wanted = [("package-0", 0.25), ("package-0-dram", 0.025), ("package-1", 0.6)];
        assert_eq!(domains, wanted);
        assert!((measured.joules - 0.875).abs() < 1e-12, "{measured:?}");
        let to_target = measured.joules_to_target.unwrap();
        assert!((to_target - 0.775).abs() < 1e-12, "{measured:?}");
        let words = measured.in_words();
        assert!(words.starts_with("875 mJ measured on "), "{words}");
        assert!(words.ends_with(": package-0 250 mJ, package-0-dram 25.0 mJ, package-1 600 mJ"));
    }

    #[test]
    fn a_counter_that_begins_again_at_its_range_loses_nothing() {
        let folder = folder(&[("intel-rapl:0", "package-0", 999_990)]);
        let meter = Meter::of(folder.path()).unwrap();
        // 999,990 to 999,999, then 0 to 20: ten steps and twenty.
        set(&folder, "intel-rapl:0", 20);
        assert!((meter.measured().unwrap().joules - 30e-6).abs() < 1e-15);
        set(&folder, "intel-rapl:0", 10);
        let whole_turns = meter.measured().unwrap().joules;
        assert!((whole_turns - (30e-6 + 999_990e-6)).abs() < 1e-12, "{whole_turns}");
    }

    #[test]
    fn what_cannot_be_read_is_no_measurement_and_says_why() {
        let nowhere = tempfile::tempdir().unwrap();
        let why = Meter::of(nowhere.path()).unwrap_err();
        assert!(why.ends_with("has no intel-rapl:*: this machine has no RAPL"), "{why}");
        let why = Meter::of(&nowhere.path().join("none")).unwrap_err();
        assert!(why.starts_with("cannot read "), "{why}");
        let folder = folder(&MACHINE);
        let file = folder.path().join("intel-rapl:0:1/max_energy_range_uj");
        fs::write(&file, "much").unwrap();
        let why = Meter::of(folder.path()).unwrap_err();
        assert!(why.ends_with("max_energy_range_uj: \"much\" is no number"), "{why}");
        fs::write(&file, "999999").unwrap();
        let meter = Meter::of(folder.path()).unwrap();
        fs::remove_file(folder.path().join("intel-rapl:1/energy_uj")).unwrap();
        meter.end();
        assert!(meter.measured().unwrap_err().contains("intel-rapl:1/energy_uj"));
    }
}
