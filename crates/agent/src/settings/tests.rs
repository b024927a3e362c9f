//! What a request comes to. Nothing of the machine is changed here.

use super::*;

/// A machine's files: governors of two processors, interrupts.
fn machine(available: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for cpu in ["cpu0", "cpu1"] {
        let folder = root.path().join(cpu).join("cpufreq");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("scaling_governor"), "powersave\n").unwrap();
        fs::write(folder.join("scaling_available_governors"), available).unwrap();
    }
    // Neither is a processor's.
    fs::create_dir_all(root.path().join("cpufreq")).unwrap();
    fs::create_dir_all(root.path().join("cpu2")).unwrap();
    fs::write(root.path().join("online"), "0-1,3\n").unwrap();
    for number in [4, 7, 8, 9] {
        let folder = root.path().join(format!("irq/{number}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("smp_affinity_list"), "0-1\n").unwrap();
    }
    fs::write(root.path().join("irq/default_smp_affinity"), "3\n").unwrap();
    root
}

fn not_set(errno: Errno) -> Result<(), LedgerError> {
    let reason = errno.desc().to_owned();
    Err(LedgerError::Set { what: "it".to_owned(), reason, errno: Some(errno as i32) })
}

#[test]
fn a_governor_is_that_of_every_processor_that_has_one() {
    let root = machine("performance powersave\n");
    let file = |cpu: &str| root.path().join(cpu).join("cpufreq/scaling_governor");
    assert_eq!(governors(root.path(), "performance").unwrap(), [file("cpu0"), file("cpu1")]);
    let unknown = governors(root.path(), "perform").unwrap_err();
    assert!(unknown.contains("it has: performance, powersave"), "{unknown}");
    let virtual_machine = tempfile::tempdir().unwrap();
    let none = governors(virtual_machine.path(), "performance").unwrap_err();
    assert!(none.contains("no cpufreq"), "{none}");
}

#[test]
fn interrupts_that_the_kernel_keeps_are_counted() {
    let root = machine("");
    let mut asked = vec![];
    let set = |setting: &Setting, value: &str| {
        asked.push((setting.describe(), value.to_owned()));
        match asked.len() {
            1 => Ok(()),
            2 => not_set(Errno::EIO),
            3 => Err(LedgerError::Changed {
                what: String::new(),
                value: String::new(),
                became: String::new(),
            }),
            _ => not_set(Errno::EPERM),
        }
    };
    let lack = move_interrupts(&root.path().join("irq"), root.path(), "1,0", set).unwrap().unwrap();
    assert_eq!(lack.what, "moves of 3 of 4 interrupts");
    assert_eq!(lack.why, "the kernel keeps 7-9 where they are");
    let file = |number: u32| root.path().join(format!("irq/{number}/smp_affinity_list"));
    let wanted = [4, 7, 8, 9].map(|n| (file(n).display().to_string(), "0-1".to_owned()));
    assert_eq!(asked, wanted);
}

#[test]
fn a_missing_right_to_interrupts_is_an_error() {
    let root = machine("");
    let try_with = |to: &str, outcome: fn() -> Result<(), LedgerError>| {
        move_interrupts(&root.path().join("irq"), root.path(), to, |_, _| outcome())
    };
    assert_eq!(try_with("0", || Ok(())).unwrap(), None);
    for (errno, told) in [(Errno::EACCES, "Permission denied"), (Errno::EROFS, "container")] {
        let set: fn() -> _ = match errno {
            Errno::EACCES => || not_set(Errno::EACCES),
            _ => || not_set(Errno::EROFS),
        };
        let refused = try_with("0", set).unwrap_err();
        assert!(refused.contains(told), "{refused}");
    }
    let none = try_with("0", || not_set(Errno::EIO)).unwrap_err();
    assert!(none.contains("no interrupt of this machine can be moved"), "{none}");
    let absent = try_with("1-3", || Ok(())).unwrap_err();
    assert!(absent.contains("no processor 2 that works; it has 0-1,3"), "{absent}");
    for list in ["", "a", "1-", "3-1", "+1", "0,", "9999999999"] {
        assert!(try_with(list, || Ok(())).unwrap_err().contains("no list"), "{list}");
    }
}

#[test]
fn only_names_of_sysctls_lead_to_files() {
    for name in [
        "",
        "kernel",
        "..",
        "net..core",
        "../etc.passwd",
        "net.core/../../etc",
        "net/core/busy_poll",
        "/etc.passwd",
        "net.core.busy_poll\n",
        ".net.core",
    ] {
        let refused = sysctl(name).unwrap_err();
        assert!(refused.contains("no name of a sysctl"), "{name:?}: {refused}");
    }
    assert!(sysctl("net.core.nothing").unwrap_err().contains("has no such sysctl"));
    // A folder.
    assert!(sysctl("net.core").unwrap_err().contains("has no such sysctl"));
    for name in ["net.ipv4.ip_forward", "vm.dirty_bytes", "net.ipv6.conf.all.disable_ipv6"] {
        assert!(sysctl(name).unwrap_err().contains("changes other settings"), "{name}");
    }
    let path = PathBuf::from("/proc/sys/vm/stat_interval");
    assert_eq!(sysctl("vm.stat_interval").unwrap(), Setting::File { path });
}

#[test]
fn interfaces_are_this_machines_by_their_plain_names() {
    let values: std::collections::HashMap<String, String> =
        [("mtu", "9000"), ("operstate", "up"), ("qdisc", "fq"), ("../lo/mtu", "9000")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    let settings = proto::InterfaceSettings { values };
    let names = ["lo", "../net/lo", "..", "lo/../lo", "", "ls-absent"];
    let interfaces = names.map(|name| (name.to_owned(), settings.clone())).into();
    let (found, problems) = wishes(&SetRequest { interfaces, ..SetRequest::default() });
    let wanted = [
        ("mtu", Setting::Link { interface: "lo".to_owned(), attribute: "mtu".to_owned() }, "9000"),
        ("qdisc", Setting::Qdisc { interface: "lo".to_owned() }, "fq"),
    ];
    let wanted = wanted.map(|(name, setting, value)| Wish {
        key: format!("settings.interfaces.lo.{name}"),
        setting,
        value: value.to_owned(),
    });
    assert_eq!(found, wanted);
    let absent = problems.iter().filter(|each| each.contains("no such interface")).count();
    assert_eq!((absent, problems.len()), (5, 7), "{problems:?}");
}
