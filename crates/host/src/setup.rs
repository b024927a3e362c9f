//! `loopscope-host setup`.

use std::process::ExitCode;

use anyhow::Context as _;
use loopscope_agent::installation::{self, Who};
use loopscope_agent::rights::check_only_root_writes;
use serde_json::json;

/// Install this program for `become: sudo`, as root, and let a user or a group run it by sudo.
///
/// It is copied to /usr/local/lib/loopscope, with mode 0750, where only root can change it. A rule
/// in /etc/sudoers.d, which visudo has checked, allows `loopscope-host limited` without a password.
/// By that the user's runs can emulate links, have interfaces stamp packets and take real-time
/// priorities; components run as the user.
#[derive(clap::Args)]
pub struct Arguments {
    /// The user that may run it [default: the one who calls sudo]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The members of this group may run it instead
    #[arg(long, value_name = "NAME", conflicts_with = "user")]
    group: Option<String>,
    /// Make no rule: sudo allows it already
    #[arg(long)]
    no_rule: bool,
    /// Remove every copy and every rule instead
    #[arg(long, conflicts_with_all = ["user", "group", "no_rule"])]
    remove: bool,
    /// Say instead which copies of the program with this SHA-256 there are for the caller's groups,
    /// and why one of them is not safe, as JSON: {"copies": [...], "unsafe": …}
    #[arg(long, value_name = "HASH", conflicts_with_all = ["user", "group", "no_rule", "remove"])]
    check: Option<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(hash) = &arguments.check {
        check(hash)?;
    } else if arguments.remove {
        let removed = installation::remove()?;
        removed.iter().for_each(|path| println!("removed {}", path.display()));
        if removed.is_empty() {
            println!("nothing to remove");
        }
    } else {
        let program = std::env::current_exe().context("cannot find out which binary this is")?;
        let who = match (&arguments.user, &arguments.group) {
            (_, Some(group)) => Who::group(group)?,
            (Some(user), None) => Who::user(user)?,
            (None, None) => {
                let caller = std::env::var("SUDO_UID").ok();
                let caller = caller.context("who may run it? say so by --user or --group")?;
                Who::user(&caller)?
            }
        };
        println!(
            "installed {}",
            installation::install(&program, who, !arguments.no_rule)?.display()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn check(hash: &str) -> anyhow::Result<()> {
    let copies = installation::copies(hash)?;
    let unsafe_because = copies.iter().find_map(|copy| check_only_root_writes(copy).err());
    let text = unsafe_because.map(|error| error.to_string());
    println!("{}", json!({"copies": copies, "unsafe": text}));
    Ok(())
}
