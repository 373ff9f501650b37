//! Turns the settings of energy into what a run says of it.

use anyhow::bail;
use pstrain_transports::scenario::PowerModel;

use super::layers::Layers;
use super::values;
use crate::energy::{Carbon, EnergySpec};

impl Layers {
    /// The settings of the job about its energy.
    pub(crate) fn energy(&self) -> anyhow::Result<EnergySpec> {
        let power: PowerModel = self.items("power")?;
        power.check(self.workers()?)?;
        let intensity = self.parse("carbon-intensity", |text| values::at_least(text, 0.0))?;
        let pue = self.parse("pue", |text| values::at_least(text, 1.0))?;
        if let (None, Some(pue)) = (intensity, pue) {
            bail!("pue = {pue}: it is a factor of the carbon; say carbon-intensity, too");
        }
        let carbon = intensity.map(|grams_per_kwh| Carbon { grams_per_kwh, pue });
        Ok(EnergySpec { power, carbon })
    }

    /// Rejects a carbon intensity that has no energy to multiply: in virtual time no machine
    /// measures any.
    pub(crate) fn check_virtual_energy(&self) -> anyhow::Result<()> {
        let EnergySpec { power, carbon } = self.energy()?;
        if let (true, Some(carbon)) = (power.is_none(), carbon) {
            bail!(
                "carbon-intensity = {}: in virtual time energy is modelled; say what machines draw \
                 with --power raspberry-pi-4 or the like",
                carbon.grams_per_kwh
            );
        }
        Ok(())
    }
}
