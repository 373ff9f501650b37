//! Support for the device: an entry point, a heap of fixed size, and an output.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

// Provides the critical sections.
use cortex_m as _;
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};
use embedded_alloc::LlffHeap;

/// Size of the heap.
const HEAP_BYTES: usize = 64 * 1024;

static HEAP: LlffHeap = LlffHeap::empty();
/// Most bytes of the heap that were ever in use.
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static WATCHED: Watched = Watched;

/// The heap, with a record of its peak.
struct Watched;

// SAFETY: every call goes to the heap unchanged.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees what the heap requires.
        let place = unsafe { HEAP.alloc(layout) };
        PEAK.fetch_max(HEAP.used(), Ordering::Relaxed);
        place
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { HEAP.dealloc(place, layout) }
    }
}

#[entry]
fn main() -> ! {
    // SAFETY: called once, before the first allocation.
    unsafe {
        embedded_alloc::init!(HEAP, HEAP_BYTES);
    }
    let status = match crate::train() {
        Ok(line) => {
            let peak = PEAK.load(Ordering::Relaxed);
            hprintln!("{line}");
            hprintln!("peak of the heap: {peak} of {HEAP_BYTES} bytes");
            debug::EXIT_SUCCESS
        }
        Err(why) => {
            hprintln!("{why}");
            debug::EXIT_FAILURE
        }
    };
    loop {
        debug::exit(status);
    }
}

#[panic_handler]
fn panic(why: &PanicInfo<'_>) -> ! {
    hprintln!("{why}");
    loop {
        debug::exit(debug::EXIT_FAILURE);
    }
}
