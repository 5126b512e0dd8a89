//! Many seeds on all cores, with the outcome of one after the other.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

/// What to do with a range of seeds.
pub struct Seeds<'a> {
    /// The seeds.
    pub range: Range<u64>,
    /// Threads to run them on.
    pub threads: usize,
    /// Whether to go on after a bad one.
    pub keep_going: bool,
    /// Whether the user wants to end.
    pub is_interrupted: &'a (dyn Fn() -> bool + Sync),
}

impl Seeds<'_> {
    /// Calls `run` with each seed and returns the results in the order of the seeds. Unless it is to go on, the last result
    /// is the first bad one, whichever thread was faster. `done` is called with each result as it comes.
    ///
    /// # Errors
    /// The error of the lowest seed that has one.
    pub fn run<T: Send>(
        &self,
        run: impl Fn(u64) -> anyhow::Result<T> + Sync,
        is_bad: impl Fn(&T) -> bool + Sync,
        mut done: impl FnMut(&T),
    ) -> anyhow::Result<Vec<T>> {
        let next = AtomicU64::new(self.range.start);
        // Seeds up to here are worth running. Seeds are begun in their order, so all below a bad one are under way.
        let last = AtomicU64::new(self.range.end - 1);
        let (sender, receiver) = mpsc::channel();
        let work = |sender: mpsc::Sender<(u64, anyhow::Result<T>)>| {
            loop {
                let seed = next.fetch_add(1, Ordering::SeqCst);
                if seed > last.load(Ordering::SeqCst) || (self.is_interrupted)() {
                    return;
                }
                let result = run(seed);
                if result
                    .as_ref()
                    .map_or(true, |result| !self.keep_going && is_bad(result))
                {
                    last.fetch_min(seed, Ordering::SeqCst);
                }
                if sender.send((seed, result)).is_err() {
                    return;
                }
            }
        };
        let mut results = Vec::new();
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                let sender = sender.clone();
                scope.spawn(|| work(sender));
            }
            drop(sender);
            for (seed, result) in receiver {
                if let Ok(result) = &result {
                    done(result);
                }
                results.push((seed, result));
            }
        });
        results.sort_unstable_by_key(|(seed, _)| *seed);
        let last = last.into_inner();
        results
            .into_iter()
            .take_while(|(seed, _)| *seed <= last)
            .map(|(_, result)| result)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(range: Range<u64>, keep_going: bool) -> Seeds<'static> {
        Seeds {
            range,
            threads: 4,
            keep_going,
            is_interrupted: &|| false,
        }
    }

    #[test]
    fn the_first_bad_seed_is_the_last_result_whichever_thread_is_faster() {
        for _ in 0..50 {
            let results = seeds(3..1_000, false)
                .run(Ok, |seed| seed % 10 == 7, |_| {})
                .unwrap();
            assert_eq!(results, [3, 4, 5, 6, 7]);
        }
    }

    #[test]
    fn all_seeds_run_if_it_is_to_go_on() {
        let results = seeds(0..100, true).run(Ok, |_| true, |_| {}).unwrap();
        assert_eq!(results, (0..100).collect::<Vec<u64>>());
    }

    #[test]
    fn an_error_ends_it() {
        let fail = |seed| {
            if seed == 5 {
                anyhow::bail!("seed 5")
            } else {
                Ok(seed)
            }
        };
        let error = seeds(0..u64::MAX, true)
            .run(fail, |_| false, |_| {})
            .unwrap_err();
        assert_eq!(error.to_string(), "seed 5");
    }

    #[test]
    fn nothing_begins_after_an_interrupt() {
        let seeds = Seeds {
            is_interrupted: &|| true,
            ..seeds(0..10, false)
        };
        assert!(seeds.run(Ok, |_| false, |_| {}).unwrap().is_empty());
    }
}
