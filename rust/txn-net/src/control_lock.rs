//! The control lock: only its holder may use the state of the control loop.
//!
//! The state of coordinators, groups and metadata belongs to the control loop and has no locks of
//! its own. The loop holds the control lock while it works, and releases it while it sleeps. A
//! reactor with a request for that state then takes the lock and runs the handler itself. So no
//! thread has to be woken, neither the loop for the request nor the reactor for the answer. While
//! the loop works, a reactor passes its requests to it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A lock that is taken in one call and released in another.
#[derive(Default)]
pub struct ControlLock {
    state: Mutex<LockState>,
    released: Condvar,
}

#[derive(Default)]
struct LockState {
    is_held: bool,
    /// Number of threads that wait for it: they go before those that only try.
    waiting: usize,
}

impl ControlLock {
    /// Waits until it is free, and acquires it.
    pub fn acquire(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        while state.is_held {
            state = self
                .released
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.is_held = true;
    }

    /// Takes it if no thread holds it or waits for it.
    pub fn try_acquire(&self) -> bool {
        let mut state = self.lock();
        let is_free = !state.is_held && state.waiting == 0;
        state.is_held |= is_free;
        is_free
    }

    /// Leaves it to others.
    pub fn release(&self) {
        let mut state = self.lock();
        state.is_held = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.released.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, LockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn only_one_holds_it() {
        let control_lock = ControlLock::default();
        assert!(control_lock.try_acquire());
        assert!(!control_lock.try_acquire());
        control_lock.release();
        control_lock.acquire();
        assert!(!control_lock.try_acquire());
        control_lock.release();
        assert!(control_lock.try_acquire());
    }

    #[test]
    fn a_thread_that_waits_goes_before_one_that_tries() {
        let control_lock = Arc::new(ControlLock::default());
        control_lock.acquire();
        let waiter = thread::spawn({
            let control_lock = Arc::clone(&control_lock);
            move || control_lock.acquire()
        });
        while control_lock.lock().waiting == 0 {
            thread::yield_now();
        }
        control_lock.release();
        assert!(!control_lock.try_acquire());
        waiter.join().unwrap();
    }

    #[test]
    fn threads_that_take_and_try_never_hold_it_together() {
        let control_lock = Arc::new(ControlLock::default());
        let (holders, turns) = (Arc::new(AtomicUsize::new(0)), 10_000);
        let work = |waits: bool| {
            let (control_lock, holders) = (Arc::clone(&control_lock), Arc::clone(&holders));
            move || {
                for _ in 0..turns {
                    if waits {
                        control_lock.acquire();
                    } else if !control_lock.try_acquire() {
                        thread::yield_now();
                        continue;
                    }
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                    control_lock.release();
                }
            }
        };
        let threads = [true, false, true, false].map(|waits| thread::spawn(work(waits)));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(control_lock.try_acquire());
    }
}
