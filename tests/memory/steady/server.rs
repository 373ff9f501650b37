//! A server allocates no memory for a push once it has warmed up: from the bytes of the push to the
//! bytes of the answer.

use pstrain_policy::consistency::ConsistencySpec;
use pstrain_tests::Driven;
use stats_alloc::Region;

use crate::MEMORY;

const WORKERS: u32 = 4;

pub(crate) fn allocates_nothing_for_a_push() {
    let all = [ConsistencySpec::Bsp, ConsistencySpec::Asp, ConsistencySpec::Ssp { slack: 3 }];
    for consistency in all {
        let mut server = Driven::new(consistency, WORKERS);
        (0..2000).for_each(|_| server.turn(WORKERS));
        let (version, bytes) = (server.version(), server.bytes());
        let counted = Region::new(MEMORY);
        (0..1000).for_each(|_| server.turn(WORKERS));
        let asked = counted.change();
        assert!(server.version() >= version + 1000 && server.bytes() > bytes);
        assert_eq!((asked.allocations, asked.reallocations), (0, 0), "{consistency:?}");
    }
}
