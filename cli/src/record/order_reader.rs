//! Reads the order.log that [`order`](super::order) describes.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pstrain_compute::id::{BatchId, Clock, Incarnation, PartId, Sequence, Version, WorkerId};
use pstrain_policy::mode::Mode;
use pstrain_policy::rules::Closing;
use serde::Serialize;

use super::initial::{self, Initial};
use super::lines::number;
use super::order::{FORMAT, FORMAT_VERSION, FULL_LINE, GRADIENT, Header};

/// A gradient of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Contribution {
    pub(crate) worker: WorkerId,
    pub(crate) incarnation: Incarnation,
    pub(crate) sequence: Sequence,
    /// The partition of the data; the worker's own if the record names none.
    pub(crate) part: PartId,
    pub(crate) batch: BatchId,
    /// The mini-batch's own size; 0 for the job's batch size.
    pub(crate) examples: u32,
    pub(crate) clock: Clock,
    pub(crate) base: Version,
    pub(crate) samples: u32,
}

/// The next step in an order of updates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// An update that made this version, and how its gradients were selected.
    Update(Version, Closing),
    /// A new mode for the updates that follow.
    Mode(Mode),
    /// The first version, a copy of the second.
    Restore(Version, Version),
    /// Initial parameters that do not come from the seed.
    Initial(Initial),
    /// The updates from the first to the second version are not in the record.
    Missing(Version, Version),
    /// The end of a record that was full before the run ended.
    Full,
    /// The end of the run.
    End,
    /// The end of a record that broke off.
    BrokeOff,
}

/// Reads an order of updates line by line.
#[derive(Debug)]
pub(crate) struct OrderReader<R> {
    path: PathBuf,
    file: R,
    line: Vec<u8>,
    number: u64,
    version: Version,
}

impl OrderReader<BufReader<File>> {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> anyhow::Result<(Header, Self)> {
        let file = File::open(path)
            .with_context(|| format!("cannot read the order of updates {}", path.display()))?;
        Self::new(path, BufReader::new(file))
    }
}

impl<R: BufRead> OrderReader<R> {
    fn new(path: &Path, file: R) -> anyhow::Result<(Header, Self)> {
        let path = path.to_owned();
        let mut reader = Self { path, file, line: Vec::new(), number: 0, version: Version(0) };
        let whole = reader.read_line()?;
        let header: Header = match serde_json::from_slice::<Header>(&reader.line) {
            Ok(header) if whole && header.format == FORMAT => header,
            _ => bail!(
                "{} is no order of updates: give the order.log of a results folder",
                reader.path.display()
            ),
        };
        if header.format_version != FORMAT_VERSION {
            bail!(
                "{} has format version {}, but this release reads {FORMAT_VERSION}; use the \
                 release that recorded it",
                reader.path.display(),
                header.format_version
            );
        }
        Ok((header, reader))
    }

    /// Reads the next line, without its line end; false if the line is incomplete.
    fn read_line(&mut self) -> anyhow::Result<bool> {
        self.line.clear();
        self.number += 1;
        self.file
            .read_until(b'\n', &mut self.line)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        let whole = self.line.last() == Some(&b'\n');
        if whole {
            self.line.pop();
        }
        Ok(whole)
    }

    /// Returns the next step; the gradients of an update replace those in `contributions`.
    pub(crate) fn next(&mut self, contributions: &mut Vec<Contribution>) -> anyhow::Result<Step> {
        if !self.read_line()? {
            return Ok(Step::BrokeOff);
        }
        let step = self.parse(contributions).map_err(|why| self.damaged(&why))?;
        if matches!(step, Step::End | Step::Full) && (self.read_line()? || !self.line.is_empty()) {
            return Err(self.damaged("the record continues after its end"));
        }
        Ok(step)
    }

    fn damaged(&self, why: &str) -> anyhow::Error {
        anyhow::anyhow!("{}:{}: {why}; the record is damaged", self.path.display(), self.number)
    }

    fn parse(&mut self, contributions: &mut Vec<Contribution>) -> Result<Step, String> {
        let line = str::from_utf8(&self.line).map_err(|_| "the line is no text".to_owned())?;
        if let Some(mode) = line.strip_prefix("mode ") {
            let mode = serde_json::from_str(mode).map_err(|why| format!("{mode:?}: {why}"))?;
            return Ok(Step::Mode(mode));
        }
        if let Some(versions) = line.strip_prefix("restore ") {
            let (version, from) = pair(versions)?;
            if version != self.version.next() || from >= version {
                return Err(format!("version {from} is restored after version {}", self.version));
            }
            self.version = version;
            return Ok(Step::Restore(version, from));
        }
        if let Some(words) = line.strip_prefix(initial::WORD) {
            if self.version != Version(0) {
                return Err(format!("initial parameters come after version {}", self.version));
            }
            return Ok(Step::Initial(initial::read(words)?));
        }
        if let Some(versions) = line.strip_prefix("missing ") {
            let (first, last) = pair(versions)?;
            if first != self.version.next() || last < first {
                return Err(format!(
                    "{first} to {last} are missing after version {}",
                    self.version
                ));
            }
            self.version = last;
            return Ok(Step::Missing(first, last));
        }
        if line == FULL_LINE.trim_end() {
            return Ok(Step::Full);
        }
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        if first == "end" {
            let last = Version(number(words.next().unwrap_or_default())?);
            return if last == self.version && words.next().is_none() {
                Ok(Step::End)
            } else {
                Err(format!("the end is said to be {line:?} after version {}", self.version))
            };
        }
        let version = Version(number(first)?);
        if version != self.version.next() {
            return Err(format!("version {version} follows version {}", self.version));
        }
        contributions.clear();
        let mut closing = Closing::Everything;
        for word in words {
            closing = match word {
                "oldest" => Closing::Oldest,
                "latest" => Closing::Latest,
                _ => closing,
            };
            if closing != Closing::Everything {
                break;
            }
            let contribution = contribution(word)?;
            if contribution.base >= version {
                return Err(format!(
                    "a gradient of version {version} was computed on version {}",
                    contribution.base
                ));
            }
            contributions.push(contribution);
        }
        if contributions.is_empty() {
            return Err(format!("version {version} is made of no gradients"));
        }
        self.version = version;
        Ok(Step::Update(version, closing))
    }
}

fn pair(versions: &str) -> Result<(Version, Version), String> {
    let (one, other) =
        versions.split_once(' ').ok_or_else(|| format!("{versions:?} is no pair of versions"))?;
    Ok((Version(number(one)?), Version(number(other)?)))
}

fn contribution(word: &str) -> Result<Contribution, String> {
    let fields: Vec<&str> = word.split(',').collect();
    let (ordinary, part) = fields.split_at(fields.len().min(7));
    let (&[worker, incarnation, sequence, batch, clock, base, samples], [] | [_] | [_, _]) =
        (ordinary, part)
    else {
        return Err(format!("{word:?} is not {GRADIENT}"));
    };
    let index = |text: &str| {
        let counted: u32 = number(text)?;
        counted.checked_sub(1).ok_or_else(|| "workers and partitions are counted from 1".to_owned())
    };
    let worker = WorkerId(index(worker)?);
    Ok(Contribution {
        worker,
        part: match part {
            [part] | [part, _] => PartId(index(part)?),
            _ => worker.into(),
        },
        incarnation: Incarnation(number(incarnation)?),
        sequence: Sequence(number(sequence)?),
        batch: BatchId(number(batch)?),
        examples: match part {
            [_, examples] => number(examples)?,
            _ => 0,
        },
        clock: Clock(number(clock)?),
        base: Version(number(base)?),
        samples: number(samples)?,
    })
}

#[cfg(test)]
mod tests {
    use pstrain_policy::consistency::ConsistencySpec;
    use pstrain_policy::rules::StalenessSpec;

    use super::*;

    fn steps(text: &str) -> anyhow::Result<Vec<(Step, usize)>> {
        const REST: &str = r#""data_sha256":"","parameters_sha256":"","source":"""#;
        let head = format!(
            r#"{{"format":"{FORMAT}","format_version":{FORMAT_VERSION},"job_sha256":"",{REST}}}"#
        );
        let text = format!("{head}\n{text}");
        let (_, mut reader) = OrderReader::new(Path::new("order.log"), text.as_bytes())?;
        let (mut steps, mut contributions) = (Vec::new(), Vec::new());
        loop {
            let step = reader.next(&mut contributions)?;
            let is_last = matches!(step, Step::End | Step::Full | Step::BrokeOff);
            steps.push((step, contributions.len()));
            if is_last {
                return Ok(steps);
            }
        }
    }

    #[test]
    fn updates_come_back_with_their_gradients() {
        let read = steps("1 1,1,1,0,0,0,64 2,1,1,0,0,0,32\n2 1,1,2,1,1,1,64\nend 2\n").unwrap();
        let update = |version| Step::Update(Version(version), Closing::Everything);
        assert_eq!(read, [(update(1), 2), (update(2), 1), (Step::End, 1)]);
        let read = steps("1 1,1,1,0,0,0,64 latest\n2 1,1,2,1,0,1,64 oldest\nend 2\n").unwrap();
        let update = |version, closing| Step::Update(Version(version), closing);
        assert_eq!(read[0], (update(1, Closing::Latest), 1));
        assert_eq!(read[1], (update(2, Closing::Oldest), 1));
        let read = contribution("2,3,4,5,6,7,8,1").unwrap();
        assert_eq!((read.part, read.examples), (PartId(0), 0));
        let read = contribution("2,3,4,5,6,7,8,2,16").unwrap();
        assert_eq!((read.part, read.samples, read.examples), (PartId(1), 8, 16));
        let read = contribution("2,3,4,5,6,7,8").unwrap();
        assert_eq!((read.worker, read.part), (WorkerId(1), PartId(1)));
        let Contribution { incarnation, sequence, batch, clock, base, samples, .. } = read;
        let numbers = [incarnation.0, sequence.0, batch.0, clock.0, base.0, u64::from(samples)];
        assert_eq!(numbers, [3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn a_mode_comes_back_to_the_bit() {
        let mode = Mode {
            consistency: ConsistencySpec::Delay { bound: None },
            staleness: StalenessSpec::Delay { lambda: 0.1 + 0.2 },
            max_staleness: Some(7),
            ..Mode::default()
        };
        let line = serde_json::to_string(&mode).unwrap();
        let read = steps(&format!("mode {line}\n1 1,1,1,0,0,0,64\nend 1\n")).unwrap();
        assert_eq!(read[0], (Step::Mode(mode), 0));
        assert_eq!(read[1], (Step::Update(Version(1), Closing::Everything), 1));
        let error = steps("mode asp\n").unwrap_err().to_string();
        assert!(error.contains("order.log:2: \"asp\""), "{error}");
    }

    #[test]
    fn a_restored_version_comes_back() {
        let first = "1 1,1,1,0,0,0,64\n2 1,1,2,1,1,1,64\n";
        let read = steps(&format!("{first}restore 3 1\n4 1,1,3,2,0,3,64\nend 4\n")).unwrap();
        assert_eq!(read[2], (Step::Restore(Version(3), Version(1)), 1));
        assert_eq!(read[3], (Step::Update(Version(4), Closing::Everything), 1));
        for damaged in ["restore 3 3", "restore 4 1", "restore 3", "restore 3 x"] {
            let error = steps(&format!("{first}{damaged}\n")).unwrap_err().to_string();
            assert!(error.contains("order.log:4"), "{error}");
        }
    }

    #[test]
    fn initial_parameters_come_back() {
        let first = "1 1,1,1,0,0,0,64\n";
        let read = steps(&format!("initial 3,0.5\n{first}end 1\n")).unwrap();
        assert!(matches!(read[0], (Step::Initial(_), 0)), "{read:?}");
        assert_eq!(read[1], (Step::Update(Version(1), Closing::Everything), 1));
        for (damaged, line) in [("initial 3\n".into(), 2), (format!("{first}initial 3,1\n"), 3)] {
            let error = steps(&damaged).unwrap_err().to_string();
            assert!(error.contains(&format!("order.log:{line}")), "{error}");
        }
    }

    #[test]
    fn what_is_missing_comes_back() {
        let read = steps("1 1,1,1,0,0,0,64\nmissing 2 4\n5 1,1,5,4,4,3,64\nend 5\n").unwrap();
        assert_eq!(read[1], (Step::Missing(Version(2), Version(4)), 1));
        assert_eq!(read[2], (Step::Update(Version(5), Closing::Everything), 1));
        for damaged in ["missing 1 4", "missing 3 4", "missing 2 1", "missing 2"] {
            let error = steps(&format!("1 1,1,1,0,0,0,64\n{damaged}\n")).unwrap_err().to_string();
            assert!(error.contains("order.log:3"), "{error}");
        }
    }

    #[test]
    fn a_full_record_is_known_as_such() {
        let read = steps("1 1,1,1,0,0,0,64\nfull\n").unwrap();
        assert_eq!(read, [(Step::Update(Version(1), Closing::Everything), 1), (Step::Full, 1)]);
    }

    #[test]
    fn nothing_follows_the_end() {
        for last in ["end 1\n", "full\n"] {
            for more in ["2 1,1,2,1,1,1,64\n", "end 1", "\n"] {
                let error = steps(&format!("1 1,1,1,0,0,0,64\n{last}{more}")).unwrap_err();
                let told = "order.log:4: the record continues after its end";
                assert!(error.to_string().contains(told), "{error}");
            }
        }
    }

    #[test]
    fn a_torn_tail_and_a_missing_end_are_known_as_such() {
        for torn in
            ["1 1,1,1,0,0,0,64\n2 1,1,2,1,1,1,6", "1 1,1,1,0,0,0,64\n", "1 1,1,1,0,0,0,64\nend"]
        {
            let read = steps(torn).unwrap();
            assert_eq!(
                read,
                [(Step::Update(Version(1), Closing::Everything), 1), (Step::BrokeOff, 1)],
                "{torn}"
            );
        }
    }

    #[test]
    fn damage_is_named_with_its_line() {
        for (text, words) in [
            ("1 1,1,1,0,0,0,64\n3 1,1,2,1,1,1,64\n", &["order.log:3", "version 3 follows"][..]),
            ("1 1,1,1,0,0,1,64\n", &["order.log:2", "computed on version 1"]),
            ("1\n", &["no gradients"]),
            ("1 0,1,1,0,0,0,64\n", &["counted from 1"]),
            ("1 1,1,1,0,0,0,64,0\n", &["counted from 1"]),
            ("1 1,1,1,0,0\n", &["worker,incarnation"]),
            ("1 1,1,1,0,0,x,64\n", &["\"x\""]),
            ("end 1\n", &["\"end 1\" after version 0"]),
            ("\u{0}\n", &["order.log:2", "damaged"]),
        ] {
            let error = steps(text).unwrap_err().to_string();
            for word in words {
                assert!(error.contains(word), "{text:?}: {error}");
            }
        }
        for other in ["", "{}\n", "version,samples\n"] {
            let error = OrderReader::new(Path::new("x"), other.as_bytes()).unwrap_err();
            assert!(error.to_string().contains("no order of updates"), "{error}");
        }
    }
}
