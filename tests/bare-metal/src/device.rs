//! What the device lacks: an entry, a heap of fixed size, and somewhere to print to.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

// Brings the critical sections.
use cortex_m as _;
use cortex_m_rt::entry;
use cortex_m_semihosting::{debug, hprintln};
use embedded_alloc::LlffHeap;

/// The whole heap.
const HEAP_BYTES: usize = 64 * 1024;

static HEAP: LlffHeap = LlffHeap::empty();
/// The most that was ever given out of it.
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static WATCHED: Watched = Watched;

/// The heap, watched.
struct Watched;

// SAFETY: all is left to the heap.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: what the caller promises is what the heap asks for.
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
    // SAFETY: called once, before anything is allocated.
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
