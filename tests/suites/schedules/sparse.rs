//! Sparse models under random schedules: the checkers repeat every update on all keys, with each
//! worker's gradient at the keys of its working set.

use std::cell::Cell;

use pstrain_compute::filter::{KeyCaching, PullFilter};
use pstrain_policy::consistency::ConsistencySpec;
use pstrain_policy::mode::Mode;
use pstrain_roles::node::Event;
use pstrain_tests::Ran;
use pstrain_tests::world::{Settings, let_happen};

use super::{LARGEST, bits, for_seeds};

/// Counts of situations that must occur for the test to mean anything.
#[derive(Default)]
struct Came {
    crashes: Cell<u64>,
    several: Cell<u64>,
    resumed: Cell<u64>,
}

impl Came {
    fn happen(&self, settings: &Settings) {
        let aftermath = let_happen(settings);
        self.crashes.set(self.crashes.get() + aftermath.crashes);
        self.several.set(self.several.get() + u64::from(settings.job.servers > 1));
        let again = |(_, event): &&(_, Event)| matches!(event, Event::Joined { resumed: true, .. });
        let again = aftermath.events.iter().filter(again).count() as u64;
        self.resumed.set(self.resumed.get() + again);
    }

    /// Checks that each situation occurred more than `least` times.
    #[track_caller]
    fn check(&self, ran: Ran, least: u64) {
        ran.expect_above(least, self.crashes.get(), "crashes");
        ran.expect_above(least, self.several.get(), "runs with several servers");
        ran.expect_above(least, self.resumed.get(), "workers that resumed");
    }
}

#[test]
fn working_sets_change_only_which_values_are_sent() {
    let came = Came::default();
    let ran = for_seeds(LARGEST / 2, |seed| {
        let mut settings = Settings::draw(seed);
        if seed % 4 == 0 {
            settings = settings.switching();
        }
        if seed % 9 == 0 {
            settings = settings.choosing();
        }
        settings = settings.sparse();
        if seed % 11 < 3 {
            settings = settings.measuring();
        }
        if seed % 3 == 0 {
            settings = settings.with_servers(2 + (seed % 4) as u32);
        }
        if seed % 5 == 0 {
            settings.job.filters.pull = PullFilter::Changed { delta: 0.0 };
        }
        if seed % 7 == 0 {
            settings.job.filters.key_caching = KeyCaching::Off;
        }
        if seed % 2 == 0 {
            settings.crashes = 1 + seed % 20;
        }
        if seed % 6 == 0 {
            settings.saves = 10 + seed % 100;
        }
        came.happen(&settings);
    });
    came.check(ran, 1000);
}

#[test]
fn a_restored_server_knows_its_working_sets() {
    for_seeds(LARGEST / 4, |seed| {
        let mut settings = Settings::draw(seed).with_any_optimizer();
        if seed % 8 == 0 {
            settings = settings.choosing();
        }
        settings = settings.sparse();
        if seed % 3 == 0 {
            settings.job.filters.pull = PullFilter::Changed { delta: 0.0 };
        }
        settings.saves = 10 + seed % 100;
        settings.crashes = 1 + seed % 30;
        settings.forgets = seed % 2 == 0;
        let _aftermath = let_happen(&settings);
    });
}

#[test]
fn several_servers_equal_one_bit_for_bit_with_sparse_models() {
    for_seeds(300, |seed| {
        let mut settings = Settings::draw(seed).sparse().peaceful();
        settings.job.mode = Mode::of(ConsistencySpec::Bsp);
        if seed % 2 == 0 {
            settings = settings.measuring();
        }
        // The random choices of lossy filters depend on a key's position.
        settings.job.filters.chain.retain(|filter| filter.is_lossless());
        let alone = bits(&let_happen(&settings.clone().with_servers(1)));
        for servers in [2, 4] {
            let together = let_happen(&settings.clone().with_servers(servers));
            assert_eq!(bits(&together), alone, "{servers} servers");
        }
    });
}

#[test]
fn under_random_faults_each_update_concerns_one_block() {
    let came = Came::default();
    let ran = for_seeds(LARGEST / 2, |seed| {
        let mut settings = Settings::draw(seed);
        if seed % 4 == 0 {
            settings = settings.switching();
        }
        settings = settings.with_blocks();
        if seed % 3 == 0 {
            settings = settings.with_servers(2 + (seed % 4) as u32);
        }
        if seed % 2 == 0 {
            settings.crashes = 1 + seed % 20;
        }
        if seed % 5 == 0 {
            settings.saves = 10 + seed % 100;
        }
        came.happen(&settings);
    });
    came.check(ran, 500);
}

#[test]
fn blocks_on_several_servers_equal_those_on_one_bit_for_bit() {
    for_seeds(300, |seed| {
        let mut settings = Settings::draw(seed).with_blocks().peaceful();
        settings.job.mode = Mode::of(ConsistencySpec::Bsp);
        settings.job.switches.clear();
        settings.job.filters.chain.retain(|filter| filter.is_lossless());
        let alone = bits(&let_happen(&settings.clone().with_servers(1)));
        for servers in [2, 4] {
            let together = let_happen(&settings.clone().with_servers(servers));
            assert_eq!(bits(&together), alone, "{servers} servers");
        }
    });
}
