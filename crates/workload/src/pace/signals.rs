//! Ctrl-C ends a run early, with a report; outside of the run, or a second time, the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::flag;

/// What SIGINT and SIGTERM have asked for. Flags alone, no thread: a forked process has them too.
#[derive(Clone)]
pub(super) struct Signals {
    /// No run: signals do what they do by default.
    idle: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Signals {
    pub(super) fn heed() -> Result<Signals> {
        let signals = Signals {
            idle: Arc::new(AtomicBool::new(true)),
            stop: Arc::default(),
            signal: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM] {
            // In this order: the second one finds the flag that the first one has set.
            flag::register_conditional_default(signal, Arc::clone(&signals.idle))
                .and_then(|_| {
                    flag::register_conditional_shutdown(
                        signal,
                        128 + signal,
                        Arc::clone(&signals.stop),
                    )
                })
                .and_then(|_| flag::register(signal, Arc::clone(&signals.stop)))
                .and_then(|_| {
                    flag::register_usize(signal, Arc::clone(&signals.signal), signal as usize)
                })
                .context("cannot heed signals")?;
        }
        // What a process that forked others tells them: SIGINT they may have had from the terminal.
        flag::register(SIGUSR1, Arc::clone(&signals.stop)).context("cannot heed signals")?;
        Ok(signals)
    }

    /// From now on a signal ends the run.
    pub(super) fn running(&self) {
        self.idle.store(false, Ordering::Relaxed);
    }

    /// The run is over.
    pub(super) fn idle(&self) {
        self.idle.store(true, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What a shell expects of a program that Ctrl-C has ended. SIGTERM is an order like any other.
    pub(super) fn exit_if_interrupted(&self) {
        if self.signal.load(Ordering::Relaxed) == SIGINT as usize {
            std::process::exit(128 + SIGINT);
        }
    }
}
