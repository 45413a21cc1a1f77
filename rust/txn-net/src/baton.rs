//! Whoever holds the baton decides.
//!
//! What is decided in Python has no locks of its own: it belongs to the control loop. The loop
//! holds the baton while it works and puts it down while it sleeps. Then a reactor that meets a
//! request to be decided takes it and decides at once: nobody has to be woken, neither the loop
//! for the request nor the reactor for the answer. While the loop works, what a reactor meets is
//! left to it as before.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// A lock that is taken in one call and put down in another.
#[derive(Default)]
pub struct Baton {
    state: Mutex<State>,
    put_down: Condvar,
}

#[derive(Default)]
struct State {
    is_held: bool,
    /// How many wait for it: they go before those who only try.
    waiting: usize,
}

impl Baton {
    /// Waits until nobody holds it, and takes it.
    pub fn take(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        while state.is_held {
            state = self
                .put_down
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting -= 1;
        state.is_held = true;
    }

    /// Takes it if nobody holds it or waits for it.
    pub fn try_take(&self) -> bool {
        let mut state = self.lock();
        let is_free = !state.is_held && state.waiting == 0;
        state.is_held |= is_free;
        is_free
    }

    /// Leaves it to others.
    pub fn put_down(&self) {
        let mut state = self.lock();
        state.is_held = false;
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.put_down.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
        let baton = Baton::default();
        assert!(baton.try_take());
        assert!(!baton.try_take());
        baton.put_down();
        baton.take();
        assert!(!baton.try_take());
        baton.put_down();
        assert!(baton.try_take());
    }

    #[test]
    fn who_waits_goes_before_who_tries() {
        let baton = Arc::new(Baton::default());
        baton.take();
        let waiter = thread::spawn({
            let baton = Arc::clone(&baton);
            move || baton.take()
        });
        while baton.lock().waiting == 0 {
            thread::yield_now();
        }
        baton.put_down();
        assert!(!baton.try_take());
        waiter.join().unwrap();
    }

    #[test]
    fn threads_that_take_and_try_never_hold_it_together() {
        let baton = Arc::new(Baton::default());
        let (holders, turns) = (Arc::new(AtomicUsize::new(0)), 10_000);
        let work = |waits: bool| {
            let (baton, holders) = (Arc::clone(&baton), Arc::clone(&holders));
            move || {
                for _ in 0..turns {
                    if waits {
                        baton.take();
                    } else if !baton.try_take() {
                        thread::yield_now();
                        continue;
                    }
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                    assert_eq!(holders.fetch_sub(1, Ordering::SeqCst), 1);
                    baton.put_down();
                }
            }
        };
        let threads = [true, false, true, false].map(|waits| thread::spawn(work(waits)));
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(baton.try_take());
    }
}
