//! The energy of a run, modelled and measured, and the carbon that it stands for.
//!
//! Modelled energy comes from a power model of the job ([`PowerModel`]), and from times and bytes
//! that every run has, in real or virtual time. Measured energy comes from counters ([`Meter`]),
//! where this machine has them and lets them be read. Both say what they are.

mod rapl;

use anyhow::bail;
use pstrain_compute::id::WorkerId;
use pstrain_transports::scenario::{Energy, Power, PowerModel};
use serde::Serialize;

pub(crate) use rapl::{Measured, Meter};

/// Joules of a kilowatt-hour.
const KWH: f64 = 3.6e6;

/// The settings of a job about its energy.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct EnergySpec {
    /// The power of the machines; nothing is modelled without one.
    pub(crate) power: PowerModel,
    pub(crate) carbon: Option<Carbon>,
}

/// The factors from energy to carbon.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Carbon {
    /// Carbon intensity of the electricity: grams of carbon dioxide, or of what warms as much, of a
    /// kilowatt-hour.
    pub(crate) grams_per_kwh: f64,
    /// Power usage effectiveness: energy of the building by energy of its computers, if it is
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pue: Option<f64>,
}

impl Carbon {
    fn grams(self, joules: f64) -> f64 {
        joules / KWH * self.pue.unwrap_or(1.0) * self.grams_per_kwh
    }

    /// Formats the factors.
    fn in_words(self) -> String {
        let pue = self.pue.map(|pue| format!(", PUE {pue}")).unwrap_or_default();
        format!("{} g/kWh{pue}", self.grams_per_kwh)
    }
}

/// Times and bytes of a run up to a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Training time in seconds: all machines are on.
    pub(crate) on_s: f64,
    /// The workers, by id.
    pub(crate) workers: Vec<Work>,
    /// Number of machines with a server, or with the meeting point.
    pub(crate) servers: u32,
    /// Bytes that all of them sent and received.
    pub(crate) server_bytes: u64,
    /// Bytes that a standby sent and received, if there is one.
    pub(crate) standby: Option<u64>,
}

/// The work of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Time in which it computed gradients, in seconds.
    pub(crate) busy_s: f64,
    /// Bytes that it sent and received.
    pub(crate) bytes: u64,
}

/// The energy of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct EnergyReport {
    /// Energy by the power model of the job (`power`): an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) modelled: Option<Modelled>,
    /// Energy that the machine of this process has measured (RAPL). Other machines are not
    /// included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) measured: Option<Measured>,
    /// The factors of `carbon_g`: `joules / 3.6e6 * pue * grams_per_kwh`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) carbon: Option<Carbon>,
}

/// Energy by a power model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Modelled {
    /// The power model, as items of `power`.
    pub(crate) power: String,
    /// Energy of all machines during training, in joules.
    pub(crate) joules: f64,
    /// Energy in joules for each example of the applied gradients.
    pub(crate) joules_per_sample: Option<f64>,
    /// Energy in joules until the update that reached the target; null with several servers or a
    /// standby, whose bytes until then are unknown, unless bytes take no energy.
    pub(crate) joules_to_target: Option<f64>,
    /// Grams of carbon dioxide, or of what warms as much, if the job has a carbon intensity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) carbon_g: Option<f64>,
    /// The machines of the workers, by id.
    pub(crate) workers: Vec<MachineEnergy>,
    /// The machines of all servers together, or of the meeting point.
    pub(crate) servers: MachineEnergy,
    /// The machine of a standby, which virtual time may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) standby: Option<MachineEnergy>,
}

/// Modelled energy of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct MachineEnergy {
    /// The sum in joules.
    pub(crate) joules: f64,
    /// The idle power over the whole training time.
    pub(crate) idle_joules: f64,
    /// The energy that computing gradients adds.
    pub(crate) compute_joules: f64,
    /// The energy that sending and receiving adds.
    pub(crate) bytes_joules: f64,
}

impl From<Energy> for MachineEnergy {
    fn from(energy: Energy) -> Self {
        Self {
            joules: energy.total(),
            idle_joules: energy.idle,
            compute_joules: energy.computing,
            bytes_joules: energy.bytes,
        }
    }
}

impl Modelled {
    /// The energy of a run with this use of its machines; `None` without a power model.
    fn of(power: &PowerModel, usage: &Usage) -> Option<Self> {
        let server = power.server()?;
        let worker = |(id, work): (WorkerId, &Work)| {
            Some(power.worker(id)?.energy(usage.on_s, work.busy_s, work.bytes).into())
        };
        let workers: Option<Vec<MachineEnergy>> =
            (0..).map(WorkerId).zip(&usage.workers).map(worker).collect();
        let workers = workers?;
        // The bytes of all servers are known in sum. Servers compute nothing in the model.
        let all = Power { idle: server.idle * f64::from(usage.servers), ..server };
        let servers = MachineEnergy::from(all.energy(usage.on_s, 0.0, usage.server_bytes));
        let standby = usage.standby.and_then(|bytes| {
            Some(MachineEnergy::from(power.standby()?.energy(usage.on_s, 0.0, bytes)))
        });
        let machines = workers.iter().chain([&servers]).chain(&standby);
        Some(Self {
            power: power.to_string(),
            joules: machines.map(|machine| machine.joules).sum(),
            joules_per_sample: None,
            joules_to_target: None,
            carbon_g: None,
            workers,
            servers,
            standby,
        })
    }
}

impl EnergySpec {
    /// The energy of a run of so many accepted `samples`, from the use of its machines, and from
    /// their use until the `target`, if it was reached and that is known. `None` if nothing is
    /// modelled or measured.
    pub(crate) fn report(
        &self,
        usage: &Usage,
        target: Option<&Usage>,
        samples: u64,
        measured: Option<Measured>,
    ) -> Option<EnergyReport> {
        let carbon_g = |joules: f64| self.carbon.map(|carbon| carbon.grams(joules));
        let per_sample = |joules: f64| (samples > 0).then(|| joules / samples as f64);
        let modelled = Modelled::of(&self.power, usage).map(|modelled| Modelled {
            joules_per_sample: per_sample(modelled.joules),
            joules_to_target: target
                .and_then(|usage| Modelled::of(&self.power, usage))
                .map(|until| until.joules),
            carbon_g: carbon_g(modelled.joules),
            ..modelled
        });
        let measured = measured.map(|measured| Measured {
            joules_per_sample: per_sample(measured.joules),
            carbon_g: carbon_g(measured.joules),
            ..measured
        });
        (modelled.is_some() || measured.is_some()).then_some(EnergyReport {
            modelled,
            measured,
            carbon: self.carbon,
        })
    }

    /// Measures the energy of this machine, if it can.
    ///
    /// # Errors
    /// If there is a carbon intensity, and no energy that it is of.
    pub(crate) fn meter(&self) -> anyhow::Result<Option<Meter>> {
        match (Meter::here(), self.carbon) {
            (Ok(meter), _) => Ok(Some(meter)),
            (Err(why), Some(carbon)) if self.power.is_none() => bail!(
                "carbon-intensity = {}: this machine's energy cannot be measured: {why}; run as \
                 root where it has counters, or say what machines draw with --power \
                 raspberry-pi-4 or the like",
                carbon.grams_per_kwh
            ),
            (Err(_), _) => Ok(None),
        }
    }

    /// True if bytes take energy on any machine of a job with so many workers.
    pub(crate) fn counts_bytes(&self, workers: u32) -> bool {
        let workers = (0..workers).map(|worker| self.power.worker(WorkerId(worker)));
        let all = workers.chain([self.power.server(), self.power.standby()]);
        all.flatten().any(|power| power.byte > 0.0)
    }
}

impl EnergyReport {
    /// Formats the report as facts.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let each = |per_sample: Option<f64>, to_target: Option<f64>| {
            let per_sample = per_sample.map(|it| format!("; {} a sample", joules(it)));
            let to_target = to_target.map(|it| format!("; {} to the target", joules(it)));
            per_sample.unwrap_or_default() + &to_target.unwrap_or_default()
        };
        let modelled = self.modelled.as_ref().map(|it| {
            let workers: f64 = it.workers.iter().map(|machine| machine.joules).sum();
            let standby = it.standby.map(|it| format!(", standby {}", joules(it.joules)));
            format!(
                "{} modelled: workers {}, server {}{}{} (power {})",
                joules(it.joules),
                joules(workers),
                joules(it.servers.joules),
                standby.unwrap_or_default(),
                each(it.joules_per_sample, it.joules_to_target),
                it.power
            )
        });
        let measured = self
            .measured
            .as_ref()
            .map(|it| it.in_words() + &each(it.joules_per_sample, it.joules_to_target));
        let modelled_g = self.modelled.as_ref().and_then(|it| it.carbon_g);
        let measured_g = self.measured.as_ref().and_then(|it| it.carbon_g);
        let grams = [(modelled_g, "modelled"), (measured_g, "measured")];
        let grams = grams.into_iter().filter_map(|(it, how)| Some((it?, how)));
        let grams: Vec<String> =
            grams.map(|(it, how)| format!("{} {how}", amount(it, "g"))).collect();
        let carbon = self.carbon.filter(|_| !grams.is_empty());
        let carbon = carbon.map(|it| format!("{} at {}", grams.join(", "), it.in_words()));
        let energy = modelled.into_iter().chain(measured).map(|it| ("energy", it));
        energy.chain(carbon.map(|it| ("carbon", it))).collect()
    }
}

/// Formats an energy in joules.
pub(crate) fn joules(joules: f64) -> String {
    amount(joules, "J")
}

/// Formats an amount with three digits and a prefix of its size.
fn amount(value: f64, unit: &str) -> String {
    const PREFIXES: [(f64, &str); 6] =
        [(1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")];
    if value == 0.0 {
        return format!("0 {unit}");
    }
    // A number that is rounded up to 1,000 has the next prefix.
    let fits = PREFIXES.iter().find(|(size, _)| value.abs() >= size * 0.9995);
    let (size, prefix) = *fits.unwrap_or(&(1e-9, "n"));
    let number = value / size;
    let digits = match number.abs() {
        number if number >= 99.95 => 0,
        number if number >= 9.995 => 1,
        _ => 2,
    };
    format!("{number:.digits$} {prefix}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(power: &str, carbon: Option<Carbon>) -> EnergySpec {
        EnergySpec { power: power.parse().unwrap(), carbon }
    }

    fn usage(on_s: f64) -> Usage {
        let work = |busy_s, bytes| Work { busy_s, bytes };
        let workers = vec![work(2.0, 8), work(4.0, 16)];
        Usage { on_s, workers, servers: 2, server_bytes: 24, standby: None }
    }

    #[test]
    fn each_machine_counts_once_and_the_carbon_has_its_factors() {
        let carbon = Carbon { grams_per_kwh: 450.0, pue: Some(1.5) };
        let power = "idle=2W busy=4W byte=125mJ 2.busy=8W server.idle=1W";
        let spec = spec(power, Some(carbon));
        let report = spec.report(&usage(10.0), Some(&usage(5.0)), 100, None).unwrap();
        let modelled = report.modelled.clone().unwrap();
        // 10 s at 2 W, 2 s at 2 W more, 8 bytes of 1/8 J; 4 s at 6 W more; two servers.
        let each: Vec<f64> = modelled.workers.iter().map(|machine| machine.joules).collect();
        assert_eq!(each, [25.0, 46.0]);
        assert_eq!(modelled.servers.joules, 23.0);
        assert_eq!(modelled.joules, 94.0);
        assert_eq!(modelled.joules_per_sample, Some(0.94));
        assert_eq!(modelled.joules_to_target, Some(94.0 - 5.0 * 6.0));
        let grams = modelled.carbon_g.unwrap();
        assert!((grams - 94.0 / 3.6e6 * 1.5 * 450.0).abs() < 1e-15, "{grams}");
        let facts = report.facts();
        let energy = "94.0 J modelled: workers 71.0 J, server 23.0 J; 940 mJ a sample; 64.0 J to \
                      the target (power all.idle=2W all.busy=4W all.byte=125mJ server.idle=1W \
                      2.busy=8W)";
        let carbon = "17.6 mg modelled at 450 g/kWh, PUE 1.5";
        assert_eq!(facts, [("energy", energy.into()), ("carbon", carbon.into())]);
    }

    #[test]
    fn a_standby_is_a_machine_of_its_own() {
        let spec = spec("idle=2W busy=4W standby.idle=1W byte=250mJ", None);
        let usage = Usage { standby: Some(4), servers: 1, ..usage(10.0) };
        let modelled = spec.report(&usage, None, 0, None).unwrap().modelled.unwrap();
        assert_eq!(modelled.standby.unwrap().joules, 11.0);
        assert_eq!(modelled.servers.joules, 26.0);
        assert_eq!((modelled.joules_per_sample, modelled.joules_to_target), (None, None));
    }

    #[test]
    fn nothing_is_reported_unless_it_is_modelled_or_measured() {
        let carbon = Some(Carbon { grams_per_kwh: 380.0, pue: None });
        assert_eq!(spec("none", carbon).report(&usage(1.0), None, 1, None), None);
        let measured = Measured {
            machine: "gw".into(),
            boot: String::new(),
            seconds: 1.0,
            joules: 7.2e6,
            domains: [("package-0".into(), 7.2e6)].into(),
            joules_per_sample: None,
            joules_to_target: Some(3.6e6),
            carbon_g: None,
        };
        let report = spec("none", carbon).report(&usage(1.0), None, 2, Some(measured)).unwrap();
        assert_eq!(report.modelled, None);
        let energy = "7.20 MJ measured on gw: package-0 7.20 MJ; 3.60 MJ a sample; 3.60 MJ to the \
                      target";
        let carbon = "760 g measured at 380 g/kWh";
        assert_eq!(report.facts(), [("energy", energy.into()), ("carbon", carbon.into())]);
    }

    #[test]
    fn amounts_have_three_digits_and_a_prefix() {
        let amounts = [0.0, 1.0, 999.6, 99.96, 0.045, 3.2e-8, 4.56e10].map(joules);
        let wanted = ["0 J", "1.00 J", "1.00 kJ", "100 J", "45.0 mJ", "32.0 nJ", "45.6 GJ"];
        assert_eq!(amounts, wanted);
    }
}
