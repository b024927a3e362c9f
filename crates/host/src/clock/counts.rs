//! The counts of a side's probes or replies, for people.

use loopscope_clocksync::probe::Counts;

/// Prints how many were sent and answered, and how many were lost for which causes.
pub(super) fn print_counts(what: &str, counts: &Counts) {
    let lost: u64 = counts.lost.values().sum();
    let causes: Vec<String> =
        counts.lost.iter().map(|(cause, count)| format!("{cause} {count}")).collect();
    let causes = if lost > 0 { format!(" ({})", causes.join(", ")) } else { String::new() };
    println!("{} {what} sent, {} answered, {lost} lost{causes}", counts.sent, counts.answered);
}
