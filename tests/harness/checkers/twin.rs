//! Cloneable wrapper of state that can be saved: it clones by saving and restoring, for checkers
//! that are rolled back.

use std::cell::{Ref, RefCell};
use std::fmt;
use std::rc::Rc;

use pstrain_compute::saved::{Archive, Saved, SavedError};

/// Saves a `T` to an archive or restores it from one.
type Leads<T> = fn(&mut T, &mut Archive<'_>) -> Result<(), SavedError>;

/// A `T` that clones by way of its archive.
pub(super) struct Twin<T> {
    value: RefCell<T>,
    fresh: Rc<dyn Fn() -> T>,
    archive: Leads<T>,
    keys: usize,
}

impl<T> Twin<T> {
    /// Wraps the value of `fresh`, whose vectors have `keys` keys.
    pub(super) fn new(fresh: impl Fn() -> T + 'static, archive: Leads<T>, keys: usize) -> Self {
        Self { value: RefCell::new(fresh()), fresh: Rc::new(fresh), archive, keys }
    }

    pub(super) fn look(&self) -> Ref<'_, T> {
        self.value.borrow()
    }

    pub(super) fn get(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> Clone for Twin<T> {
    fn clone(&self) -> Self {
        let (mut saved, mut value) = (Saved::default(), (self.fresh)());
        let own = &mut *self.value.borrow_mut();
        (self.archive)(own, &mut Archive::save(&mut saved, self.keys)).expect("saving");
        (self.archive)(&mut value, &mut Archive::restore(&saved, self.keys)).expect("restoring");
        let (fresh, archive, keys) = (Rc::clone(&self.fresh), self.archive, self.keys);
        Self { value: RefCell::new(value), fresh, archive, keys }
    }
}

impl<T: fmt::Debug> fmt::Debug for Twin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.borrow().fmt(f)
    }
}
